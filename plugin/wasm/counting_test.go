//go:build !wasm

package wasm_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestCallsOfARequest holds what a request costs an Envoy beside the engine: the
// callbacks that the module has, and what each request asks of its host.
func TestCallsOfARequest(t *testing.T) {
	h, trace := startedHost(t, "")
	var exports []string
	for name := range h.module.ExportedFunctionDefinitions() {
		if strings.HasPrefix(name, "proxy_") {
			exports = append(exports, name)
		}
	}
	slices.Sort(exports)
	if d := cmp.Diff([]string{
		"proxy_abi_version_0_2_0", "proxy_on_configure", "proxy_on_context_create", "proxy_on_done", "proxy_on_http_call_response",
		"proxy_on_memory_allocate", "proxy_on_request_headers", "proxy_on_request_trailers", "proxy_on_response_body", "proxy_on_response_headers",
		"proxy_on_response_trailers", "proxy_on_tick", "proxy_on_vm_start",
	}, exports); d != "" {
		t.Error("exports:", d)
	}
	h.request(t, 2, trace) // reads the trial's cell, and starts the clock
	clear(h.calls)
	h.request(t, 3, trace)
	want := map[string]int{
		"proxy_get_property": 2, "proxy_get_header_map_pairs": 2, "memory": 4,
		"proxy_set_shared_data": 3, "proxy_replace_header_map_value": 1,
	}
	if d := cmp.Diff(want, h.calls); d != "" {
		t.Error("of a trial's request:", d)
	}
	clear(h.calls)
	h.request(t, 4, behaviour.OrdinaryTrace)
	want = map[string]int{
		"proxy_get_property": 2, "proxy_get_header_map_pairs": 1, "memory": 3,
		"proxy_remove_header_map_value": 1, // of its answer, whose callee may have attached evidence
	}
	if d := cmp.Diff(want, maps.Clone(h.calls)); d != "" {
		t.Error("of any other:", d)
	}
}

// TestStreamsAllocateNothing runs without a collector: what a stream allocated
// would stay. Go's heap grows by 4 MiB at once, and the reports need a little.
func TestStreamsAllocateNothing(t *testing.T) {
	h, trace := startedHost(t, "gc=off")
	requests := func(from, to uint64) uint32 {
		for id := from; id < to; id++ {
			h.request(t, id, trace)
			if id%64 == 0 {
				h.tick(t)
			}
		}
		return h.module.Memory().Size()
	}
	const n = 50_000
	before := requests(2, 1000)
	if grown := requests(1000, 1000+n) - before; grown > 4<<20 {
		t.Errorf("%d requests took %d bytes of memory", n, grown)
	}
	if h.sent < 100*n {
		t.Errorf("%d bytes of reports for %d requests", h.sent, n)
	}
}

// BenchmarkInWasm is a trial's request through the built filter in wazero, with a
// host that costs little.
func BenchmarkInWasm(b *testing.B) {
	h, trace := startedHost(b, "")
	id := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		id++
		h.request(b, id, trace)
		if id%64 == 0 {
			h.tick(b)
		}
	}
}
