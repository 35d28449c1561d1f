package campaign

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestRecoveryNamesWhatIsWrong: a campaign says what it waits for, and does not wait for a
// sidecar longer than that had to connect.
func TestRecoveryNamesWhatIsWrong(t *testing.T) {
	for name, sidecar := range map[string]bool{"a sidecar is gone": true, "an application is": false} {
		t.Run(name, func(t *testing.T) {
			var dead atomic.Bool
			front := func(w http.ResponseWriter, _ *http.Request, call caller) {
				if dead.Load() {
					http.Error(w, "sorry", http.StatusBadGateway)
					return
				}
				if status, _ := call(http.MethodGet, "back", "/"); status != http.StatusOK {
					dead.Store(true)
				}
				reply(w, nil)
			}
			m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
			c := m.config(spec(fetch("GET", m.url("front"))))
			c.ReadyTimeout = 50 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var warnings []string
			c.Progress = progressFunc(func(u Update) {
				if u.Warning {
					warnings = append(warnings, u.Text)
				}
				if !sidecar && strings.Contains(u.Text, "a control run failed") {
					cancel()
				}
				if sidecar && dead.Load() {
					m.mu.Lock()
					m.lost["back"] = true
					m.mu.Unlock()
				}
			})
			_, err := Run(ctx, c)
			if got := errors.Is(err, ErrNotReady); got != sidecar || err != nil && !sidecar {
				t.Errorf("got %v", err)
			}
			said := strings.Join(warnings, "\n")
			if !strings.Contains(said, "a control run failed (Refused with HTTP 502") {
				t.Errorf("what the control run came to is not told: %s", said)
			}
			if strings.Contains(said, "back: no sidecar is connected") != sidecar {
				t.Errorf("the sidecar that is gone: %s", said)
			}
		})
	}
}
