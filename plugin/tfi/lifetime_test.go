package tfi_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestActivationEndsByTheOwnClock(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	m := newMesh(t, []string{"a", "b"}, target)
	x := m.request("a", "b", "GET", "/x", nil)
	m.now = time.Minute
	x.headers[tfi.EvidenceHeader] = "x"
	server, client := x.answer(200)
	if client.Action != tfi.ActionForward || len(server.Evidence) != 0 || x.client.Record().Resp.Seq != 0 {
		t.Errorf("an answer after the end: %+v %+v", server, client)
	}
	late := m.request("a", "b", "GET", "/x", headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: "x"})
	if late.client.Active() || late.client.Record() != nil || !late.dc.Strip || len(late.dc.Evidence) != 0 {
		t.Errorf("a request after the end: %+v", late.dc)
	}
	if m.counts["a"][tfi.MetricExpired] == 0 {
		t.Error("not counted")
	}
	if m.engines["a"].Live(m.key, time.Minute) || !m.engines["a"].Live(m.key, time.Minute-1) || m.engines["a"].Live(tfi.Key{}, 0) {
		t.Error("Live is wrong")
	}
}

func TestPushProlongsNothing(t *testing.T) {
	m := newMesh(t, []string{"a"})
	var fence tfi.Fence
	p := parse(t, m.policy("a"))
	fence.Admit(p, 0)
	if e := tfi.NewEngine(p, m.stores["a"], tfi.Options{Now: 0, Fence: &fence}); !e.Live(m.key, 59*time.Second) {
		t.Error("ended early")
	}
	fence.Admit(p, 40*time.Second)
	e := tfi.NewEngine(p, m.stores["a"], tfi.Options{Now: 40 * time.Second, Fence: &fence})
	if e.Live(m.key, time.Minute) {
		t.Error("a second reading prolonged it")
	}
}

func TestCallOutlivesItsPolicy(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	for name, tc := range map[string]struct {
		change func(p *tfiv1.Policy)
		want   tfi.Action
	}{
		"the same activation beside another": {func(p *tfiv1.Policy) {
			other := &tfiv1.Activation{Key: otherKey[:], Remaining: durationpb.New(time.Minute)}
			p.Activations = append([]*tfiv1.Activation{other}, p.Activations...)
			p.Version = "2"
		}, tfi.ActionAbort},
		"the key is gone": {func(p *tfiv1.Policy) { p.Activations = nil }, tfi.ActionForward},
		"another set by that name": {func(p *tfiv1.Policy) {
			p.Activations[0] = &tfiv1.Activation{Key: testKey[:], Remaining: durationpb.New(1e9)}
		}, tfi.ActionForward},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, []string{"a", "b"}, target)
			x := m.request("a", "b", "GET", "/x", nil)
			p := m.policy("a")
			tc.change(p)
			m.engines["a"] = tfi.NewEngine(parse(t, p), m.stores["a"], tfi.Options{Now: m.now})
			_, client := x.answer(200)
			if client.Action != tc.want {
				t.Errorf("%+v", client)
			}
			if got := x.client.Record().PolicyVersion; got != "1" {
				t.Errorf("reports version %q, and was judged by 1 first", got)
			}
			if _, ok := x.backAtApp[tfi.EvidenceHeader]; ok {
				t.Error("evidence reaches the application")
			}
		})
	}
}

func TestScopeTraceKeepsTracesApart(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ)
	m := newMesh(t, []string{"a", "b"})
	m.act.Tfics, m.act.Scope = []*tfiv1.Tfic{target}, tfiv1.Scope_SCOPE_TRACE
	m.engines["a"] = tfi.NewEngine(parse(t, m.policy("a")), m.stores["a"], tfi.Options{})
	for i := range uint64(3) {
		h := headers{"traceparent": "00-" + tfi.NewTraceID(m.key, i).String() + "-00000000000000aa-01"}
		for n, want := range []tfi.Action{tfi.ActionAbort, tfi.ActionForward} {
			if x := m.request("a", "b", "GET", "/x", h); x.dc.Action != want || int(x.client.Record().K) != n+1 {
				t.Errorf("trace %d, call %d: %v k %d", i, n+1, x.dc.Action, x.client.Record().K)
			}
		}
	}
	m.stores["a"].Sweep(m.now + 29*time.Second)
	if n := m.stores["a"].Len(); n != 3 {
		t.Errorf("%d states", n)
	}
	// A trace that is silent is soon forgotten, although its activation lives on.
	m.stores["a"].Sweep(m.now + 31*time.Second)
	if n := m.stores["a"].Len(); n != 0 {
		t.Errorf("%d states after half a minute of silence", n)
	}
}

func TestStateLostInTheMiddleOfACall(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	m := newMesh(t, []string{"a", "b"}, target)
	x := m.request("a", "b", "GET", "/x", nil)
	before := *x.client.Record()
	m.stores["a"].End(func(tfi.Key) bool { return false }, nil)
	y := m.request("a", "b", "GET", "/y", nil)
	_, client := x.answer(200)
	r := x.client.Record()
	if client.Action != tfi.ActionForward || !client.Strip || r.Kind != tfi.KindProblem || r.Problem != tfi.ProblemStateLost {
		t.Errorf("%+v %+v", client, r)
	}
	if r.Instance != before.Instance || r.Req != before.Req || r.Resp.Seq != 0 || y.client.Record().Instance == before.Instance {
		t.Errorf("record %+v", r)
	}
	if y.answer(200); y.client.Record().Resp.Seq != 2 {
		t.Errorf("the new state was disturbed: %+v", y.client.Record())
	}
}

// TestLostStateLeavesNoOther: an answer that finds its state gone begins none, of
// which an end without a tag would be reported.
func TestLostStateLeavesNoOther(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	x := m.request("a", "b", "GET", "/x", nil)
	over := func(tfi.Key) bool { return false }
	m.stores["a"].End(over, nil)
	x.answer(200)
	if n := m.stores["a"].Len(); n != 0 {
		t.Errorf("%d states", n)
	}
	m.stores["a"].End(over, func(s *tfi.State) { t.Errorf("the end of %+v is reported", s.End()) })
}

func TestStateLivesAsLongAsItsActivation(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	m.request("a", "b", "GET", "/x", nil)
	for _, service := range []string{"a", "b"} {
		m.stores[service].View(tfi.StateID{Key: m.key}, func(s *tfi.State) {
			if s.Deadline() != time.Minute {
				t.Errorf("%s: deadline %v", service, s.Deadline())
			}
		})
	}
}
