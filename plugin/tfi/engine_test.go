package tfi_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// headers is a message's headers.
type headers map[string]string

func (h headers) Header(name string) (string, bool) {
	v, ok := h[name]
	return v, ok
}

// mesh is a few services, each with one sidecar, under one activation.
type mesh struct {
	act     *tfiv1.Activation
	key     tfi.Key
	now     time.Duration
	engines map[string]*tfi.Engine
	stores  map[string]*tfi.Memory
	counts  map[string]*counts
}

type counts [tfi.Metrics]int

func (c *counts) Count(m tfi.Metric) { c[m]++ }

var testKey = tfi.Key{1, 2, 3, 4, 5, 6, 7}

func newMesh(t fataler, services []string, tfics ...*tfiv1.Tfic) *mesh {
	t.Helper()
	m := &mesh{
		key:     testKey,
		engines: map[string]*tfi.Engine{},
		stores:  map[string]*tfi.Memory{},
		counts:  map[string]*counts{},
		act: &tfiv1.Activation{
			Key:       testKey[:],
			Tfics:     tfics,
			Remaining: durationpb.New(time.Minute),
			Services:  services,
		},
	}
	seed := uint64(0)
	for _, s := range services {
		p := parse(t, m.policy(s))
		m.stores[s] = tfi.NewMemory(0)
		m.counts[s] = new(counts)
		m.engines[s] = tfi.NewEngine(p, m.stores[s], tfi.Options{
			Rand:     func() uint64 { seed++; return seed * 0x9e3779b97f4a7c15 },
			Observer: m.counts[s],
		})
	}
	return m
}

func (m *mesh) policy(service string) *tfiv1.Policy {
	p := &tfiv1.Policy{Service: service, Version: "1", Activations: []*tfiv1.Activation{m.act}}
	for _, s := range m.act.Services {
		p.Peers = append(p.Peers, &tfiv1.Peer{Service: s, Clusters: []string{"to-" + s}})
	}
	p.Peers = append(p.Peers, &tfiv1.Peer{Service: "leaf", Clusters: []string{"to-leaf"}, Leaf: true})
	return p
}

// fataler is what testing.TB and rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func parse(t fataler, p *tfiv1.Policy) *tfi.Policy {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tfi.ParsePolicy(b)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func traceparent(k tfi.Key) string {
	return "00-" + tfi.NewTraceID(k, 42).String() + "-00000000000000aa-01"
}

// hop is one call as both of its sidecars see it. from "" is a client outside.
type hop struct {
	m        *mesh
	from, to string
	client   tfi.Call
	server   tfi.Call
	headers  headers
	// atApp are the headers that the callee's application sees, backAtApp those that
	// the caller's application sees of the answer.
	atApp, backAtApp headers
	dc, ds           tfi.Decision
	path             string
	// arrived: the request came to the callee's sidecar.
	arrived bool
}

func forward(h headers, d tfi.Decision) headers {
	out := headers{}
	for k, v := range h {
		out[k] = v
	}
	switch {
	case len(d.Evidence) > 0:
		out[tfi.EvidenceHeader] = string(d.Evidence)
	case d.Strip:
		delete(out, tfi.EvidenceHeader)
	}
	if len(d.TraceParent) > 0 {
		out["traceparent"] = string(d.TraceParent)
	}
	return out
}

func (m *mesh) request(from, to, method, path string, h headers) *hop {
	if h == nil {
		h = headers{"traceparent": traceparent(m.key)}
	}
	x := &hop{m: m, from: from, to: to}
	m.now += time.Millisecond
	if from != "" {
		x.dc = m.engines[from].Request(&x.client, &tfi.Request{
			Role: tfi.RoleClient, Cluster: "to-" + to, Method: method, Path: path, Headers: h, Now: m.now,
		})
		h = forward(h, x.dc)
	}
	x.headers = h
	if e := m.engines[to]; e != nil && (x.dc.Action == tfi.ActionForward || x.dc.Action == tfi.ActionDelay) {
		m.now += time.Millisecond
		x.arrived = true
		x.ds = e.Request(&x.server, &tfi.Request{
			Role: tfi.RoleServer, Method: method, Path: path, Headers: h, Now: m.now,
		})
		h = forward(h, x.ds)
	}
	x.atApp = h
	return x
}

// answer sends the answer back; it returns the decisions of the two sidecars.
func (x *hop) answer(status int) (server, client tfi.Decision) {
	m := x.m
	h := headers{}
	switch e := m.engines[x.to]; {
	case x.ds.Action == tfi.ActionError:
		status = x.ds.TFIC.Fault.Error.HTTPStatus
		h = forward(h, x.ds)
	case e != nil:
		m.now += time.Millisecond
		server = e.Response(&x.server, &tfi.Response{Status: status, Headers: h, Now: m.now})
		h = forward(h, server)
		if server.Action == tfi.ActionError {
			status = server.TFIC.Fault.Error.HTTPStatus
		}
	}
	if x.from != "" {
		m.now += time.Millisecond
		client = m.engines[x.from].Response(&x.client, &tfi.Response{Status: status, Headers: h, Now: m.now})
		h = forward(h, client)
	}
	x.backAtApp = h
	return server, client
}

func atom(p *tfiv1.EventPredicate, count uint32) *tfiv1.Guard {
	return &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: p, Count: count}}}
}

func after(gs ...*tfiv1.Guard) *tfiv1.Guard {
	return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{
		Expr: &tfiv1.Guard_AllOf{AllOf: &tfiv1.AllOf{Guards: gs}},
	}}}
}

func event(observer string, role tfiv1.Role, peer, api string, phase tfiv1.Phase) *tfiv1.EventPredicate {
	return &tfiv1.EventPredicate{Op: &tfiv1.Op{Observer: observer, Role: role, Peer: peer, Api: api, Phase: phase}}
}

func abort(id, caller, callee, api string, phase tfiv1.Phase) *tfiv1.Tfic {
	return &tfiv1.Tfic{
		Id:     id,
		Target: &tfiv1.StaticConfiguration{Caller: caller, Callee: callee, Api: api, Phase: phase},
		Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
	}
}

func TestGuardedFaultFiresOnceItsGuardHolds(t *testing.T) {
	target := abort("t", "a", "c", "GET /x", tfiv1.Phase_PHASE_REQ)
	paid := event("b", tfiv1.Role_ROLE_SERVER, "a", "POST /pay", tfiv1.Phase_PHASE_RESP)
	paid.Outcome = tfiv1.Outcome_OUTCOME_SUCCESS
	target.Guard = after(atom(paid, 1))
	m := newMesh(t, []string{"a", "b", "c"}, target)

	early := m.request("a", "c", "GET", "/x?q=1", nil)
	if early.dc.Action != tfi.ActionForward {
		t.Fatalf("before the payment: %v", early.dc.Action)
	}
	if j := early.client.Record().Judged; len(j) != 1 || j[0].Reason != tfi.ReasonGuard {
		t.Errorf("judged %v, want one that its guard kept", j)
	}
	early.answer(200)

	pay := m.request("a", "b", "POST", "/pay", nil)
	if late := m.request("a", "c", "GET", "/x", nil); late.dc.Action != tfi.ActionForward {
		t.Fatal("fired before the payment's answer arrived")
	}
	pay.answer(200)
	late := m.request("a", "c", "GET", "/x", nil)
	if late.dc.Action != tfi.ActionAbort || late.dc.TFIC.ID != "t" {
		t.Fatalf("after the payment: %+v", late.dc)
	}
	if got := late.client.Record(); got.K != 3 || got.Fired == nil {
		t.Errorf("record %+v", got)
	}
	again := m.request("a", "c", "GET", "/x", nil)
	if again.dc.Action != tfi.ActionForward {
		t.Error("fired twice")
	}
	if j := again.client.Record().Judged; len(j) != 1 || j[0].Reason != tfi.ReasonSpent {
		t.Errorf("judged %v, want spent", j)
	}
}

func TestEvidenceNeverReachesAnApplication(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	x := m.request("a", "b", "GET", "/x", nil)
	if _, ok := x.headers[tfi.EvidenceHeader]; !ok {
		t.Fatal("no evidence between the sidecars")
	}
	if _, ok := x.atApp[tfi.EvidenceHeader]; ok {
		t.Error("the callee's application sees evidence")
	}
	server, client := x.answer(200)
	if len(server.Evidence) == 0 {
		t.Error("no evidence on the answer")
	}
	if len(client.Evidence) != 0 || !client.Strip {
		t.Errorf("answer to the application: %+v", client)
	}
	r := x.client.Record()
	s := x.server.Record()
	if r.Resp.From != s.Instance || r.Resp.FromSeq != s.Resp.Seq || s.Req.From != r.Instance || s.Req.FromSeq != r.Req.Seq {
		t.Errorf("sends and receives do not match:\n%+v\n%+v", r, s)
	}
	if string(s.Peer) != "a" || s.K != 1 || r.K != 1 {
		t.Errorf("server: peer %q k %d", s.Peer, s.K)
	}
}
