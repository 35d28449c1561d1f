package report

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// story builds a trial's events in the order in which a test tells them.
type story struct {
	events []*campaignv1.Event
}

const (
	clientRole = tfiv1.Role_ROLE_CLIENT
	serverRole = tfiv1.Role_ROLE_SERVER
	reqPhase   = tfiv1.Phase_PHASE_REQ
	respPhase  = tfiv1.Phase_PHASE_RESP
)

func (s *story) add(e *campaignv1.Event) *campaignv1.Event {
	e.Position = uint32(len(s.events) + 1)
	s.events = append(s.events, e)
	return e
}

// send records a message's sending, and receive its arrival.
func (s *story) send(caller, callee, api string, k uint32, p tfiv1.Phase, status uint32) *campaignv1.Event {
	op := &tfiv1.Op{Observer: caller, Peer: callee, Role: clientRole, Api: api, Phase: p}
	if p == respPhase {
		op.Observer, op.Peer, op.Role = callee, caller, serverRole
	}
	return s.add(&campaignv1.Event{Op: op, K: k, Status: status, Outcome: outcomeOf(api, p, status), Call: fmt.Sprint(caller, callee, api, k)})
}

func (s *story) receive(sent *campaignv1.Event) *campaignv1.Event {
	op := &tfiv1.Op{Observer: sent.Op.Peer, Peer: sent.Op.Observer, Role: 3 - sent.Op.Role, Api: sent.Op.Api, Phase: sent.Op.Phase}
	return s.add(&campaignv1.Event{Op: op, K: sent.K, Status: sent.Status, Outcome: sent.Outcome, Call: sent.Call, Cause: sent.Position})
}

func (s *story) both(caller, callee, api string, k uint32, p tfiv1.Phase, status uint32) *campaignv1.Event {
	return s.receive(s.send(caller, callee, api, k, p, status))
}

func outcomeOf(api string, p tfiv1.Phase, status uint32) tfiv1.Outcome {
	switch {
	case p == reqPhase:
		return tfiv1.Outcome_OUTCOME_UNSPECIFIED
	case isGRPC(api) && status == 0, !isGRPC(api) && status > 0 && status < 400:
		return tfiv1.Outcome_OUTCOME_SUCCESS
	}
	return tfiv1.Outcome_OUTCOME_FAILURE
}

const (
	dispatchAPI = "GET /dispatch"
	customerAPI = "GET /customer"
	driverAPI   = "driver.DriverService/FindNearest"
	routeAPI    = "GET /route"
)

// ride is a ride shop's dispatch: a customer, drivers, ten routes, three at a
// time. The fault strikes the answer of route call 4.
func ride(tfic string, status uint32) []*campaignv1.Event {
	s := &story{}
	entry := s.add(&campaignv1.Event{Op: &tfiv1.Op{Observer: "frontend", Role: serverRole, Api: dispatchAPI, Phase: reqPhase}, K: 1, Call: "entry"})
	s.both("frontend", "customer", customerAPI, 1, reqPhase, 0)
	s.both("frontend", "customer", customerAPI, 1, respPhase, 200)
	s.both("frontend", "driver", driverAPI, 1, reqPhase, 0)
	s.both("frontend", "driver", driverAPI, 1, respPhase, 0).Atoms = []string{"≥1 successful answer of driver.DriverService/FindNearest (frontend → driver) seen at driver"}
	var open []uint32
	answer := func() {
		k := open[0]
		open = open[1:]
		e := s.both("frontend", "route", routeAPI, k, respPhase, 200)
		if k == 3 {
			e.Atoms = []string{"≥3 successful answers of GET /route (frontend → route) seen at frontend"}
		}
		if k == 4 {
			e.Fired = tfic
		}
	}
	for k := uint32(1); k <= 10; k++ {
		if len(open) == 3 {
			answer()
		}
		sent := s.send("frontend", "route", routeAPI, k, reqPhase, 0)
		s.receive(sent)
		open = append(open, k)
	}
	for len(open) > 0 {
		answer()
	}
	s.add(&campaignv1.Event{
		Op: &tfiv1.Op{Observer: "frontend", Role: serverRole, Api: dispatchAPI, Phase: respPhase}, K: 1, Call: entry.Call,
		Status: status, Outcome: outcomeOf(dispatchAPI, respPhase, status),
	})
	return s.events
}

func tfic(id, callee, api string, k uint32, p tfiv1.Phase, kind string) *tfiv1.Tfic {
	t := &tfiv1.Tfic{Id: id, Target: &tfiv1.StaticConfiguration{Caller: "frontend", Callee: callee, Api: api, Phase: p, K: k}}
	if p == respPhase {
		t.Target.When = tfiv1.Outcome_OUTCOME_SUCCESS
	}
	t.Fault = &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}
	if kind == "error" {
		t.Fault = &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{}}}
	}
	return t
}

func atomOf(observer, peer, api string, role tfiv1.Role, n uint32) *tfiv1.Guard {
	return &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Count: n, Event: &tfiv1.EventPredicate{
		Op:      &tfiv1.Op{Observer: observer, Peer: peer, Role: role, Api: api, Phase: respPhase},
		Outcome: tfiv1.Outcome_OUTCOME_SUCCESS,
	}}}}
}

// hotrod is a report as a campaign on a ride shop gives it.
func hotrod() *campaignv1.CampaignReport {
	started := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	null := &campaignv1.OutcomeSignature{
		Answers: []string{"success"}, Shape: []string{"dispatch: $: was object, is null"},
		Class: campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING, Id: "0011223344556677",
		Summary: "HTTP 200 with body `null`; clean answers are an object with Driver and ETA",
	}
	refusal := &campaignv1.OutcomeSignature{
		Answers: []string{"refusal"}, Class: campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED, Id: "8899aabbccddeeff",
		Summary: "HTTP 500, refused with no leftover effect",
	}
	clean := &campaignv1.Answer{
		Step: "dispatch", Status: 200, Headers: map[string]string{"content-type": "application/json"},
		Body: []byte(`{"Driver":"T712345C","ETA":120000000000,"Stops":[{"at":"12,80"},{"at":"99,3"}]}`), Duration: durationpb.New(61 * time.Millisecond),
	}
	r := &campaignv1.CampaignReport{
		Spec: &campaignv1.CampaignSpec{Name: "hotrod", Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{{
			Name: "dispatch", Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Url: "http://127.0.0.1:8080/dispatch?customer=123"}},
		}}}},
		Start: timestamppb.New(started), Duration: durationpb.New(21 * time.Second), SearchDuration: durationpb.New(12340 * time.Millisecond),
		Version: "0.1.0",
		Sidecars: []*campaignv1.SidecarStatus{
			{Service: "customer", Instance: "customer-1", Proxy: "envoy 1.40.0", PolicyVersion: "17"},
			{Service: "driver", Instance: "driver-1", Proxy: "envoy 1.37.0", Nack: "refused: envoy 1.37.0 needs a gate in its bootstrap; run sequencefi envoy bootstrap"},
			{Service: "frontend", Instance: "frontend-1", Proxy: "envoy 1.40.0", PolicyVersion: "17"},
			{Service: "route", Instance: "route-1", Proxy: "envoy 1.40.0", PolicyVersion: "17"},
		},
	}
	finding := &campaignv1.Finding{Id: "F1", Signature: null, CleanAnswers: []*campaignv1.Answer{clean}, ReplayFile: "out/demo/findings/F1.yaml"}
	degraded := &campaignv1.Finding{Id: "D1", Signature: refusal, CleanAnswers: []*campaignv1.Answer{clean}}
	n := 0
	trial := func(t *tfiv1.Tfic, fault string, sig *campaignv1.OutcomeSignature, v campaignv1.Verdict) *campaignv1.Trial {
		n++
		out := &campaignv1.Trial{
			Id: fmt.Sprintf("%014x", 0xabc000+n), Tfics: []*tfiv1.Tfic{t}, Verdict: v, Signature: sig, Purpose: "candidate", Fault: fault,
			Start: timestamppb.New(started.Add(time.Duration(n) * time.Second)), Duration: durationpb.New(412 * time.Millisecond), Fired: []string{t.Id},
		}
		r.Trials = append(r.Trials, out)
		return out
	}
	coverage := &campaignv1.Coverage{Exhausted: true, Statement: "exhausted(size ≤ 1, faults error+abort, 2 guard variants, calls of one op represented by 3)"}
	for _, call := range []struct {
		callee, api string
		ks          []uint32
		calls       uint32
	}{{"customer", customerAPI, []uint32{1}, 1}, {"driver", driverAPI, []uint32{1}, 1}, {"route", routeAPI, []uint32{1, 4, 10}, 10}} {
		for _, p := range []tfiv1.Phase{reqPhase, respPhase} {
			for _, fault := range []string{"error", "abort"} {
				for _, k := range call.ks {
					t := tfic(fmt.Sprintf("frontend-%s-%s-k%d-%s-%s", call.callee, strings.NewReplacer(" /", "-", "/", ".").Replace(call.api), k, phase(p), fault), call.callee, call.api, k, p, fault)
					sig, into := refusal, degraded
					if call.callee == "route" {
						sig, into = null, finding
					}
					if p == respPhase {
						t.Guard = &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: &tfiv1.AllOf{Guards: []*tfiv1.Guard{
							atomOf("driver", "frontend", driverAPI, serverRole, 1), atomOf("frontend", "route", routeAPI, clientRole, k),
						}}}}}}
					}
					one := trial(t, fault, sig, campaignv1.Verdict_VERDICT_EFFECTIVE)
					one.Pattern = "post-effect"
					into.Witnesses = append(into.Witnesses, one)
					if into == finding {
						one.Answers = []*campaignv1.Answer{{
							Step: "dispatch", Status: 200, Headers: map[string]string{"content-type": "application/json"}, Body: []byte("null"), Duration: durationpb.New(74 * time.Millisecond),
						}}
						one.Events = ride(t.Id, 200)
					} else {
						one.Answers = []*campaignv1.Answer{{
							Step: "dispatch", Status: 500, Headers: map[string]string{"content-type": "text/plain; charset=utf-8"}, Body: []byte("Internal Server Error\n"), Duration: durationpb.New(9 * time.Millisecond),
						}}
						one.Events = cutShort(t)
					}
				}
				row := &campaignv1.CoverageRow{
					Caller: "frontend", Callee: call.callee, Api: call.api, Phase: p, Fault: fault, Calls: call.calls,
					Reached: uint32(len(call.ks)), Represented: call.calls - uint32(len(call.ks)),
				}
				coverage.Rows = append(coverage.Rows, row)
				coverage.Space += row.Calls
				coverage.Reached += row.Reached
				coverage.Represented += row.Represented
			}
		}
	}
	r.Coverage = coverage
	for i, w := range finding.Witnesses {
		if w.Tfics[0].Id == "frontend-route-GET-route-k4-resp-abort" {
			finding.Witnesses[0], finding.Witnesses[i] = w, finding.Witnesses[0]
		}
	}
	for _, name := range []string{"static-req", "static-phase", "static-k"} {
		same := name != "static-req"
		c := &campaignv1.Contrast{Baseline: name, Same: same, Trial: trial(tfic(name, "route", routeAPI, 0, respPhase, "abort"), "abort", null, campaignv1.Verdict_VERDICT_EFFECTIVE)}
		c.Trial.Purpose = "contrast"
		if !same {
			c.Trial.Signature = refusal
		}
		finding.Contrasts = append(finding.Contrasts, c)
	}
	tolerated := trial(tfic("frontend-customer-GET-customer-k2-req-error", "customer", customerAPI, 2, reqPhase, "error"), "error",
		&campaignv1.OutcomeSignature{Class: campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN, Answers: []string{"success"}}, campaignv1.Verdict_VERDICT_TOLERATED)
	tolerated.Duration = durationpb.New(300 * time.Millisecond)
	r.Findings, r.Degraded = []*campaignv1.Finding{finding}, []*campaignv1.Finding{degraded}
	return r
}

// cutShort is a dispatch that a fault on its first calls ends.
func cutShort(t *tfiv1.Tfic) []*campaignv1.Event {
	s := &story{}
	s.add(&campaignv1.Event{Op: &tfiv1.Op{Observer: "frontend", Role: serverRole, Api: dispatchAPI, Phase: reqPhase}, K: 1, Call: "entry"})
	target := t.GetTarget()
	if target.GetPhase() == reqPhase {
		s.send("frontend", target.GetCallee(), target.GetApi(), 1, reqPhase, 0).Fired = t.GetId()
	} else {
		ok := uint32(200)
		if isGRPC(target.GetApi()) {
			ok = 0
		}
		s.both("frontend", target.GetCallee(), target.GetApi(), 1, reqPhase, 0)
		s.both("frontend", target.GetCallee(), target.GetApi(), 1, respPhase, ok).Fired = t.GetId()
	}
	s.add(&campaignv1.Event{
		Op: &tfiv1.Op{Observer: "frontend", Role: serverRole, Api: dispatchAPI, Phase: respPhase}, K: 1, Call: "entry",
		Status: 500, Outcome: tfiv1.Outcome_OUTCOME_FAILURE,
	})
	return s.events
}

// busy has what hotrod has not: suspected and temporal-only findings, invalid
// and unreached parts, several steps, an interruption.
func busy() *campaignv1.CampaignReport {
	r := hotrod()
	r.Interrupted = "interrupt"
	r.Warnings = []string{"step <b>charges: clean answers are HTTP 404"}
	r.Spec.Name = "checkout"
	r.Coverage.Exhausted, r.Coverage.Statement = false, "incomplete(9, interrupt)"
	r.Coverage.Unreached = map[string]uint32{"interrupt": 6, "no sidecar at the caller": 3}
	r.Coverage.Rows[2].Unreached, r.Coverage.Rows[2].Reached = "the campaign was stopped", 0
	r.Coverage.Reached--
	r.Coverage.Space += 9
	r.Trials[1].Verdict, r.Trials[1].Reason, r.Trials[1].Repeats = campaignv1.Verdict_VERDICT_INVALID, "frontend-1: a gap in its reports (events 4 to 6)", 3
	r.Trials[1].Fired = nil

	f := r.Findings[0]
	f.TemporalOnly = true
	f.Signature = &campaignv1.OutcomeSignature{
		Answers: []string{"refusal", "success"}, Shape: []string{"show: $.items: was a list, is absent"}, Effects: []string{"+1 POST /charge at pay"},
		Probes: []string{"charges: $.count: was 1, is 2"}, Invariants: []string{"charged once"},
		Class: campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING, Id: "1111111111111111", Summary: "refused, but the charge stays: POST /charge succeeded twice",
	}
	last := f.Witnesses[len(f.Witnesses)-1]
	last.Signature, last.Reason = f.Signature, "unsteady: in another run the caller made such a call again"
	before := f.Witnesses[len(f.Witnesses)-2]
	before.Signature, before.Reason = f.Signature, "reproduced in 0 of 1 runs; one came to something else: as in clean runs"
	f.Witnesses = f.Witnesses[:len(f.Witnesses)-2]
	for _, w := range f.Witnesses[4:6] {
		w.Reason = "not checked: the budget left no run for it"
	}
	f.Witnesses[0].Answers = append(f.Witnesses[0].Answers, &campaignv1.Answer{Step: "show", Error: "timeout", Duration: durationpb.New(10 * time.Second)})
	f.CleanAnswers = append(f.CleanAnswers, &campaignv1.Answer{Step: "show", Status: 200, Body: []byte("\xff\x00binary")})
	for _, c := range f.Contrasts {
		c.Same = false
	}
	d := r.Degraded[0]
	w := d.Witnesses[len(d.Witnesses)-1]
	w.Reason = "unsteady: right after a clean run it came to something else: as in clean runs"
	d.Witnesses = d.Witnesses[:len(d.Witnesses)-1]
	s := &campaignv1.Finding{Id: "F2", Signature: &campaignv1.OutcomeSignature{
		Class: campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED, Summary: "an unknown gRPC method succeeded once more than in clean runs", Answers: []string{"success"},
	}, Witnesses: f.Witnesses[1:2], ReplayFile: "out/my dir/F2.yaml"}
	r.Findings = append(r.Findings, s)
	return r
}
