// Package jaegertest gives tests a real Jaeger.
package jaegertest

import (
	"testing"

	"github.com/sequencefi/sequencefi/deploy/jaeger"
	"github.com/sequencefi/sequencefi/deploy/process/processtest"
)

// Start starts a Jaeger that is stopped when the test ends. Without the binary
// the test is skipped, or fails where CI is "true".
func Start(t testing.TB) *jaeger.Jaeger {
	t.Helper()
	path := processtest.Binary(t, jaeger.Find)
	j, err := jaeger.Start(t.Context(), jaeger.Options{Path: path, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Stop)
	return j
}
