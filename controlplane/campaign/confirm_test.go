package campaign

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestConfirmationThatSaysNothing: a run that was to reproduce a finding, and whose reports got
// lost, or which found the system in disorder before anything was injected, is nothing that
// speaks against it.
func TestConfirmationThatSaysNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		// lost reports of faults in that run; ill: the system is in disorder in it; always:
		// the same goes for what follows.
		lost, ill, always bool
		class             campaignv1.OutcomeClass
		reason            string // of the witness; empty: none
	}{
		{
			// Another witness reproduces it.
			name: "reports lost", lost: true, class: campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING,
			reason: "not checked: a run that was to reproduce it said nothing: reports are incomplete",
		},
		{name: "in disorder", ill: true, class: campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING},
		{
			name: "reports lost for good", lost: true, always: true, class: campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED,
			reason: "not checked: the run said nothing: reports are incomplete",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ill atomic.Bool
			front := func(w http.ResponseWriter, _ *http.Request, call caller) {
				if ill.Swap(false) {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				if status, _ := call(http.MethodGet, "back", "/"); status != http.StatusOK {
					reply(w, nil)
					return
				}
				reply(w, map[string]int{"n": 1})
			}
			m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
			s := spec(fetch("GET", m.url("front")))
			s.Faults = &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{
				{Name: "error", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 503}}}},
			}}
			c := m.config(s)
			c.ReportTimeout = 100 * time.Millisecond
			controls, silent := 0, 0
			lose := func(on bool) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.lose = func(r *tfi.Record) bool { return on && r.Fired != nil }
			}
			c.Progress = progressFunc(func(u Update) {
				switch u.Trial.GetPurpose() {
				case purposeControl:
					// What follows the first one is the run that is to reproduce the finding.
					if controls++; controls == 1 {
						ill.Store(test.ill)
						lose(test.lost)
					}
				case purposeReplay:
					if v := u.Trial.GetVerdict(); v == campaignv1.Verdict_VERDICT_INVALID || v == campaignv1.Verdict_VERDICT_CONTAMINATED {
						silent++
					}
					lose(test.lost && test.always)
				}
			})
			report := runCampaign(t, c)
			if len(report.GetFindings()) != 1 || silent == 0 {
				t.Fatalf("%d findings, %d runs said nothing", len(report.GetFindings()), silent)
			}
			found := report.GetFindings()[0]
			if got := found.GetSignature().GetClass(); got != test.class {
				t.Errorf("it is %s: %s", got, found.GetSignature().GetSummary())
			}
			suspected := strings.Contains(found.GetSignature().GetSummary(), "(a run that was to reproduce it said nothing: reports are incomplete")
			if suspected != test.always {
				t.Errorf("the summary is %s", found.GetSignature().GetSummary())
			}
			witnesses := 0
			for _, trial := range candidates(report) {
				if trial.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE {
					witnesses++
				}
			}
			if len(found.GetWitnesses()) != witnesses || witnesses == 0 {
				t.Errorf("%d witnesses, want all %d", len(found.GetWitnesses()), witnesses)
			}
			if got := found.GetWitnesses()[0].GetReason(); !strings.HasPrefix(got, test.reason) || (got == "") != (test.reason == "") {
				t.Errorf("of its first witness it says %q, want %q", got, test.reason)
			}
		})
	}
}
