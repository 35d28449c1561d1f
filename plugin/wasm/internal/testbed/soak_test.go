package testbed_test

import (
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

// TestSoak is the short form of command soak.
func TestSoak(t *testing.T) {
	bed := start(t, testbed.Options{Workers: 2, Settings: "gc=5"})
	r, err := testbed.Soak(t.Context(), bed, testbed.SoakOptions{
		Requests: 4000, Connections: 8, PushEvery: 100 * time.Millisecond, SampleEvery: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed > 0 {
		t.Error(r.Err())
	}
	if n := stats(t, bed, "internal_errors"); n != 0 {
		t.Errorf("internal_errors = %d", n)
	}
	t.Logf("%d requests, %d pushes in %v", r.Requests, r.Pushes, r.Took)
}
