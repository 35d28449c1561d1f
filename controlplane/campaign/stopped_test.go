package campaign

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestStoppedCampaignClaimsNothing: what was pending when a campaign was stopped is no finding,
// since no control run, or only one that failed, had followed it.
func TestStoppedCampaignClaimsNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		// sick: the first fault leaves the system broken for good.
		sick bool
		// stop says whether to stop at an update, and stopEarly to do so in the run after the
		// first fault.
		stop      func(Update) bool
		stopEarly bool
		verdict   campaignv1.Verdict
		summary   string // of the one that is suspected; empty: none is
	}{
		{
			name: "after a control run that failed", sick: true,
			stop: func(u Update) bool {
				return u.Trial.GetPurpose() == purposeControl && u.Trial.GetVerdict() == campaignv1.Verdict_VERDICT_CONTAMINATED
			},
			verdict: campaignv1.Verdict_VERDICT_CONTAMINATED,
		},
		{
			name: "before the control run", sick: true, stopEarly: true,
			verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, summary: "stopped before a control run could confirm it",
		},
		{
			name: "before the reproduction",
			stop: func(u Update) bool {
				return u.Trial.GetPurpose() == purposeControl && u.Trial.GetVerdict() == campaignv1.Verdict_VERDICT_TOLERATED
			},
			verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, summary: "stopped before it was confirmed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var faulted atomic.Bool
			front := func(w http.ResponseWriter, _ *http.Request, call caller) {
				was := faulted.Load()
				if was && test.stopEarly {
					cancel()
				}
				status, _ := call(http.MethodGet, "back", "/")
				if status != http.StatusOK {
					faulted.Store(true)
				}
				if status != http.StatusOK || was && test.sick {
					reply(w, nil)
					return
				}
				reply(w, map[string]int{"n": 1})
			}
			m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
			c := m.config(spec(fetch("GET", m.url("front"))))
			c.Progress = progressFunc(func(u Update) {
				if test.stop != nil && test.stop(u) {
					cancel()
				}
			})
			report, err := Run(ctx, c)
			if err != nil || report.GetInterrupted() == "" {
				t.Fatalf("%v, interrupted %q", err, report.GetInterrupted())
			}
			tried := candidates(report)
			if len(tried) != 1 || tried[0].GetVerdict() != test.verdict || !strings.HasPrefix(tried[0].GetReason(), orElse(test.summary, "the control run after it failed")) {
				t.Errorf("tried %v", tried)
			}
			found := report.GetFindings()
			if test.summary == "" {
				if len(found)+len(report.GetDegraded()) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("%d findings, want 1 that is suspected", len(found))
			}
			s := found[0].GetSignature()
			if s.GetClass() != campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED || !strings.HasSuffix(s.GetSummary(), "("+test.summary+")") {
				t.Errorf("%s: %s", s.GetClass(), s.GetSummary())
			}
		})
	}
}
