package campaign

import (
	"fmt"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// verdictOf classifies a valid trial, with the reason for people.
func verdictOf(t *trace.Trial, tfics []*tfiv1.Tfic, signature *campaignv1.OutcomeSignature) (campaignv1.Verdict, string) {
	clean := signature.GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN
	fired := make(map[string]int)
	for _, id := range t.Fired() {
		fired[id]++
	}
	var missed []string
	for _, tfic := range tfics {
		n := fired[tfic.GetId()]
		switch most := int(max(1, tfic.GetMaxInjections())); {
		case n == 0:
			missed = append(missed, tfic.GetId())
		case n > most:
			return campaignv1.Verdict_VERDICT_MULTIPLE, fmt.Sprintf("%s fired %d times, %d allowed", tfic.GetId(), n, most)
		}
	}
	if len(missed) > 0 {
		// Nothing was injected, and still the outcome is not that of clean runs.
		if len(fired) == 0 && !clean {
			return campaignv1.Verdict_VERDICT_CONTAMINATED, "nothing fired, and yet the outcome is not a clean one"
		}
		return campaignv1.Verdict_VERDICT_MISSED, whyMissed(t, missed)
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.LetGo {
			return campaignv1.Verdict_VERDICT_MISSED, "the fault was given up on " + c.Describe() + ": the answer could not be held back"
		}
	}
	if early := whyPremature(t, tfics); early != "" {
		return campaignv1.Verdict_VERDICT_PREMATURE, early
	}
	if clean {
		return campaignv1.Verdict_VERDICT_TOLERATED, ""
	}
	return campaignv1.Verdict_VERDICT_EFFECTIVE, ""
}

// whyPremature says which fault struck a call before the one that it was meant for.
// Where k is enforced, or an identity picks the call, none can.
func whyPremature(t *trace.Trial, tfics []*tfiv1.Tfic) string {
	for i := range t.Events {
		e := &t.Events[i]
		for _, tfic := range tfics {
			target := tfic.GetTarget()
			if e.Fired == tfic.GetId() && e.K != 0 && e.K < target.GetK() && len(target.GetIdentities()) == 0 {
				return fmt.Sprintf("%s fired at call %d, meant for call %d", e.Fired, e.K, target.GetK())
			}
		}
	}
	return ""
}

// whyMissed sums up the reasons that sidecars gave.
func whyMissed(t *trace.Trial, missed []string) string {
	reasons := map[string]string{
		"when":     "the answers ended otherwise than it wants",
		"k":        "only calls of another rank came",
		"guard":    "its guard was not true when its target came",
		"spent":    "it had been used up",
		"instance": "it had fired at another instance",
		"other":    "another fault fired there",
	}
	var out []string
	for _, id := range missed {
		var why []string
		for i := range t.Calls {
			for _, judged := range t.Calls[i].Judged {
				reason, ok := strings.CutPrefix(judged, id+"=")
				if text := orElse(reasons[reason], reason); ok && !slices.Contains(why, text) {
					why = append(why, text)
				}
			}
		}
		if len(why) == 0 {
			why = []string{"its target never came"}
		}
		slices.Sort(why)
		out = append(out, id+": "+strings.Join(why, ", "))
	}
	return strings.Join(out, "; ")
}
