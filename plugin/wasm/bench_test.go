//go:build !wasm

package wasm_test

import (
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// BenchmarkCall is a trial's call through the filter as Go code. The emulator
// takes most of it; what it is good for is a profile.
func BenchmarkCall(b *testing.B) {
	e := newEmulator(b, wasm.NewVM(), "")
	key := behaviour.NewKey()
	if err := e.Apply(b.Context(), behaviour.Policy("1", behaviour.Activation(key, time.Hour))); err != nil {
		b.Fatal(err)
	}
	call := behaviour.Call{
		Outbound: true,
		Request:  behaviour.Message{Method: "GET", Path: "/items"},
		Answer:   behaviour.Message{Status: 200, Chunks: []string{"fine"}},
	}
	trace := tfi.NewTraceID(key, 1)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Do(b.Context(), &call, trace); err != nil {
			b.Fatal(err)
		}
		if n++; n%100 == 0 {
			e.host.Tick()
		}
	}
}
