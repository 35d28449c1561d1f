// Package jaegertest gives tests a real Jaeger.
package jaegertest

import (
	"os"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/jaeger"
)

// Start starts a Jaeger that is stopped when the test ends. Without the binary
// the test is skipped, or fails where CI is "true".
func Start(t testing.TB) *jaeger.Jaeger {
	t.Helper()
	path, err := jaeger.Find()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	j, err := jaeger.Start(t.Context(), jaeger.Options{Path: path, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Stop)
	return j
}
