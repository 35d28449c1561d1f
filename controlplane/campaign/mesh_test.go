package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/traces"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// mesh is a mesh in one process: real HTTP between services on the loopback interface,
// and beside each a sidecar that is the real engine. It is the campaign's plane, fleet
// and source.
type mesh struct {
	t        *testing.T
	store    *traces.Store
	topology *topology.Topology
	sidecars map[string]*sidecar

	mu      sync.Mutex
	version int
	// narrow gates look for the policy's formats only, as Envoys' do; all others are TFIProxies'.
	narrow  bool
	formats []tfiv1.TraceFormat
	changed chan struct{}
	// gone: how often Sidecars still finds nobody.
	gone int
	// lost sidecars are connected no more.
	lost map[string]bool
	// refuse makes Wait fail; nil: it does not.
	refuse func(version string) error
	// lose says which reports get lost; nil: none.
	lose func(r *tfi.Record) bool
	// lie: another version is acknowledged than is applied.
	lie bool
	// stale sidecars do not take new policies.
	stale   map[string]bool
	removed []string
	// patience is how long callers wait for an answer; 0: as long as it takes.
	patience time.Duration
	applies  int
	// skew is how far services' clocks are ahead.
	skew map[string]time.Duration
	// forward copies what applications pass on of a request's trace headers; nil: traceparent.
	forward func(in, out http.Header)
	// traffic counts requests that bore a trial's mark.
	traffic int
}

// application is one: it answers a request, and calls others by call.
type application func(w http.ResponseWriter, r *http.Request, call caller)

// caller calls another service with the trace context of the request under way.
type caller func(method, callee, path string) (int, []byte)

// sidecar is the proxy of one service.
type sidecar struct {
	mesh   *mesh
	name   string
	app    application
	server *httptest.Server
	store  *tfi.Memory
	start  time.Time

	mu     sync.Mutex
	engine *tfi.Engine
	fence  tfi.Fence
	// removed: its policy was taken away, as when a campaign is stopped. Requests that were
	// under way then may still bring evidence.
	removed bool
}

func newMesh(t *testing.T, services map[string]application, calls map[string][]string) *mesh {
	t.Helper()
	m := &mesh{
		t: t, store: traces.NewStore(traces.StoreOptions{}), sidecars: make(map[string]*sidecar),
		changed: make(chan struct{}), stale: make(map[string]bool), lost: make(map[string]bool), topology: &topology.Topology{},
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		s := &sidecar{mesh: m, name: name, app: services[name], store: tfi.NewMemory(0), start: time.Now()}
		s.server = httptest.NewServer(s)
		m.sidecars[name] = s
		entry := topology.Service{
			Name: name, App: fmt.Sprintf("127.0.0.1:%d", 1+len(m.sidecars)), Inbound: s.server.Listener.Addr().String(),
		}
		for i, callee := range calls[name] {
			entry.Calls = append(entry.Calls, topology.Call{
				Service: callee, Listen: fmt.Sprintf("127.0.0.1:%d", 100*len(m.sidecars)+i),
			})
		}
		m.topology.Services = append(m.topology.Services, entry)
	}
	t.Cleanup(func() {
		for _, s := range m.sidecars {
			s.server.Close()
		}
		_ = m.store.Close()
	})
	return m
}

func (m *mesh) url(name string) string { return m.sidecars[name].server.URL }

// Apply implements Plane.
func (m *mesh) Apply(ctx context.Context, policies map[string]*tfiv1.Policy) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	m.applies++
	version := fmt.Sprintf("v%06d", m.version)
	for name, p := range policies {
		p = proto.CloneOf(p)
		p.Version = version
		m.formats = p.GetTraceFormats()
		if err := valid.Error(valid.Policy(p)); err != nil {
			return "", err
		}
		encoded, err := proto.Marshal(p)
		if err != nil {
			return "", err
		}
		parsed, err := tfi.ParsePolicy(encoded)
		if err != nil {
			return "", err
		}
		if !m.stale[name] {
			m.sidecars[name].apply(parsed)
		}
	}
	if m.lie {
		version += "x"
	}
	return version, nil
}

// Wait implements Plane.
func (m *mesh) Wait(_ context.Context, version string, _ []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse(version)
	}
	return nil
}

// Remove implements Plane.
func (m *mesh) Remove(services ...string) {
	for _, name := range services {
		m.sidecars[name].apply(nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, services...)
}

// Sidecars implements Fleet.
func (m *mesh) Sidecars() []Sidecar {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone > 0 {
		if m.gone--; m.gone == 0 {
			close(m.changed)
			m.changed = make(chan struct{})
		}
		return nil
	}
	var out []Sidecar
	for _, name := range slices.Sorted(maps.Keys(m.sidecars)) {
		out = append(out, Sidecar{Service: name, Instance: name + "-1", Proxy: "mesh 1", Connected: !m.lost[name]})
	}
	return out
}

// Changed implements Fleet.
func (m *mesh) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone > 0 {
		soon := make(chan struct{})
		close(soon)
		return soon
	}
	return m.changed
}

// Spans implements Source.
func (m *mesh) Spans(ctx context.Context, ids [][16]byte) (*tracev1.TracesData, error) {
	return m.store.Spans(ctx, ids)
}

// Wait for spans; the mesh has Plane's Wait already.
type meshSource struct{ *traces.Store }

var (
	_ Plane  = (*mesh)(nil)
	_ Fleet  = (*mesh)(nil)
	_ Source = meshSource{}
)

// active lists the services that have a policy.
func (m *mesh) active() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m.sidecars)) {
		if m.sidecars[name].current() != nil {
			out = append(out, name)
		}
	}
	return out
}

func (s *sidecar) now() time.Duration { return time.Since(s.start) }

func (s *sidecar) apply(p *tfi.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		s.engine, s.fence, s.removed = nil, tfi.Fence{}, true
		return
	}
	s.removed = false
	s.fence.Admit(p, s.now())
	s.engine = tfi.NewEngine(p, s.store, tfi.Options{Now: s.now(), Fence: &s.fence})
}

func (s *sidecar) current() *tfi.Engine {
	engine, _ := s.state()
	return engine
}

// state is the engine, nil if there is none, and whether one was taken away.
func (s *sidecar) state() (engine *tfi.Engine, removed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine, s.removed
}

type headers http.Header

func (h headers) Header(name string) (string, bool) {
	values, ok := h[http.CanonicalHeaderKey(name)]
	if !ok {
		return "", false
	}
	return values[0], true
}

// carry puts a decision's evidence on a message, or takes what is there off.
func carry(h http.Header, d tfi.Decision) {
	h.Del(tfi.EvidenceHeader)
	if len(d.Evidence) > 0 {
		h.Set(tfi.EvidenceHeader, string(d.Evidence))
	}
}

var errReset = errors.New("reset by the sidecar")

// faulty carries out what a decision wants; a made answer or an error replaces the message.
func faulty(d tfi.Decision) (*http.Response, error) {
	switch d.Action {
	case tfi.ActionDelay:
		time.Sleep(d.Delay)
	case tfi.ActionDrop:
		time.Sleep(d.Delay)
		return nil, errReset
	case tfi.ActionAbort:
		return nil, errReset
	case tfi.ActionError:
		header := http.Header{}
		header.Set(tfi.InjectedHeader, d.TFIC.ID)
		carry(header, d)
		return &http.Response{
			StatusCode: d.TFIC.Fault.Error.HTTPStatus, Header: header,
			Body: io.NopCloser(bytes.NewReader(d.TFIC.Fault.Error.Body)),
		}, nil
	}
	return nil, nil
}

// ServeHTTP is the inbound side.
func (s *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	engine, removed := s.state()
	if engine == nil || !s.mesh.marked(r.Header) {
		if r.Header.Get(tfi.EvidenceHeader) != "" && !removed {
			s.mesh.t.Errorf("evidence leaked to %s", s.name)
		}
		r.Header.Del(tfi.EvidenceHeader) // as every sidecar does
		s.serveApp(w, r)
		return
	}
	s.mesh.mu.Lock()
	s.mesh.traffic++
	s.mesh.mu.Unlock()
	var call tfi.Call
	d := engine.Request(&call, &tfi.Request{
		Role: tfi.RoleServer, Method: r.Method, Path: r.URL.RequestURI(), Headers: headers(r.Header), Now: s.now(),
	})
	made, err := faulty(d) //nolint:bodyclose // its body is in memory
	var answer *http.Response
	if made == nil && err == nil {
		carry(r.Header, tfi.Decision{})
		answer = s.answer(r) //nolint:bodyclose // its body is in memory
		response := &tfi.Response{Now: s.now(), Broken: answer == nil, Made: answer == nil}
		if answer != nil {
			response.Status, response.Headers = answer.StatusCode, headers(answer.Header)
		}
		if engine = s.current(); engine != nil {
			d = engine.Response(&call, response)
			made, err = faulty(d) //nolint:bodyclose // its body is in memory
			if made == nil && answer != nil {
				carry(answer.Header, d)
			}
		}
	}
	s.report(&call)
	if made != nil {
		answer = made
	}
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case answer == nil:
		http.Error(w, "upstream reset", http.StatusServiceUnavailable)
	default:
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}
}

// answer has the application answer; nil: it broke the connection.
func (s *sidecar) answer(r *http.Request) (out *http.Response) {
	recorder := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	s.serveApp(recorder, r)
	return recorder.Result()
}

func (s *sidecar) serveApp(w http.ResponseWriter, r *http.Request) {
	s.app(w, r, func(method, callee, path string) (int, []byte) { return s.call(r, method, callee, path) })
}

// call is the outbound side. Status 0: no answer.
func (s *sidecar) call(in *http.Request, method, callee, path string) (int, []byte) {
	target, err := url.Parse(s.mesh.url(callee) + path)
	if err != nil {
		s.mesh.t.Error(err)
		return 0, nil
	}
	out := (&http.Request{Method: method, URL: target, Header: http.Header{}}).WithContext(context.WithoutCancel(in.Context()))
	if s.mesh.forward == nil {
		passing("traceparent")(in.Header, out.Header)
	} else {
		s.mesh.forward(in.Header, out.Header)
	}
	response, err := s.outbound(out, callee)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if response.Header.Get(tfi.EvidenceHeader) != "" {
		s.mesh.t.Errorf("evidence leaked to %s", s.name)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, body
}

// passing copies headers that are there.
func passing(names ...string) func(in, out http.Header) {
	return func(in, out http.Header) {
		for _, name := range names {
			if v := in.Get(name); v != "" {
				out.Set(name, v)
			}
		}
	}
}

// marked says whether a request is of a trial, as the gate before a plugin does.
func (m *mesh) marked(h http.Header) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range []struct {
		format         tfiv1.TraceFormat
		header, prefix string
	}{
		{tfiv1.TraceFormat_TRACE_FORMAT_W3C, "traceparent", "00-5f1c"},
		{tfiv1.TraceFormat_TRACE_FORMAT_B3, "b3", "5f1c"},
		{tfiv1.TraceFormat_TRACE_FORMAT_B3_MULTI, "x-b3-traceid", "5f1c"},
		{tfiv1.TraceFormat_TRACE_FORMAT_JAEGER, "uber-trace-id", "5f1c"},
	} {
		if (!m.narrow || len(m.formats) == 0 || slices.Contains(m.formats, known.format)) && strings.HasPrefix(h.Get(known.header), known.prefix) {
			return true
		}
	}
	return m.topology.TraceHeader != "" && strings.HasPrefix(h.Get(m.topology.TraceHeader), "5f1c")
}

var oneShot = &http.Transport{DisableKeepAlives: true}

func (s *sidecar) outbound(r *http.Request, callee string) (*http.Response, error) {
	engine := s.current()
	if engine == nil || !s.mesh.marked(r.Header) {
		return oneShot.RoundTrip(r)
	}
	var call tfi.Call
	defer s.report(&call)
	d := engine.Request(&call, &tfi.Request{
		Role: tfi.RoleClient, Cluster: callee, Method: r.Method, Path: r.URL.RequestURI(), Headers: headers(r.Header), Now: s.now(),
	})
	if s.mesh.patience > 0 && d.Action == tfi.ActionDelay && d.Delay > s.mesh.patience {
		time.Sleep(s.mesh.patience)
		call.Record().Unsent = true // its caller has left
		return nil, context.DeadlineExceeded
	}
	if made, err := faulty(d); made != nil || err != nil {
		return made, err
	}
	carry(r.Header, d)
	answer, err := oneShot.RoundTrip(r)
	response := &tfi.Response{Now: s.now(), Broken: err != nil}
	if err == nil {
		response.Status, response.Headers = answer.StatusCode, headers(answer.Header)
	}
	if engine = s.current(); engine == nil { // removed in between
		if answer != nil {
			carry(answer.Header, tfi.Decision{}) // as every sidecar does
		}
		return answer, err
	}
	d = engine.Response(&call, response)
	if made, broken := faulty(d); made != nil || broken != nil {
		if answer != nil {
			_ = answer.Body.Close()
		}
		return made, broken
	}
	if err != nil {
		return nil, err
	}
	carry(answer.Header, tfi.Decision{})
	engine.Delivered(&call, s.now())
	return answer, nil
}

func (s *sidecar) report(call *tfi.Call) {
	record := call.Record()
	if record == nil {
		return
	}
	s.mesh.mu.Lock()
	lost := s.mesh.lose != nil && s.mesh.lose(record)
	s.mesh.mu.Unlock()
	if lost {
		return
	}
	s.mesh.keep(&span.Span{Record: record, Epoch: s.start.Add(s.mesh.skew[s.name]).UnixNano()})
}

// keep stores a report.
func (m *mesh) keep(one *span.Span) {
	for i := range one.ID {
		one.ID[i] = byte(rand.Uint32()) //nolint:gosec // a test's span id
	}
	var data tracev1.TracesData
	if err := proto.Unmarshal(span.AppendRequest(nil, one.Service, span.Append(nil, one)), &data); err != nil {
		m.t.Error(err)
		return
	}
	if n, why := m.store.Add(&data); n > 0 {
		m.t.Errorf("%d spans refused: %s", n, why)
	}
}
