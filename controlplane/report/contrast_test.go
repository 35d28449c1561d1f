package report

import (
	"slices"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func TestContrastText(t *testing.T) {
	const (
		tolerated = campaignv1.Verdict_VERDICT_TOLERATED
		missed    = campaignv1.Verdict_VERDICT_MISSED
	)
	same := &campaignv1.Contrast{Same: true}
	other := &campaignv1.Contrast{Trial: &campaignv1.Trial{Verdict: tolerated}}
	unclear := &campaignv1.Contrast{Trial: &campaignv1.Trial{Verdict: missed}}
	for _, tc := range []struct {
		req, phase, k *campaignv1.Contrast
		want          string
	}{
		{other, other, same, "static-k reaches it too; static-req and static-phase do not"},
		{other, same, same, "static-phase and static-k reach it too; static-req does not"},
		{same, same, same, "static-req, static-phase and static-k reach it too"},
		{other, other, other, "neither static-req, static-phase nor static-k reaches it: only at this moment"},
		{unclear, other, other, "static-phase and static-k do not; static-req could not be judged"},
		{unclear, unclear, unclear, "static-req, static-phase and static-k could not be judged"},
	} {
		f := &campaignv1.Finding{}
		for i, c := range []*campaignv1.Contrast{tc.req, tc.phase, tc.k} {
			f.Contrasts = append(f.Contrasts, &campaignv1.Contrast{
				Baseline: []string{"static-req", "static-phase", "static-k"}[i], Trial: c.GetTrial(), Same: c.GetSame(),
			})
		}
		if got := contrastText(f); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	if got := contrastText(&campaignv1.Finding{}); got != "" {
		t.Errorf("no contrasts: %q", got)
	}
}

func TestOtherDefects(t *testing.T) {
	contrast := func(same bool, v campaignv1.Verdict, class campaignv1.OutcomeClass) *campaignv1.Contrast {
		return &campaignv1.Contrast{Baseline: "static-k", Same: same, Trial: &campaignv1.Trial{
			Verdict: v, Signature: &campaignv1.OutcomeSignature{Class: class, Summary: "a charge is left"},
		}}
	}
	const effective, finding = campaignv1.Verdict_VERDICT_EFFECTIVE, campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING
	f := &campaignv1.Finding{Contrasts: []*campaignv1.Contrast{
		contrast(true, effective, finding),
		contrast(false, campaignv1.Verdict_VERDICT_INVALID, finding),
		contrast(false, effective, campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED),
		contrast(false, effective, finding),
	}}
	want := []string{"static-k leads to another defect: a charge is left"}
	if got := otherDefects(f); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
