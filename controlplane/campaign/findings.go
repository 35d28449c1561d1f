package campaign

import (
	"cmp"
	"fmt"
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// isFinding says whether a trial's outcome is more than a clean refusal.
func isFinding(t *campaignv1.Trial) bool {
	switch t.GetSignature().GetClass() {
	case campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING, campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED:
		return true
	}
	return false
}

// findings are the outcomes found so far, in order of discovery; degraded ones among
// them.
type findings struct {
	list []*campaignv1.Finding
}

func (f *findings) find(s *campaignv1.OutcomeSignature) *campaignv1.Finding {
	for _, known := range f.list {
		if known.GetSignature().GetId() == s.GetId() {
			return known
		}
	}
	return nil
}

func (f *findings) has(s *campaignv1.OutcomeSignature) bool { return f.find(s) != nil }

// add makes a trial a witness of its outcome. It returns the finding if it is new.
func (f *findings) add(t *campaignv1.Trial) *campaignv1.Finding {
	if known := f.find(t.GetSignature()); known != nil {
		known.Witnesses = append(known.Witnesses, t)
		slices.SortStableFunc(known.Witnesses, smaller)
		return nil
	}
	letter := "D"
	if isFinding(t) {
		letter = "F"
	}
	number := 1
	for _, known := range f.list {
		if known.GetId()[:1] == letter {
			number++
		}
	}
	found := &campaignv1.Finding{
		Id: fmt.Sprintf("%s%d", letter, number), Signature: t.GetSignature(), Witnesses: []*campaignv1.Trial{t},
	}
	f.list = append(f.list, found)
	return found
}

// doubt makes a finding that did not reproduce a suspected one.
func (f *findings) doubt(s *campaignv1.OutcomeSignature, why string) {
	if known := f.find(s); known != nil {
		known.Signature.Class = campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED
		known.Signature.Summary += " (" + why + ")"
	}
}

// split returns the findings, and the outcomes that are merely degraded.
func (f *findings) split() (found, degraded []*campaignv1.Finding) {
	for _, known := range f.list {
		if known.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED {
			degraded = append(degraded, known)
		} else {
			found = append(found, known)
		}
	}
	return found, degraded
}

// smaller orders witnesses: fewer faults, then fewer atoms in their guards, then earlier
// calls.
func smaller(a, b *campaignv1.Trial) int {
	return cmp.Or(
		cmp.Compare(len(a.GetTfics()), len(b.GetTfics())),
		cmp.Compare(atoms(a), atoms(b)),
		cmp.Compare(ranks(a), ranks(b)),
	)
}

func atoms(t *campaignv1.Trial) int {
	return sum(t, func(x *tfiv1.Tfic) int { return len(atomsOf(x.GetGuard())) })
}

func ranks(t *campaignv1.Trial) int {
	return sum(t, func(x *tfiv1.Tfic) int { return int(x.GetTarget().GetK()) })
}

func sum(t *campaignv1.Trial, size func(*tfiv1.Tfic) int) int {
	n := 0
	for _, tfic := range t.GetTfics() {
		n += size(tfic)
	}
	return n
}
