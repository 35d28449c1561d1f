// Package processtest gives tests the programs that they need.
package processtest

import (
	"os"
	"testing"
)

// Binary returns the path that find returns. Where it finds none the test is
// skipped with what its error says, or fails where the environment variable CI is
// "true".
func Binary(t testing.TB, find func() (string, error)) string {
	t.Helper()
	path, err := find()
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}
