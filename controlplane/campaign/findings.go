package campaign

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sequencefi/sequencefi/controlplane/report"
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
	list []*found
}

// found is an outcome with its witnesses, and with what is held against it.
type found struct {
	*campaignv1.Finding
	// reproduced are the witnesses that came to it again in the last run that asked them to.
	reproduced map[*campaignv1.Trial]bool
	// unsteady are trials that came to it and might not do so again, open is how many could
	// not be seen to, and doubt is why the last of either might not.
	unsteady []*campaignv1.Trial
	open     int
	doubt    string
	// checked: the search came to see whether its witnesses bring it about each time.
	checked bool
	// settled: nothing is held against it any more, the signature says what was.
	settled bool
	// more is the end of the summary that tells it from another outcome's.
	more string
}

// isConfirmed says whether there is a witness that reproduced the outcome.
func (k *found) isConfirmed() bool { return len(k.reproduced) > 0 }

// maxDoubts is how many witnesses of an outcome may fail to reproduce it, or say nothing,
// before no more are asked to.
const maxDoubts = 3

func (f *findings) find(s *campaignv1.OutcomeSignature) *found {
	for _, known := range f.list {
		if known.GetSignature().GetId() == s.GetId() {
			return known
		}
	}
	return nil
}

// awaitsProof says whether a witness of the outcome should reproduce it.
func (f *findings) awaitsProof(s *campaignv1.OutcomeSignature) bool {
	known := f.find(s)
	return known == nil || !known.isConfirmed() && len(known.unsteady)+known.open < maxDoubts
}

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
	made := &campaignv1.Finding{
		Id: fmt.Sprintf("%s%d", letter, number), Signature: t.GetSignature(), Witnesses: []*campaignv1.Trial{t},
	}
	f.list = append(f.list, &found{Finding: made, reproduced: make(map[*campaignv1.Trial]bool)})
	return made
}

// confirm takes note that a witness reproduced its outcome.
func (f *findings) confirm(w *campaignv1.Trial) {
	if known := f.find(w.GetSignature()); known != nil {
		known.reproduced[w] = true
	}
}

// doubt takes a witness away that might not bring the outcome about again.
func (f *findings) doubt(t *campaignv1.Trial, why string) {
	t.Reason = why
	known := f.find(t.GetSignature())
	if known == nil {
		return
	}
	known.Witnesses = slices.DeleteFunc(known.Witnesses, func(w *campaignv1.Trial) bool { return w == t })
	delete(known.reproduced, t)
	known.unsteady = append(known.unsteady, t)
	known.doubt = why
}

// leaveOpen keeps a witness of which could not be seen whether it reproduces its outcome. The
// outcome is suspected until one does.
func (f *findings) leaveOpen(t *campaignv1.Trial, why string) {
	t.Reason = report.NotChecked + why
	if known := f.find(t.GetSignature()); known != nil {
		known.open++
		known.doubt = why
	}
}

// isDegraded says whether the outcome is merely a clean refusal.
func (k *found) isDegraded() bool {
	return k.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED
}

// settle makes an outcome that nothing reproduced a suspected one.
func (k *found) settle() {
	degraded := k.isDegraded()
	if k.settled || k.doubt == "" || (k.isConfirmed() || degraded) && len(k.Witnesses) > 0 {
		return
	}
	k.settled = true
	if len(k.Witnesses) == 0 {
		k.Witnesses = k.unsteady
		slices.SortStableFunc(k.Witnesses, smaller)
	}
	if degraded {
		return // it was refused all the same, which is all that is said of it
	}
	k.Signature.Class = campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED
	k.Signature.Summary += " (" + k.doubt + ")"
}

// all returns the outcomes that are more than degraded, as they stand.
func (f *findings) all() []*campaignv1.Finding {
	var out []*campaignv1.Finding
	for _, known := range f.list {
		if !known.isDegraded() {
			out = append(out, known.Finding)
		}
	}
	return out
}

// split returns the findings, and the outcomes that are merely degraded.
func (f *findings) split() (more, degraded []*campaignv1.Finding) {
	for _, known := range f.list {
		known.shorten()
		known.settle()
		known.title()
	}
	f.tellApart()
	for _, known := range f.list {
		if known.isDegraded() {
			degraded = append(degraded, known.Finding)
		}
	}
	return f.all(), degraded
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
