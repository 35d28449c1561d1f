package campaign

import (
	"context"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// steady sees whether the witnesses of a finding bring it about each time. The trials of a
// search come one after the other, and what one leaves behind, connections that were closed
// above all, is what the next begins with. So of each kind of broken connection the smallest
// witness is run once more right after a clean run, which leaves connections open. Where that
// comes to something else so is each of the others: an application may make one call again on
// purpose, and not the next one of the same op.
func (s *loop) steady(ctx context.Context, k *found) error {
	s.setAside(k)
	differs := make(map[string]bool) // by kind of break, whether one did; no entry: none was run
	for _, w := range slices.Clone(k.GetWitnesses()) {
		way := breakOf(w.GetTfics())
		before, ran := differs[way]
		if way == "" || s.isMended(k, w) {
			continue
		}
		if ran && !before {
			if s.mending.breaks[way] && !k.reproduced[w] {
				w.Reason = report.NotChecked + "such a fault was mended at another call, and came about again at one"
			}
			continue
		}
		if err := s.afterClean(ctx, k, w); err != nil {
			return err
		}
		differs[way] = before || !slices.Contains(k.GetWitnesses(), w)
	}
	k.checked = true
	s.weed(k)
	return s.prove(ctx, k)
}

// setAside takes away the witnesses whose kind of break was mended at another call, where the
// outcome has reproduced without them: nothing is lost, and one of ten calls that is repeated
// by a client only now and then would not bring it about each time. Where they are all there
// is, they stay, as the application may repeat that other call on purpose.
func (s *loop) setAside(k *found) {
	sure := func(w *campaignv1.Trial) bool { return k.reproduced[w] && !s.mending.breaks[breakOf(w.GetTfics())] }
	if !slices.ContainsFunc(k.GetWitnesses(), sure) {
		return
	}
	for _, w := range slices.Clone(k.GetWitnesses()) {
		if way := breakOf(w.GetTfics()); way != "" && s.mending.breaks[way] {
			s.findings.doubt(w, repeated)
		}
	}
}

// repeated says why a break may not bring its outcome about again.
const repeated = "unsteady: in another run the caller made such a call again, as HTTP clients do where the connection was not new"

// prove has the smallest witnesses that are left reproduce an outcome where those that did, or
// were to, are witnesses no more.
func (s *loop) prove(ctx context.Context, k *found) error {
	for range maxDoubts {
		if k.doubt == "" || k.isConfirmed() || len(k.GetWitnesses()) == 0 {
			return nil
		}
		if err := s.afterClean(ctx, k, k.GetWitnesses()[0]); err != nil {
			return err
		}
	}
	return nil
}

// unchecked says of witnesses that steady did not come to that they may be unsteady.
func unchecked(k *found) {
	for _, w := range k.GetWitnesses() {
		if breakOf(w.GetTfics()) != "" && !k.reproduced[w] && w.GetReason() == "" {
			w.Reason = report.NotChecked + "stopped before it was run again right after a clean run"
		}
	}
}

// weed takes witnesses away whose very faults were mended in another run.
func (s *loop) weed(k *found) {
	for _, w := range slices.Clone(k.GetWitnesses()) {
		if s.isMended(k, w) {
			s.findings.doubt(w, "unsteady: in another run the caller made the call again, as HTTP clients do where the connection was not new")
		}
	}
}

// isMended says whether a witness that has not reproduced its outcome was mended in another run.
func (s *loop) isMended(k *found, w *campaignv1.Trial) bool {
	return !k.reproduced[w] && s.mending.mends(w)
}

// afterClean runs a witness right after a clean run, and counts it for or against it.
func (s *loop) afterClean(ctx context.Context, k *found, w *campaignv1.Trial) error {
	if s.isSpent() {
		s.uncheck(k, w, "the budget left no run for it")
		return nil
	}
	if !s.well {
		ok, err := s.inspect(ctx)
		if err != nil {
			return err
		}
		if !ok {
			s.uncheck(k, w, "the control run before it "+cameTo(s.beside[len(s.beside)-1]))
			return nil
		}
	}
	a, err := s.oneMore(ctx, w.GetTfics(), w.GetPattern(), w.GetFault())
	if err != nil {
		return err
	}
	switch {
	case !speaks(a.trial):
		s.uncheck(k, w, "the run said nothing: "+a.trial.GetReason())
	case same(a.trial, w):
		w.Reason = ""
		s.findings.confirm(w)
	default:
		why := "it " + cameTo(a.trial)
		if isClean(a.trial) && s.mending.runs[a.trial.GetId()] {
			why = "the caller made the call again, as HTTP clients do where the connection was not new"
		}
		s.findings.doubt(w, "unsteady: right after a clean run "+why)
	}
	return nil
}

// uncheck says why it could not be seen whether a witness brings its outcome about each time:
// of each, and once of each kind of break as a warning.
func (s *loop) uncheck(k *found, w *campaignv1.Trial, why string) {
	told := slices.ContainsFunc(k.GetWitnesses(), func(other *campaignv1.Trial) bool {
		return strings.HasPrefix(other.GetReason(), report.NotChecked) && breakOf(other.GetTfics()) == breakOf(w.GetTfics())
	})
	w.Reason = report.NotChecked + why
	if !told {
		s.warn("it was not checked whether %s comes about each time by %s: %s", k.GetId(), report.Where(w.GetTfics()[0]), why)
	}
}

// same says whether a trial came to the outcome of a witness.
func same(t, w *campaignv1.Trial) bool {
	return t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && t.GetSignature().GetId() == w.GetSignature().GetId()
}

// cameTo says what a trial came to.
func cameTo(t *campaignv1.Trial) string {
	text := orElse(t.GetReason(), t.GetSignature().GetSummary())
	return "came to something else: " + text
}
