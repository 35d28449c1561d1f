//go:build !wasm

package wasm_test

import (
	"context"
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

// countingHost is the least that the filter needs of a host, and counts what it
// asks for. Each call costs an Envoy about as much as all of an engine's step.
type countingHost struct {
	ctx    context.Context
	module api.Module
	// exports are those called so far: to look one up makes it a stack of its own.
	exports map[string]api.Function
	calls   map[string]int
	config  []byte
	// What the host knows, by its number or name.
	headers    map[uint32][]byte
	properties map[string][]byte
	shared     map[string]sharedCell
	version    uint32
	sent       int
}

type sharedCell struct {
	value   []byte
	version uint32
}

func newCountingHost(t testing.TB, module []byte) *countingHost {
	t.Helper()
	h := &countingHost{
		ctx: context.Background(), calls: map[string]int{}, exports: map[string]api.Function{},
		headers: map[uint32][]byte{}, properties: map[string][]byte{}, shared: map[string]sharedCell{},
	}
	r := wazero.NewRuntime(h.ctx)
	t.Cleanup(func() { _ = r.Close(h.ctx) }) // in memory
	if _, err := wasi_snapshot_preview1.Instantiate(h.ctx, r); err != nil {
		t.Fatal(err)
	}
	compiled, err := r.CompileModule(h.ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	env := r.NewHostModuleBuilder("env")
	for _, f := range compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		if from != "env" {
			continue
		}
		env.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			h.calls[name]++
			stack[0] = h.call(m, name, stack)
		}), f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	if _, err := env.Instantiate(h.ctx); err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithStartFunctions("_initialize").WithSysNanotime().WithSysWalltime().WithStderr(os.Stderr)
	if h.module, err = r.InstantiateModule(h.ctx, compiled, config); err != nil {
		t.Fatal(err)
	}
	return h
}

// call answers the filter.
func (h *countingHost) call(m api.Module, name string, p []uint64) uint64 {
	at := func(i int) uint32 { return uint32(p[i]) }
	read := func(i int) []byte {
		b, _ := m.Memory().Read(at(i), at(i+1))
		return slices.Clone(b)
	}
	switch name {
	case "proxy_get_buffer_bytes":
		h.give(m, h.config, at(3), at(4))
	case "proxy_get_header_map_pairs":
		h.give(m, h.headers[at(0)], at(1), at(2))
	case "proxy_get_property":
		v, ok := h.properties[string(read(0))]
		if !ok {
			return 1
		}
		h.give(m, v, at(2), at(3))
	case "proxy_get_shared_data":
		c, ok := h.shared[string(read(0))]
		if !ok {
			return 1
		}
		h.give(m, c.value, at(2), at(3))
		m.Memory().WriteUint32Le(at(4), c.version)
	case "proxy_set_shared_data":
		key := string(read(0))
		if had := h.shared[key].version; had != 0 && at(4) != 0 && at(4) != had {
			return 8
		}
		h.version++
		h.shared[key] = sharedCell{value: read(2), version: h.version}
	case "proxy_http_call":
		h.sent += len(read(4))
	}
	return 0
}

// give leaves an answer in memory that it asks of the filter.
func (h *countingHost) give(m api.Module, v []byte, data, size uint32) {
	h.calls["memory"]++
	r, err := h.export("proxy_on_memory_allocate").Call(h.ctx, uint64(len(v)))
	if err != nil {
		panic(err)
	}
	m.Memory().Write(uint32(r[0]), v)
	m.Memory().WriteUint32Le(data, uint32(r[0]))
	m.Memory().WriteUint32Le(size, uint32(len(v)))
}

func (h *countingHost) enter(t testing.TB, name string, params ...uint64) {
	if _, err := h.export(name).Call(h.ctx, params...); err != nil {
		t.Fatal(err)
	}
}

func (h *countingHost) export(name string) api.Function {
	f := h.exports[name]
	if f == nil {
		f = h.module.ExportedFunction(name)
		h.exports[name] = f
	}
	return f
}

// start gives the filter its settings and a policy; root context 1.
func (h *countingHost) start(t testing.TB, settings string, policy []byte) {
	h.enter(t, "proxy_on_context_create", 1, 0)
	h.config = []byte(settings)
	h.enter(t, "proxy_on_vm_start", 1, uint64(len(settings)))
	h.config = policy
	h.enter(t, "proxy_on_configure", 1, uint64(len(policy)))
}

// request is a call at the caller, as Envoy shows it to the filter.
func (h *countingHost) request(t testing.TB, id uint64, trace tfi.TraceID) {
	h.headers[uint32(host.RequestHeaders)] = host.AppendPairs(nil, [][2]string{
		{":method", "GET"},
		{":path", "/items"},
		{":authority", "test"},
		{"traceparent", "00-" + trace.String() + "-00f067aa0ba902b7-01"},
	})
	h.enter(t, "proxy_on_context_create", id, 1)
	h.enter(t, "proxy_on_request_headers", id, 4, 1)
	h.enter(t, "proxy_on_response_headers", id, 2, 0)
	h.enter(t, "proxy_on_response_body", id, 4, 0)
	h.enter(t, "proxy_on_response_body", id, 0, 1)
	h.enter(t, "proxy_on_done", id)
}

func startedHost(t testing.TB, settings string) (*countingHost, tfi.TraceID) {
	t.Helper()
	path, err := testbed.Build(context.Background(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("1", behaviour.Activation(key, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	h := newCountingHost(t, module)
	h.properties["xds\x00listener_direction"] = binary.LittleEndian.AppendUint64(nil, 2)
	h.properties["xds\x00cluster_name"] = []byte(behaviour.PeerHTTP1)
	h.headers[uint32(host.ResponseHeaders)] = host.AppendPairs(nil, [][2]string{{":status", "200"}, {"content-length", "4"}})
	h.start(t, settings, policy)
	return h, tfi.NewTraceID(key, 1)
}

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
		"proxy_on_memory_allocate", "proxy_on_request_headers", "proxy_on_response_body", "proxy_on_response_headers",
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

// tick lets the filter send its reports, and answers them.
func (h *countingHost) tick(t testing.TB) {
	h.enter(t, "proxy_on_tick", 1)
	h.enter(t, "proxy_on_http_call_response", 1, 0, 0, 0, 0)
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
