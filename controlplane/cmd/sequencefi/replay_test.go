package main

import (
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestEventsOfAGuardAreJoined: that all of them must have come is said, and numbers agree.
func TestEventsOfAGuardAreJoined(t *testing.T) {
	atom := func(count uint32) *tfiv1.Guard {
		op := &tfiv1.Op{Observer: "shop", Role: tfiv1.Role_ROLE_CLIENT, Peer: "pay", Api: "POST /pay", Phase: tfiv1.Phase_PHASE_RESP}
		return &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: &tfiv1.EventPredicate{Op: op, Outcome: tfiv1.Outcome_OUTCOME_SUCCESS}, Count: count}}}
	}
	tfics := []*tfiv1.Tfic{{Guard: &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: &tfiv1.AllOf{Guards: []*tfiv1.Guard{atom(1), atom(2)}}}}}}
	var plan, replay strings.Builder
	showPlan(&plan, &campaign.Planned{Candidates: []*solverv1.Candidate{{Tfics: tfics}}}, true)
	(&app{stdout: &replay}).showWitness(&campaignv1.ReplayWitness{Tfics: tfics})
	for command, text := range map[string]string{"plan": plan.String(), "replay": replay.String()} {
		for _, want := range []string{" after ≥1 successful answer of POST /pay", " and ≥2 successful answers of POST /pay"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s does not say %q:\n%s", command, want, text)
			}
		}
	}
}

func TestExitCodeOfAReplay(t *testing.T) {
	for name, tc := range map[string]struct {
		seen []*campaign.Replayed
		code int
		says string
	}{
		"each time":        {[]*campaign.Replayed{{Runs: 3, Injected: 3, Reproduced: 3}}, exitFindings, "reproduced in 3 of 3 runs"},
		"never":            {[]*campaign.Replayed{{Runs: 3, Injected: 3}}, exitNothing, "not reproduced in 3 runs"},
		"now and then":     {[]*campaign.Replayed{{Runs: 3, Injected: 3, Reproduced: 1}}, exitIncomplete, "reproduced in 1 of 3 runs"},
		"each that counts": {[]*campaign.Replayed{{Runs: 3, Injected: 2, Reproduced: 2}}, exitFindings, "reproduced in 2 of 2 runs; in 1 more"},
		"never injected": {
			[]*campaign.Replayed{{Runs: 3, Otherwise: map[string]int{"odd": 1, "x: its\ttarget never came": 2}}},
			exitIncomplete, "the fault was never injected in 3 runs: x: its target never came",
		},
		"one of two never injected": {
			[]*campaign.Replayed{{Runs: 1, Injected: 1, Reproduced: 1}, {Runs: 1, Otherwise: map[string]int{"x": 1}}},
			exitIncomplete, "never injected in 1 run: x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replayCode(tc.seen); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
			var out strings.Builder
			for _, r := range tc.seen {
				(&app{stdout: &out}).showReplay(r)
			}
			if !strings.Contains(out.String(), tc.says) {
				t.Errorf("it says %q, want %q", out.String(), tc.says)
			}
		})
	}
}
