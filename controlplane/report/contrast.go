package report

import (
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// contrastText says which contrasts reach a finding, and which do not; empty if none were made.
func contrastText(f *campaignv1.Finding) string {
	var reach, not, unclear []string
	for _, c := range f.GetContrasts() {
		switch {
		case c.GetSame():
			reach = append(reach, c.GetBaseline())
		case saysNothing(c.GetTrial().GetVerdict()):
			unclear = append(unclear, c.GetBaseline())
		default:
			not = append(not, c.GetBaseline())
		}
	}
	if len(not) > 0 && len(reach)+len(unclear) == 0 {
		return "neither " + enumerate(not, "nor") + " reaches it: only at this moment"
	}
	var parts []string
	if len(reach) > 0 {
		parts = append(parts, enumerate(reach, "and")+verb(reach, " reaches it too", " reach it too"))
	}
	if len(not) > 0 {
		parts = append(parts, enumerate(not, "and")+verb(not, " does not", " do not"))
	}
	if len(unclear) > 0 {
		parts = append(parts, enumerate(unclear, "and")+" could not be judged")
	}
	return strings.Join(parts, "; ")
}

// otherDefects says which contrasts of a finding lead to another defect: one that the search
// itself may not have met, since contrasts are made for comparison and open no finding.
func otherDefects(f *campaignv1.Finding) (texts []string) {
	for _, c := range f.GetContrasts() {
		signature := c.GetTrial().GetSignature()
		if c.GetSame() || saysNothing(c.GetTrial().GetVerdict()) || signature.GetClass() != campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING {
			continue
		}
		texts = append(texts, c.GetBaseline()+" leads to another defect: "+outcome(signature))
	}
	return texts
}

// saysNothing is true of verdicts that leave open where a fault leads: it was not injected,
// or not into a sound world.
func saysNothing(v campaignv1.Verdict) bool {
	switch v {
	case campaignv1.Verdict_VERDICT_MISSED, campaignv1.Verdict_VERDICT_INVALID, campaignv1.Verdict_VERDICT_CONTAMINATED:
		return true
	}
	return false
}

func verb(subjects []string, one, many string) string {
	if len(subjects) == 1 {
		return one
	}
	return many
}

// enumerate joins words as people do: "a, b and c".
func enumerate(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}
