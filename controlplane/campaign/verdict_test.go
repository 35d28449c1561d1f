package campaign

import (
	"strings"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// TestVerdicts has a fault that was meant for the third call.
func TestVerdicts(t *testing.T) {
	tfic := &tfiv1.Tfic{Id: "f", Target: &tfiv1.StaticConfiguration{K: 3}, MaxInjections: 1}
	broken := campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING
	clean := campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN
	for _, tc := range []struct {
		name  string
		at    []uint32 // ranks of the calls at which it fired
		class campaignv1.OutcomeClass
		want  campaignv1.Verdict
		why   string
	}{
		{"effective", []uint32{3}, broken, campaignv1.Verdict_VERDICT_EFFECTIVE, ""},
		{"tolerated", []uint32{3}, clean, campaignv1.Verdict_VERDICT_TOLERATED, ""},
		{"premature", []uint32{2}, broken, campaignv1.Verdict_VERDICT_PREMATURE, "meant for call 3"},
		{"multiple", []uint32{3, 4}, broken, campaignv1.Verdict_VERDICT_MULTIPLE, "fired 2 times"},
		{"missed", nil, clean, campaignv1.Verdict_VERDICT_MISSED, "its target never came"},
		{"contaminated", nil, broken, campaignv1.Verdict_VERDICT_CONTAMINATED, "nothing fired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := &trace.Trial{}
			for _, k := range tc.at {
				run.Events = append(run.Events, trace.Event{K: k, Fired: "f"})
			}
			got, why := verdictOf(run, []*tfiv1.Tfic{tfic}, &campaignv1.OutcomeSignature{Class: tc.class})
			if got != tc.want || !strings.Contains(why, tc.why) {
				t.Errorf("%s %q, want %s %q", got, why, tc.want, tc.why)
			}
		})
	}
}
