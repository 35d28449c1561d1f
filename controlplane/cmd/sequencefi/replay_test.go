package main

import (
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
)

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
