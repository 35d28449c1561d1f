package tfi_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func errorFault(status uint32) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: status}}}
}

func TestWhatIsNoAnswer(t *testing.T) {
	m := newMesh(t, []string{"a", "b"})
	x := m.request("a", "b", "GET", "/x", nil)
	e := m.engines["a"]
	for _, status := range []int{100, 103, 101} {
		e.Response(&x.client, &tfi.Response{Status: status, Headers: headers{}, Now: m.now})
		e.Delivered(&x.client, m.now)
	}
	if r := x.client.Record(); r.Resp.Seq != 0 || r.Delivered.Seq != 0 {
		t.Fatalf("an informational answer is an event: %+v", r)
	}
	e.Response(&x.client, &tfi.Response{Status: 200, Headers: headers{}, Now: m.now})
	first := x.client.Record().Resp
	e.Response(&x.client, &tfi.Response{Status: 500, Headers: headers{}, Now: m.now})
	e.Delivered(&x.client, m.now)
	delivered := x.client.Record().Delivered
	e.Delivered(&x.client, m.now)
	if r := x.client.Record(); r.Resp != first || r.Status != 200 || r.Delivered != delivered || delivered.Seq != first.Seq+1 {
		t.Errorf("record %+v", r)
	}
	// A broken call has an event, and nothing to deliver.
	y := m.request("a", "b", "GET", "/x", nil)
	e.Response(&y.client, &tfi.Response{Status: 103, Broken: true, Now: m.now})
	e.Delivered(&y.client, m.now)
	if r := y.client.Record(); r.Resp.Seq == 0 || !r.Broken || r.Status != 0 || r.Outcome != tfi.OutcomeFailure || r.Delivered.Seq != 0 {
		t.Errorf("record %+v", r)
	}
	// A callee delivers nothing: it is the caller's sidecar that sees it.
	y.answer(200)
	m.engines["b"].Delivered(&y.server, m.now)
	if r := y.server.Record(); r.Delivered.Seq != 0 {
		t.Errorf("record %+v", r)
	}
	z := m.request("a", "b", "GET", "/x", nil)
	if d := m.engines["b"].Response(&z.server, &tfi.Response{Broken: true, Now: m.now}); len(d.Evidence) != 0 || z.server.Record().Resp.Seq == 0 {
		t.Errorf("broken at the callee: %+v", d)
	}
	// gRPC has no informational statuses.
	var c tfi.Call
	e.Request(&c, &tfi.Request{Role: tfi.RoleClient, Cluster: "to-b", Method: "POST", Path: "/p.S/M", GRPC: true, Headers: headers{"traceparent": traceparent(m.key)}, Now: m.now})
	e.Response(&c, &tfi.Response{Status: 100, Headers: headers{}, Now: m.now})
	if r := c.Record(); r.Resp.Seq == 0 || r.Outcome != tfi.OutcomeFailure || string(r.API) != "p.S/M" {
		t.Errorf("record %+v", r)
	}
}

func TestMadeAnswerIsNoEventAtItsMaker(t *testing.T) {
	for _, phase := range []tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP} {
		target := abort("t", "a", "b", "GET /x", phase)
		target.Fault = errorFault(500)
		m := newMesh(t, []string{"a", "b"}, target)
		x := m.request("a", "b", "GET", "/x", nil)
		if phase == tfiv1.Phase_PHASE_RESP {
			x.answer(200)
		}
		before := *x.client.Record()
		// The made answer passes the filter that made it.
		d := m.engines["a"].Response(&x.client, &tfi.Response{Status: 500, Made: true, Headers: headers{}, Now: m.now})
		m.engines["a"].Delivered(&x.client, m.now)
		after := x.client.Record()
		if d.Action != tfi.ActionForward || after.Resp != before.Resp || after.Status != before.Status || after.Delivered.Seq != 0 {
			t.Errorf("%v: %+v %+v", phase, d, after)
		}
		if after.Fired == nil || after.Fired.Fault.Error.HTTPStatus != 500 {
			t.Errorf("%v: %+v", phase, after)
		}
	}
}

func TestFaultAtTheCalleeIsKnownToTheCaller(t *testing.T) {
	for _, phase := range []tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP} {
		target := abort("t", "a", "b", "GET /x", phase)
		target.Target.Placement = tfiv1.Placement_PLACEMENT_CALLEE
		target.Fault = errorFault(0)
		m := newMesh(t, []string{"a", "b"}, target)
		x := m.request("a", "b", "GET", "/x", nil)
		if x.dc.Action != tfi.ActionForward {
			t.Fatalf("%v: the caller's sidecar made it", phase)
		}
		made, status := x.ds, 503
		if phase == tfiv1.Phase_PHASE_RESP {
			made, _ = m.engines["b"].Response(&x.server, &tfi.Response{Status: 200, Headers: headers{}, Now: m.now}), 0
		}
		if made.Action != tfi.ActionError || len(made.Evidence) == 0 {
			t.Fatalf("%v: %+v", phase, made)
		}
		m.engines["a"].Response(&x.client, &tfi.Response{
			Status: status, Headers: headers{tfi.EvidenceHeader: string(made.Evidence)}, Now: m.now,
		})
		r := x.client.Record()
		if r.Outcome != tfi.OutcomeFailure || r.Resp.From != x.server.Record().Instance {
			t.Errorf("%v: %+v", phase, r)
		}
		m.stores["a"].View(tfi.StateID{Key: m.key}, func(s *tfi.State) {
			if s.Known().Sum(0) != 1 {
				t.Errorf("%v: the caller does not know that it fired", phase)
			}
		})
	}
}

func TestCallerOutsideTheMesh(t *testing.T) {
	target := abort("t", "", "a", "GET /x", tfiv1.Phase_PHASE_RESP)
	target.Target.Placement = tfiv1.Placement_PLACEMENT_CALLEE
	target.Target.When = tfiv1.Outcome_OUTCOME_SUCCESS
	m := newMesh(t, []string{"a", "b"}, target)
	if server, _ := m.request("b", "a", "GET", "/x", nil).answer(200); server.Action != tfi.ActionForward {
		t.Error("fired at a call from inside")
	}
	x := m.request("", "a", "GET", "/x", nil)
	if server, _ := x.answer(500); server.Action != tfi.ActionForward || x.server.Record().Judged[0].Reason != tfi.ReasonWhen {
		t.Errorf("fired at a failure: %+v", x.server.Record().Judged)
	}
	if server, _ := m.request("", "a", "GET", "/x", nil).answer(204); server.Action != tfi.ActionAbort {
		t.Error("did not fire")
	}
}

func TestDecisionsOfEachFault(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  *tfiv1.Fault
		action tfi.Action
		delay  time.Duration
		metric tfi.Metric
		sent   bool
	}{
		{"delay", &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(70 * time.Millisecond)}}}}, tfi.ActionDelay, 70 * time.Millisecond, tfi.MetricDelay, true},
		{"error", errorFault(0), tfi.ActionError, 0, tfi.MetricError, false},
		{"abort", &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}, tfi.ActionAbort, 0, tfi.MetricAbort, false},
		{"drop", &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{}}}, tfi.ActionDrop, 30 * time.Second, tfi.MetricDrop, false},
		{"drop for a while", &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(time.Second)}}}, tfi.ActionDrop, time.Second, tfi.MetricDrop, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ)
			target.Fault = tc.fault
			m := newMesh(t, []string{"a", "b"}, target)
			d := m.request("a", "b", "GET", "/x", nil).dc
			if d.Action != tc.action || d.Delay != tc.delay || d.TFIC == nil || (len(d.Evidence) > 0) != tc.sent {
				t.Errorf("%+v", d)
			}
			if n := m.counts["a"]; n[tc.metric] != 1 || n[tfi.MetricMatch] != 1 || n[tfi.MetricEvent] != 1 {
				t.Errorf("counted %v", *n)
			}
		})
	}
}

func TestFaultLetGo(t *testing.T) {
	target := abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	m := newMesh(t, []string{"a", "b"}, target)
	x := m.request("a", "b", "GET", "/x", nil)
	m.engines["a"].LetGo(&x.client)
	if x.client.Record().LetGo {
		t.Error("let go what had not fired")
	}
	x.answer(200)
	m.engines["a"].LetGo(&x.client)
	m.engines["a"].LetGo(&x.client)
	m.engines["a"].Delivered(&x.client, m.now)
	if r := x.client.Record(); !r.LetGo || r.Fired == nil || r.Delivered.Seq == 0 {
		t.Errorf("record %+v", r)
	}
	if m.counts["a"][tfi.MetricLetGo] != 1 {
		t.Errorf("counted %v", *m.counts["a"])
	}
	if _, client := m.request("a", "b", "GET", "/x", nil).answer(200); client.Action != tfi.ActionForward {
		t.Error("fired again")
	}
}
