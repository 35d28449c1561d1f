package tfi_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestTrafficOfNoTrialIsLeftAlone(t *testing.T) {
	m := newMesh(t, []string{"a", "b"}, abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ))
	for name, h := range map[string]headers{
		"no headers":              nil,
		"no trace":                {},
		"a trace of no trial":     {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"evidence without a mark": {tfi.EvidenceHeader: "AQ"},
	} {
		for _, role := range []tfi.Role{tfi.RoleClient, tfi.RoleServer} {
			var c tfi.Call
			r := &tfi.Request{Role: role, Cluster: "to-b", Method: "GET", Path: "/x"}
			if h != nil {
				r.Headers = h
			}
			d := m.engines["a"].Request(&c, r)
			d2 := m.engines["a"].Response(&c, &tfi.Response{Status: 200, Headers: headers{}})
			m.engines["a"].Delivered(&c, 0)
			if d.Action != 0 || d.Strip || d.Evidence != nil || d2.Action != 0 || d2.Strip || c.Active() || c.Record() != nil {
				t.Errorf("%s, %v: %+v %+v", name, role, d, d2)
			}
		}
	}
	var c tfi.Call
	if d := m.engines["a"].Request(&c, &tfi.Request{Headers: headers{"traceparent": traceparent(m.key)}, Path: "/x"}); c.Active() || d.Action != 0 {
		t.Error("a request of no role is active")
	}
	if *m.counts["a"] != (counts{}) {
		t.Errorf("counted %v", *m.counts["a"])
	}
}

func TestUnknownKeyIsStripped(t *testing.T) {
	m := newMesh(t, []string{"a"})
	var c tfi.Call
	h := headers{"traceparent": traceparent(tfi.Key{9}), tfi.EvidenceHeader: "AQ"}
	d := m.engines["a"].Request(&c, &tfi.Request{Role: tfi.RoleServer, Method: "GET", Path: "/x", Headers: h})
	if !d.Strip || c.Active() {
		t.Errorf("request: %+v", d)
	}
	if d := m.engines["a"].Response(&c, &tfi.Response{Status: 200, Headers: h}); !d.Strip {
		t.Errorf("answer: %+v", d)
	}
}

func TestExemptPathIsOfNoTrial(t *testing.T) {
	m := newMesh(t, []string{"a"})
	p := m.policy("a")
	p.ExemptPaths = []string{"/health"}
	e := tfi.NewEngine(parse(t, p), m.stores["a"], tfi.Options{})
	var c tfi.Call
	for path, active := range map[string]bool{"/health": false, "/healthz?x": false, "/x/health": true} {
		e.Request(&c, &tfi.Request{Role: tfi.RoleServer, Method: "GET", Path: path, Headers: headers{"traceparent": traceparent(m.key)}})
		if c.Active() != active {
			t.Errorf("%s: active %v", path, c.Active())
		}
	}
	// Evidence that came along all the same does not reach the application, nor the caller.
	for _, role := range []tfi.Role{tfi.RoleClient, tfi.RoleServer} {
		h := headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: "AQ"}
		d := e.Request(&c, &tfi.Request{Role: role, Method: "GET", Path: "/health", Headers: h})
		if !d.Strip || d.Action != tfi.ActionForward || len(d.Evidence) > 0 || c.Record() != nil {
			t.Errorf("%v: request with evidence: %+v", role, d)
		}
		if d := e.Response(&c, &tfi.Response{Status: 200, Headers: h}); !d.Strip {
			t.Errorf("%v: answer with evidence: %+v", role, d)
		}
		h = headers{"traceparent": "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-01", tfi.EvidenceHeader: "AQ"}
		if d := e.Request(&c, &tfi.Request{Role: role, Method: "GET", Path: "/health", Headers: h}); d.Strip {
			t.Errorf("%v: a request of no trial is touched", role)
		}
	}
}

func TestEdgeRuleAddsTraceHeaders(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	p := m.policy("a")
	p.EdgeRules = []*tfiv1.EdgeRule{
		{Key: []byte("nowhere"), Identities: []*tfiv1.Identity{{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Prefix{Prefix: "/"}}}},
		{Key: m.key[:], Identities: []*tfiv1.Identity{
			{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Exact{Exact: "/buy"}},
			{Source: &tfiv1.Identity_Header{Header: "x-user"}, Match: &tfiv1.Identity_Exact{Exact: "7"}},
		}},
	}
	n := new(counts)
	m.engines["a"] = tfi.NewEngine(parse(t, p), m.stores["a"], tfi.Options{Observer: n})
	enter := func(path string, h headers) (*tfi.Call, tfi.Decision) {
		c := new(tfi.Call)
		d := m.engines["a"].Request(c, &tfi.Request{Role: tfi.RoleServer, Method: "GET", Path: path, Headers: h, Now: m.now})
		return c, d
	}
	c, d := enter("/buy?x=1", headers{"x-user": "7"})
	if !c.Active() || len(d.TraceParent) == 0 {
		t.Fatalf("no trace was added: %+v", d)
	}
	if got := string(d.TraceParent); !strings.HasPrefix(got, "00-5f1c01020304050607") || len(got) != 55 {
		t.Errorf("traceparent %q", got)
	}
	if c.Record().Parent != (tfi.SpanID{}) {
		t.Error("a parent that nobody has reported")
	}
	first := string(d.TraceParent)
	// What the application passes on belongs to the trial.
	next := m.request("a", "b", "GET", "/y", headers{"traceparent": first})
	if !next.server.Active() || next.server.Record().Trace != c.Record().Trace {
		t.Error("the added trace leads nowhere")
	}
	if _, d := enter("/buy", headers{"x-user": "7"}); string(d.TraceParent) == first {
		t.Error("two requests got one trace id")
	}
	for name, tc := range map[string]struct {
		path string
		h    headers
	}{
		"another user": {"/buy", headers{"x-user": "8"}},
		"another path": {"/sell", headers{"x-user": "7"}},
		"traced":       {"/buy", headers{"x-user": "7", "b3": "0"}},
		"badly traced": {"/buy", headers{"x-user": "7", "traceparent": "?"}},
	} {
		if c, d := enter(tc.path, tc.h); c.Active() || d.TraceParent != nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	m.now = time.Hour
	if c, _ := enter("/buy", headers{"x-user": "7"}); c.Active() || n[tfi.MetricExpired] != 0 {
		t.Error("a rule outlived its activation")
	}
}

func TestEvidenceGoesOnlyToKnownPeers(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	for to, want := range map[string]bool{"b": true, "leaf": false, "stranger": false} {
		x := m.request("a", to, "GET", "/x", headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: "from the application"})
		if _, got := x.headers[tfi.EvidenceHeader]; got != want {
			t.Errorf("to %s: evidence %v", to, got)
		}
		if !want && !x.dc.Strip {
			t.Errorf("to %s: what the application sent goes on", to)
		}
		if !x.client.Active() {
			t.Errorf("to %s: not active", to)
		}
	}
	x := m.request("a", "stranger", "GET", "/x", nil)
	if got := string(x.client.Record().Peer); got != "to-stranger" {
		t.Errorf("peer %q", got)
	}
	// A leaf has nothing to say, whatever it answers.
	leaf := m.request("a", "leaf", "GET", "/x", nil)
	y := m.request("a", "b", "GET", "/x", nil)
	d := m.engines["a"].Response(&leaf.client, &tfi.Response{
		Status: 200, Headers: headers{tfi.EvidenceHeader: string(y.dc.Evidence)}, Now: m.now,
	})
	if r := leaf.client.Record(); !d.Strip || r.Resp.From != 0 {
		t.Errorf("believed a leaf: %+v %+v", d, r.Resp)
	}
}

func TestAnswerCarriesEvidenceOnlyIfItsRequestDid(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	outside := m.request("", "b", "GET", "/x", nil)
	if server, _ := outside.answer(200); len(server.Evidence) != 0 {
		t.Error("evidence leaves the mesh")
	}
	if r := outside.server.Record(); len(r.Peer) != 0 || r.K != 1 || r.Req.From != 0 {
		t.Errorf("record %+v", r)
	}
	for name, evidence := range map[string]string{
		"malformed": "x", "empty": "", "oversized": strings.Repeat("A", 1<<20), "of another version": "Ag",
	} {
		x := m.request("", "b", "GET", "/x", headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: evidence})
		if _, ok := x.atApp[tfi.EvidenceHeader]; ok || !x.server.Active() {
			t.Errorf("%s: not stripped, or not active", name)
		}
		if server, _ := x.answer(200); len(server.Evidence) != 0 {
			t.Errorf("%s: answered", name)
		}
	}
	if got := m.counts["b"][tfi.MetricEvidenceDropped]; got != 4 {
		t.Errorf("counted %d dropped headers, want 4", got)
	}
}

// failing is a store that fails from some call on.
type failing struct {
	tfi.Store
	err  error
	left int
}

func (f *failing) Update(id tfi.StateID, u tfi.Updater) error {
	f.left--
	if f.left < 0 {
		u.Apply(new(tfi.State)) // as one that loses its race would
		return f.err
	}
	return f.Store.Update(id, u)
}

func TestStoreThatFailsIsNeverInTheWay(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ)
	target.MaxInjections = 100
	for name, tc := range map[string]struct {
		err     error
		problem string
		metric  tfi.Metric
	}{
		"full":   {tfi.ErrTableFull, tfi.ProblemTableFull, tfi.MetricTableFull},
		"broken": {errors.New("host call failed"), tfi.ProblemInternal, tfi.MetricInternal},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, []string{"a", "b"}, target)
			n := new(counts)
			store := &failing{Store: m.stores["a"], err: tc.err}
			m.engines["a"] = tfi.NewEngine(parse(t, m.policy("a")), store, tfi.Options{Observer: n})
			x := m.request("a", "b", "GET", "/x", headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: "x"})
			if x.dc.Action != tfi.ActionForward || len(x.dc.Evidence) != 0 || !x.dc.Strip || x.client.Active() {
				t.Errorf("%+v", x.dc)
			}
			r := x.client.Record()
			if r == nil || r.Kind != tfi.KindProblem || r.Problem != tc.problem || r.Key != m.key || r.Req.Seq != 0 || r.Fired != nil {
				t.Errorf("record %+v", r)
			}
			if n[tc.metric] != 1 || n[tfi.MetricEvent] != 0 || n[tfi.MetricAbort] != 0 {
				t.Errorf("counted %v", *n)
			}
			// And in the middle of a call.
			store.left = 1
			y := m.request("a", "b", "GET", "/y", nil)
			_, client := y.answer(200)
			if r := y.client.Record(); client.Action != tfi.ActionForward || !client.Strip || r.Kind != tfi.KindProblem || r.Resp.Seq != 0 || r.Req.Seq == 0 {
				t.Errorf("%+v %+v", client, r)
			}
		})
	}
}

func TestMeshRetry(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	m.request("a", "b", "GET", "/x", nil)
	x := m.request("a", "b", "GET", "/x", nil)
	m.request("a", "b", "GET", "/x", nil)
	var again tfi.Call
	m.engines["b"].Request(&again, &tfi.Request{Role: tfi.RoleServer, Method: "GET", Path: "/x", Headers: x.headers, Now: m.now})
	r := again.Record()
	if !r.Retry || r.K != 2 || r.Req.Seq != 4 || x.server.Record().Retry {
		t.Errorf("record %+v", r)
	}
}

func TestRanksAreBounded(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	for i := range 300 {
		x := m.request("a", "b", "GET", "/"+strings.Repeat("x", i), nil)
		want := uint32(1)
		if i >= 256 {
			want = 0
		}
		if c, s := x.client.Record(), x.server.Record(); c.K != want || s.K != want {
			t.Fatalf("op %d: k %d and %d, want %d", i, c.K, s.K, want)
		}
	}
}

func TestLongNamesAreCut(t *testing.T) {
	m := newMesh(t, []string{"a"})
	var c tfi.Call
	m.engines["a"].Request(&c, &tfi.Request{
		Role: tfi.RoleClient, Cluster: strings.Repeat("c", 1<<16), Method: "GET", Path: "/" + strings.Repeat("p", 1<<16),
		Headers: headers{"traceparent": traceparent(m.key)},
	})
	r := c.Record()
	if len(r.Peer) != 256 || len(r.Path) != 512 || len(r.API) != 1024 {
		t.Errorf("peer %d path %d api %d bytes", len(r.Peer), len(r.Path), len(r.API))
	}
}

func TestCallKeepsNothingOfTheCallBefore(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	m := newMesh(t, []string{"a", "b"}, target)
	x := m.request("a", "b", "GET", "/x", nil)
	x.answer(200)
	r := x.client.Record()
	r.Bytes, r.Chunks, r.Length = 1, 2, true
	r.ContentType = append(r.ContentType, "text/plain"...)
	m.engines["a"].Request(&x.client, &tfi.Request{
		Role: tfi.RoleClient, Cluster: "to-b", Method: "GET", Path: "/y", Headers: headers{"traceparent": traceparent(m.key)}, Now: m.now,
	})
	if r := x.client.Record(); r.Fired != nil || r.Bytes != 0 || len(r.ContentType) != 0 || r.Resp.Seq != 0 || len(r.Judged) != 0 || len(r.Known) != 0 {
		t.Errorf("record %+v", r)
	}
	x.client.Reset()
	if x.client.Active() || x.client.Record() != nil {
		t.Error("active after Reset")
	}
}

func TestManyWorkersFireOnce(t *testing.T) {
	const workers, rounds = 8, 100
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ)
	seen := event("a", tfiv1.Role_ROLE_CLIENT, "b", "GET /x", tfiv1.Phase_PHASE_REQ)
	target.Guard = after(atom(seen, 17))
	m := newMesh(t, []string{"a", "b"}, target)
	e := tfi.NewEngine(parse(t, m.policy("a")), m.stores["a"], tfi.Options{})
	var fired, first atomic.Int64
	ranks := make([]atomic.Int32, workers*rounds+1)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var c tfi.Call
			for range rounds {
				d := e.Request(&c, &tfi.Request{Role: tfi.RoleClient, Cluster: "to-b", Method: "GET", Path: "/x", Headers: headers{"traceparent": traceparent(m.key)}})
				ranks[c.Record().K].Add(1)
				if d.Action == tfi.ActionAbort {
					fired.Add(1)
					first.Store(int64(c.Record().K))
				}
			}
		})
	}
	wg.Wait()
	if fired.Load() != 1 || first.Load() != 17 {
		t.Errorf("fired %d times, at call %d", fired.Load(), first.Load())
	}
	for k := range ranks {
		if n := ranks[k].Load(); n != 1 && k > 0 {
			t.Errorf("%d calls have the rank %d", n, k)
		}
	}
	m.stores["a"].View(tfi.StateID{Key: m.key}, func(s *tfi.State) {
		if s.Known().Sum(0) != workers*rounds || s.Events() != workers*rounds {
			t.Errorf("%d counted, %d numbered", s.Known().Sum(0), s.Events())
		}
	})
}

func TestOneRequestWithManyWaysToItsTrial(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	for name, h := range map[string]headers{
		"b3 of 64 bits":       {"b3": "5f1c010203040506-00000000000000aa-1"},
		"x-b3-traceid":        {"x-b3-traceid": "5F1C01020304050607AAAAAAAAAAAAAA"},
		"uber-trace-id":       {"uber-trace-id": "5f1c010203040506:aa:0:1"},
		"tracestate":          {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "sfi=01020304050607"},
		"padded to 128 bits":  {"traceparent": "00-00000000000000005f1c010203040506-00000000000000aa-01"},
		"another trace of it": {"traceparent": "00-5f1c01020304050607bbbbbbbbbbbbbb-00000000000000aa-01"},
	} {
		x := m.request("a", "b", "GET", "/x", h)
		if !x.client.Active() || !x.server.Active() || x.client.Record().Key != m.key {
			t.Errorf("%s: not active", name)
		}
	}
	// All of them share one state.
	if n := m.stores["a"].Len(); n != 1 {
		t.Errorf("%d states", n)
	}
}

// TestReportsAreFoundByTheKey: what tracestate alone names is reported in a trace that
// follows from the key, and not in one that the application has started.
func TestReportsAreFoundByTheKey(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	const mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, tc := range map[string]struct {
		h    headers
		want string
	}{
		"tracestate beside a new trace":           {headers{"traceparent": mine, "tracestate": "sfi=01020304050607"}, "5f1c0102030405060700000000000000"},
		"tracestate beside another trial's trace": {headers{"traceparent": "00-5f1c99999999999999aaaaaaaaaaaaaa-b7ad6b7169203331-01", "tracestate": "sfi=01020304050607"}, "5f1c0102030405060700000000000000"},
		"tracestate alone":                        {headers{"tracestate": "sfi=01020304050607"}, "5f1c0102030405060700000000000000"},
		"tracestate beside the trial's trace":     {headers{"traceparent": traceparent(m.key), "tracestate": "sfi=01020304050607"}, tfi.NewTraceID(m.key, 42).String()},
		"64 bits":                                 {headers{"b3": "5f1c010203040506-00000000000000aa-1"}, "00000000000000005f1c010203040506"},
	} {
		x := m.request("a", "b", "GET", "/x", tc.h)
		for _, c := range []*tfi.Call{&x.client, &x.server} {
			if got := c.Record().Trace.String(); !c.Active() || got != tc.want {
				t.Errorf("%s: reported in trace %s, want %s", name, got, tc.want)
			}
		}
	}
	if parent := m.request("a", "b", "GET", "/x", headers{"traceparent": mine, "tracestate": "sfi=01020304050607"}).client.Record().Parent; parent == (tfi.SpanID{}) {
		t.Error("the application's span is not told")
	}
}

// TestStateOfATraceThatAnApplicationStarted: where each trace has a state of its own, one that
// an application has started has, too.
func TestStateOfATraceThatAnApplicationStarted(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	p := m.policy("a")
	p.Activations[0].Scope = tfiv1.Scope_SCOPE_TRACE
	m.engines["a"] = tfi.NewEngine(parse(t, p), m.stores["a"], tfi.Options{})
	for _, id := range []string{"0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"} {
		var c tfi.Call
		m.engines["a"].Request(&c, &tfi.Request{Role: tfi.RoleServer, Method: "GET", Path: "/x", Headers: headers{
			"traceparent": "00-" + id + "-b7ad6b7169203331-01", "tracestate": "sfi=01020304050607",
		}})
	}
	if n := m.stores["a"].Len(); n != 2 {
		t.Errorf("%d states, want 2", n)
	}
}
