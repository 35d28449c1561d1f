//go:build !wasm

package wasm_test

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// countingHost is the least that the filter needs of a host, and counts what it
// asks for. Each call costs an Envoy about as much as all of an engine's step.
type countingHost struct {
	ctx    context.Context
	module api.Module
	// exports are those called so far: to look one up makes it a stack of its own.
	exports map[string]api.Function
	calls   map[string]int
	// config is what there is to read, policy that of the trial.
	config, policy []byte
	// What the host knows, by its number or name.
	headers    map[uint32][]byte
	properties map[string][]byte
	shared     map[string]sharedCell
	version    uint32
	metrics    []metric
	// effective is the context that calls are about, and parents are roots (0: it is one).
	effective uint32
	parents   map[uint32]uint32
	periods   map[uint32]uint32 // of the roots' ticks
	acts      []string          // what was done to streams
	// reports are under way, by root; unreachable: they are refused.
	reports     map[uint32][]uint32
	reported    uint32
	unreachable bool
	// mute: it makes no answers of its own.
	mute bool
	sent int
}

// metric is a statistic that the filter has made known.
type metric struct {
	name  string
	value int64
}

type sharedCell struct {
	value   []byte
	version uint32
}

// compilations keeps what wazero has made of a module, which takes it seconds.
var compilations = wazero.NewCompilationCache()

func newCountingHost(t testing.TB, module []byte) *countingHost {
	t.Helper()
	h := &countingHost{
		ctx: context.Background(), calls: map[string]int{}, exports: map[string]api.Function{},
		headers: map[uint32][]byte{}, properties: map[string][]byte{}, shared: map[string]sharedCell{},
		parents: map[uint32]uint32{}, periods: map[uint32]uint32{}, reports: map[uint32][]uint32{},
	}
	r := wazero.NewRuntimeWithConfig(h.ctx, wazero.NewRuntimeConfig().WithCompilationCache(compilations))
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
		if h.unreachable {
			return 2
		}
		h.sent += len(read(4))
		h.reported++
		m.Memory().WriteUint32Le(at(9), h.reported)
		root := h.root(h.effective)
		h.reports[root] = append(h.reports[root], h.reported)
	case "proxy_define_metric":
		name := string(read(1))
		i := slices.IndexFunc(h.metrics, func(m metric) bool { return m.name == name })
		if i < 0 {
			i = len(h.metrics)
			h.metrics = append(h.metrics, metric{name: name})
		}
		m.Memory().WriteUint32Le(at(3), uint32(i))
	case "proxy_increment_metric":
		h.metrics[at(0)].value += int64(p[1])
	case "proxy_set_effective_context":
		if _, ok := h.parents[at(0)]; !ok {
			return 2
		}
		h.effective = at(0)
	case "proxy_set_tick_period_milliseconds":
		h.periods[h.root(h.effective)] = at(0)
	case "proxy_continue_stream":
		h.did("continue", []string{"request", "answer"}[at(0)])
	case "proxy_close_stream":
		h.did("reset")
	case "proxy_send_local_response":
		if h.mute {
			return 2
		}
		h.did("reply", strconv.Itoa(int(at(0))))
	}
	return 0
}

// did notes what was done to the effective stream.
func (h *countingHost) did(what ...string) {
	h.acts = append(h.acts, strings.Join(append(what, strconv.Itoa(int(h.effective))), " "))
}

// root returns the root of a context.
func (h *countingHost) root(id uint32) uint32 {
	if parent := h.parents[id]; parent != 0 {
		return parent
	}
	return id
}

// counted returns a statistic.
func (h *countingHost) counted(name string) int64 {
	for _, m := range h.metrics {
		if m.name == "sequencefi."+name {
			return m.value
		}
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

// enter calls back into the filter about the context that is the first parameter,
// and returns what the filter answers.
func (h *countingHost) enter(t testing.TB, name string, params ...uint64) uint64 {
	t.Helper()
	id := uint32(params[0])
	if name == "proxy_on_context_create" {
		h.parents[id] = uint32(params[1])
	}
	h.effective = id
	r, err := h.export(name).Call(h.ctx, params...)
	if err != nil {
		t.Fatal(err)
	}
	if name == "proxy_on_done" {
		delete(h.parents, id)
	}
	if len(r) == 0 {
		return 0
	}
	return r[0]
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
	h.config = []byte(settings)
	h.push(t, 1, policy)
}

// push makes a root context for a policy, as Envoy does for each.
func (h *countingHost) push(t testing.TB, root uint64, policy []byte) {
	h.enter(t, "proxy_on_context_create", root, 0)
	h.enter(t, "proxy_on_vm_start", root, uint64(len(h.config)))
	settings := h.config
	h.config = policy
	h.enter(t, "proxy_on_configure", root, uint64(len(policy)))
	h.config = settings
}

// request is a call at the caller, as Envoy shows it to the filter.
func (h *countingHost) request(t testing.TB, id uint64, trace tfi.TraceID) {
	h.begin(t, id, 1, "/items", trace)
	h.enter(t, "proxy_on_response_headers", id, 2, 0)
	h.enter(t, "proxy_on_response_body", id, 4, 0)
	h.enter(t, "proxy_on_response_body", id, 0, 1)
	h.enter(t, "proxy_on_done", id)
}

// begin is the request of a call, of the policy that a root context has. It returns the
// filter's action.
func (h *countingHost) begin(t testing.TB, id, root uint64, path string, trace tfi.TraceID) uint64 {
	h.headers[uint32(host.RequestHeaders)] = host.AppendPairs(nil, [][2]string{
		{":method", "GET"},
		{":path", path},
		{":authority", "test"},
		{"traceparent", "00-" + trace.String() + "-00f067aa0ba902b7-01"},
	})
	h.enter(t, "proxy_on_context_create", id, root)
	return h.enter(t, "proxy_on_request_headers", id, 4, 1)
}

// tick lets the filter send its reports, and answers them.
func (h *countingHost) tick(t testing.TB) {
	h.enter(t, "proxy_on_tick", 1)
	h.answerReports(t, "200")
}

// answerReports answers the reports that are under way; an empty status: no answer came.
func (h *countingHost) answerReports(t testing.TB, status string) {
	n := uint64(0)
	if status != "" {
		n = 1
		h.headers[uint32(host.CallHeaders)] = host.AppendPairs(nil, [][2]string{{":status", status}})
	}
	for root, ids := range h.reports {
		delete(h.reports, root)
		for _, id := range ids {
			h.enter(t, "proxy_on_http_call_response", uint64(root), uint64(id), n, 0, 0)
		}
	}
}

// startedHost runs the filter with a policy of one trial.
func startedHost(t testing.TB, settings string, faults ...*tfiv1.Tfic) (*countingHost, tfi.TraceID) {
	t.Helper()
	return startedHostOf(t, "", settings, faults...)
}

// modules are the built filters by their tags.
var modules = map[string][]byte{}

// startedHostOf runs the filter built with tags.
func startedHostOf(t testing.TB, tags, settings string, faults ...*tfiv1.Tfic) (*countingHost, tfi.TraceID) {
	t.Helper()
	module := modules[tags]
	if module == nil {
		path, err := testbed.Build(context.Background(), t.TempDir(), tags)
		if err != nil {
			t.Fatal(err)
		}
		if module, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		modules[tags] = module
	}
	key := behaviour.NewKey()
	policy := marshal(t, behaviour.Policy("1", behaviour.Activation(key, time.Hour, faults...)))
	h := newCountingHost(t, module)
	h.properties["xds\x00listener_direction"] = binary.LittleEndian.AppendUint64(nil, 2)
	h.properties["xds\x00cluster_name"] = []byte(behaviour.PeerHTTP1)
	h.headers[uint32(host.ResponseHeaders)] = host.AppendPairs(nil, [][2]string{{":status", "200"}, {"content-length", "4"}})
	h.policy = policy
	h.start(t, settings, policy)
	return h, tfi.NewTraceID(key, 1)
}

func marshal(t testing.TB, p *tfiv1.Policy) []byte {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
