package campaign

import (
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestConclusive: a static injection that never happened, or that happened in a world
// in disorder, does not make a finding temporal-only.
func TestConclusive(t *testing.T) {
	says := map[campaignv1.Verdict]bool{
		campaignv1.Verdict_VERDICT_EFFECTIVE: true,
		campaignv1.Verdict_VERDICT_TOLERATED: true,
		campaignv1.Verdict_VERDICT_PREMATURE: true,
		campaignv1.Verdict_VERDICT_MULTIPLE:  true,
	}
	for number, name := range campaignv1.Verdict_name {
		if v := campaignv1.Verdict(number); conclusive(v) != says[v] {
			t.Errorf("%s: %v", name, conclusive(v))
		}
	}
}
