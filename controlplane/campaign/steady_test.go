package campaign

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// reusing calls another service as an HTTP client does that keeps connections: a call that
// breaks one which was used before is made again, out of the same span. A failure is hidden
// behind a 200, and closes the connection; open says whether there is one.
func reusing(open *atomic.Bool) application {
	return func(w http.ResponseWriter, _ *http.Request, call caller) {
		status, _ := call(http.MethodGet, "route", "/route")
		if used := open.Swap(false); used && status == 0 {
			status, _ = call(http.MethodGet, "route", "/route")
		}
		if status != http.StatusOK {
			reply(w, nil)
			return
		}
		open.Store(true)
		reply(w, map[string]int{"n": 1})
	}
}

// oneFinding runs a campaign that must find one thing, and be sure of it.
func oneFinding(t *testing.T, m *mesh) (*campaignv1.CampaignReport, *campaignv1.Finding) {
	t.Helper()
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1", len(report.GetFindings()))
	}
	found := report.GetFindings()[0]
	if c := found.GetSignature().GetClass(); c != campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING {
		t.Errorf("the finding is %s: %s", c, found.GetSignature().GetSummary())
	}
	return report, found
}

// TestWitnessesAreSteady: what a fault leads to may depend on the run before. Such a trial is no
// witness, and is told apart.
func TestWitnessesAreSteady(t *testing.T) {
	var open atomic.Bool
	m := newMesh(t, map[string]application{"front": reusing(&open), "route": plain}, map[string][]string{"front": {"route"}})
	report, found := oneFinding(t, m)
	for _, w := range found.GetWitnesses() {
		if w.GetTfics()[0].GetFault().GetAbort() != nil {
			t.Errorf("%s is a witness, and the next run may mend it", ids(w))
		}
	}
	unsteady, mended := 0, 0
	for _, trial := range candidates(report) {
		if trial.GetTfics()[0].GetFault().GetAbort() == nil {
			continue
		}
		switch trial.GetVerdict() {
		case campaignv1.Verdict_VERDICT_EFFECTIVE:
			unsteady++
			if !strings.HasPrefix(trial.GetReason(), "unsteady: ") {
				t.Errorf("%s is effective because of %q", ids(trial), trial.GetReason())
			}
		case campaignv1.Verdict_VERDICT_TOLERATED:
			mended++
			if !strings.Contains(trial.GetReason(), "its caller made front -> route GET /route (call 1) again, as call 2") {
				t.Errorf("%s is tolerated because of %q", ids(trial), trial.GetReason())
			}
		}
	}
	if len(found.GetWitnesses()) != 2 || unsteady == 0 || unsteady+mended != 2 {
		t.Errorf("%d witnesses, %d unsteady, %d mended", len(found.GetWitnesses()), unsteady, mended)
	}
}

// thrice makes three equal calls, the first of them again if its connection breaks; failed
// answers in the place of one that failed for good.
func thrice(failed func(w http.ResponseWriter, status int)) application {
	return func(w http.ResponseWriter, _ *http.Request, call caller) {
		for k := 1; k <= 3; k++ {
			status, _ := call(http.MethodGet, "price", "/price")
			if status == 0 && k == 1 {
				status, _ = call(http.MethodGet, "price", "/price")
			}
			if status != http.StatusOK {
				failed(w, status)
				return
			}
		}
		reply(w, map[string]int{"n": 1})
	}
}

// TestRepeatedOnPurposeElsewhere: that a caller repeats one call says nothing of the next.
func TestRepeatedOnPurposeElsewhere(t *testing.T) {
	front := thrice(func(w http.ResponseWriter, status int) {
		if status == 0 {
			reply(w, nil)
			return
		}
		http.Error(w, "sorry", http.StatusBadGateway)
	})
	m := newMesh(t, map[string]application{"front": front, "price": plain}, map[string][]string{"front": {"price"}})
	report, found := oneFinding(t, m)
	struck := make(map[uint32]bool)
	for _, w := range found.GetWitnesses() {
		struck[w.GetTfics()[0].GetTarget().GetK()] = true
	}
	if len(struck) != 2 || struck[1] {
		t.Errorf("the witnesses strike the calls %v, want 2 and 3", struck)
	}
	for _, trial := range candidates(report) {
		if strings.HasPrefix(trial.GetReason(), "unsteady: ") {
			t.Errorf("%s is %s", ids(trial), trial.GetReason())
		}
	}
}

// TestBreaksAreSetAside: one of several calls is made again where it breaks a connection. Where
// errors bring the outcome about as well, breaks of the others are no witnesses. They are none
// either in a campaign that was stopped before it came to look at them: a solver of its own
// process is not asked any more then, whereas an embedded one answers without waiting.
func TestBreaksAreSetAside(t *testing.T) {
	for name, stopped := range map[string]bool{"to the end": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			front := thrice(func(w http.ResponseWriter, _ int) { reply(w, nil) })
			m := newMesh(t, map[string]application{"front": front, "price": plain}, map[string][]string{"front": {"price"}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := m.config(spec(fetch("GET", m.url("front"))))
			_, c.StartSolver = remoteSolver(t)
			c.Progress = progressFunc(func(u Update) {
				if stopped && u.Stage == StageSearch && u.Done > 0 && u.Done == u.Planned {
					cancel() // after the last trial
				}
			})
			report, err := Run(ctx, c)
			if err != nil || (report.GetInterrupted() != "") != stopped || len(report.GetFindings()) != 1 {
				t.Fatalf("%v, interrupted %q, %d findings", err, report.GetInterrupted(), len(report.GetFindings()))
			}
			found := report.GetFindings()[0]
			if c := found.GetSignature().GetClass(); c != campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING {
				t.Errorf("the finding is %s: %s", c, found.GetSignature().GetSummary())
			}
			for _, w := range found.GetWitnesses() {
				if w.GetTfics()[0].GetFault().GetError() == nil {
					t.Errorf("%s is a witness", ids(w))
				}
			}
			aside := 0
			for _, trial := range candidates(report) {
				if trial.GetReason() == repeated {
					aside++
				}
			}
			// Of calls 2 and 3, on the request and on the answer.
			if len(found.GetWitnesses()) != 6 || aside != 4 {
				t.Errorf("%d witnesses and %d set aside, want 6 and 4", len(found.GetWitnesses()), aside)
			}
		})
	}
}

// TestUnsteadyFindingIsSuspected: nothing is left that reproduces it.
func TestUnsteadyFindingIsSuspected(t *testing.T) {
	var open atomic.Bool
	m := newMesh(t, map[string]application{"front": reusing(&open), "route": plain}, map[string][]string{"front": {"route"}})
	s := spec(fetch("GET", m.url("front")))
	s.Faults = &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{
		{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
	}}
	c := m.config(s)
	// The first trial finds no connection that a clean run has left.
	c.Progress = progressFunc(func(u Update) {
		if u.Stage == StageSearch && u.Trial == nil && u.Done == 0 {
			open.Store(false)
		}
	})
	report := runCampaign(t, c)
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1", len(report.GetFindings()))
	}
	found := report.GetFindings()[0]
	if c := found.GetSignature().GetClass(); c != campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED || len(found.GetWitnesses()) == 0 ||
		!strings.Contains(found.GetSignature().GetSummary(), "reproduced in 0 of 1 runs; one came to something else: as in clean runs: its caller made") {
		t.Errorf("it is %s with %d witnesses: %s", c, len(found.GetWitnesses()), found.GetSignature().GetSummary())
	}
}

// TestBudgetLeavesWitnessesUnseen: a claim that could not be checked is said to be one.
func TestBudgetLeavesWitnessesUnseen(t *testing.T) {
	m := dispatchMesh(t)
	s := spec(fetch("GET", m.url("front")))
	s.Faults = &campaignv1.FaultModel{Callees: []string{"route"}}
	s.Budget.Trials = 3 // an error, its confirmation, and an abort
	warned := false
	c := m.config(s)
	c.Progress = progressFunc(func(u Update) {
		warned = warned || u.Warning && strings.Contains(u.Text, "whether F1 comes about each time by abort on the request of call 1")
	})
	report := runCampaign(t, c)
	if len(report.GetFindings()) != 1 || len(report.GetFindings()[0].GetWitnesses()) != 2 || !warned {
		t.Errorf("warned: %v, findings %v", warned, report.GetFindings())
	}
}

// TestWitnessThatCannotBeChecked: a world that is not well, and a run that says nothing, leave a
// witness as it is, and are told of.
func TestWitnessThatCannotBeChecked(t *testing.T) {
	for why, fail := range map[string]func(m *mesh, ill *atomic.Bool){
		"the control run before it": func(_ *mesh, ill *atomic.Bool) { ill.Store(true) },
		"reports are incomplete": func(m *mesh, _ *atomic.Bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lose = func(r *tfi.Record) bool { return r.Fired != nil && r.Fired.Fault.Kind == tfi.FaultAbort }
		},
	} {
		t.Run(why, func(t *testing.T) {
			var ill atomic.Bool
			m := dispatchMesh(t)
			m.sidecars["customer"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
				if ill.Load() {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				plain(w, r, call)
			}
			s := spec(fetch("GET", m.url("front")))
			s.Faults = &campaignv1.FaultModel{Callees: []string{"route"}}
			tried, warned := false, false
			c := m.config(s)
			c.ReportTimeout = 100 * time.Millisecond
			c.Progress = progressFunc(func(u Update) {
				tried = tried || u.Stage == StageSearch && u.Done > 0 && u.Done == u.Planned
				if tried && u.Trial.GetPurpose() == purposeReplay {
					fail(m, &ill) // after the first that was run once more
				}
				warned = warned || u.Warning && strings.Contains(u.Text, "whether F1 comes about each time by abort on the successful answer of call 1") && strings.Contains(u.Text, why)
				if warned {
					ill.Store(false)
				}
			})
			report := runCampaign(t, c)
			if len(report.GetFindings()) != 1 || !warned {
				t.Fatalf("%d findings, warned %v", len(report.GetFindings()), warned)
			}
			unchecked := 0
			for _, w := range report.GetFindings()[0].GetWitnesses() {
				if strings.HasPrefix(w.GetReason(), "not checked: ") && strings.Contains(w.GetReason(), why) {
					unchecked++
				}
			}
			if unchecked == 0 {
				t.Error("no witness says that it was not checked")
			}
		})
	}
}

// TestStoppedBeforeWitnessesWereSeen: what is held against a witness already counts in a
// campaign that was stopped, too, and what was not looked at is said to be so.
func TestStoppedBeforeWitnessesWereSeen(t *testing.T) {
	var broken atomic.Int32
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		status, _ := call(http.MethodGet, "route", "/route")
		if status == 0 && broken.Add(1) == 2 { // the connection was not new
			status, _ = call(http.MethodGet, "route", "/route")
		}
		if status != http.StatusOK {
			reply(w, nil)
			return
		}
		reply(w, map[string]int{"n": 1})
	}
	m := newMesh(t, map[string]application{"front": front, "route": plain}, map[string][]string{"front": {"route"}})
	abort := &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}
	s := spec(fetch("GET", m.url("front")))
	s.Faults = &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{
		{Name: "error", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 503}}}},
		{Name: "first", Fault: abort},
		{Name: "second", Fault: abort},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := m.config(s)
	c.Progress = progressFunc(func(u Update) {
		if u.Stage == StageSearch && u.Done > 0 && u.Done == u.Planned {
			cancel() // after the last trial
		}
	})
	report, err := Run(ctx, c)
	if err != nil || report.GetInterrupted() == "" || len(report.GetFindings()) != 1 {
		t.Fatalf("%v, interrupted %q, %d findings", err, report.GetInterrupted(), len(report.GetFindings()))
	}
	mended := make(map[tfiv1.Phase]bool)
	for _, trial := range candidates(report) {
		if trial.GetVerdict() == campaignv1.Verdict_VERDICT_TOLERATED {
			mended[trial.GetTfics()[0].GetTarget().GetPhase()] = true
		}
	}
	unsteady, unseen := 0, 0
	for _, trial := range candidates(report) {
		if trial.GetTfics()[0].GetFault().GetAbort() == nil || trial.GetVerdict() != campaignv1.Verdict_VERDICT_EFFECTIVE {
			continue
		}
		isWitness := slices.ContainsFunc(report.GetFindings()[0].GetWitnesses(), func(w *campaignv1.Trial) bool { return w.GetId() == trial.GetId() })
		if mended[trial.GetTfics()[0].GetTarget().GetPhase()] {
			unsteady++
			if isWitness || !strings.HasPrefix(trial.GetReason(), "unsteady: ") {
				t.Errorf("%s was mended once, and is a witness: %v; %s", ids(trial), isWitness, trial.GetReason())
			}
			continue
		}
		unseen++
		if !isWitness || !strings.HasPrefix(trial.GetReason(), "not checked: ") {
			t.Errorf("%s was not looked at, and is a witness: %v; %s", ids(trial), isWitness, trial.GetReason())
		}
	}
	if unsteady == 0 || unseen == 0 {
		t.Errorf("%d trials are unsteady and %d were not looked at, want some of both", unsteady, unseen)
	}
}

// TestConfirmedByAWitnessThatIsGone: a finding is not confirmed by what is its witness no more.
// What is left must reproduce it.
func TestConfirmedByAWitnessThatIsGone(t *testing.T) {
	for name, reproducible := range map[string]bool{"another reproduces it": true, "none does": false} {
		t.Run(name, func(t *testing.T) {
			var aborts, failures atomic.Int32
			front := func(w http.ResponseWriter, _ *http.Request, call caller) {
				status, _ := call(http.MethodGet, "route", "/route")
				switch {
				case status == 0 && aborts.Add(1) > 2:
					status, _ = call(http.MethodGet, "route", "/route")
				case status == http.StatusServiceUnavailable && failures.Add(1) > 1 && !reproducible:
					status = http.StatusOK
				}
				if status != http.StatusOK {
					reply(w, nil)
					return
				}
				reply(w, map[string]int{"n": 1})
			}
			m := newMesh(t, map[string]application{"front": front, "route": plain}, map[string][]string{"front": {"route"}})
			s := spec(fetch("GET", m.url("front")))
			s.Faults = &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{
				{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
				{Name: "error", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 503}}}},
			}}
			report := runCampaign(t, m.config(s))
			if len(report.GetFindings()) != 1 {
				t.Fatalf("%d findings, want 1", len(report.GetFindings()))
			}
			found, want := report.GetFindings()[0], campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED
			if reproducible {
				want = campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING
			}
			if c := found.GetSignature().GetClass(); c != want {
				t.Errorf("it is %s, want %s: %s", c, want, found.GetSignature().GetSummary())
			}
			for _, w := range found.GetWitnesses() {
				if reproducible && w.GetTfics()[0].GetFault().GetError() == nil {
					t.Errorf("%s is a witness", ids(w))
				}
			}
			again := 0
			for _, trial := range report.GetTrials() {
				if trial.GetPurpose() == purposeReplay && trial.GetTfics()[0].GetFault().GetError() != nil {
					again++
				}
			}
			if again != 1 {
				t.Errorf("the errors that were left were run again %d times, want once", again)
			}
		})
	}
}

// TestUnsteadyRefusalStaysDegraded: what is refused cleanly now and then is no more than that.
func TestUnsteadyRefusalStaysDegraded(t *testing.T) {
	var broken atomic.Int32
	refusing := func(w http.ResponseWriter, _ *http.Request, call caller) {
		status, _ := call(http.MethodGet, "route", "/route")
		if status == 0 && broken.Add(1)%2 == 0 { // every other time the connection is not new
			status, _ = call(http.MethodGet, "route", "/route")
		}
		if status != http.StatusOK {
			http.Error(w, "sorry", http.StatusBadGateway)
			return
		}
		reply(w, map[string]int{"n": 1})
	}
	m := newMesh(t, map[string]application{"front": refusing, "route": plain}, map[string][]string{"front": {"route"}})
	s := spec(fetch("GET", m.url("front")))
	s.Faults = &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{
		{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
		{Name: "again", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
	}}
	report := runCampaign(t, m.config(s))
	if len(report.GetFindings()) > 0 || len(report.GetDegraded()) != 1 || len(report.GetDegraded()[0].GetWitnesses()) == 0 {
		t.Fatalf("%d findings, degraded %v", len(report.GetFindings()), report.GetDegraded())
	}
	d := report.GetDegraded()[0]
	if c := d.GetSignature().GetClass(); c != campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED || strings.Contains(d.GetSignature().GetSummary(), "unsteady") {
		t.Errorf("it is %s: %s", c, d.GetSignature().GetSummary())
	}
	unsteady := 0
	for _, trial := range candidates(report) {
		if strings.HasPrefix(trial.GetReason(), "unsteady: ") {
			unsteady++
		}
	}
	if unsteady == 0 {
		t.Error("no trial is unsteady")
	}
}
