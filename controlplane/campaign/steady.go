package campaign

import (
	"context"
	"slices"

	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// steady sees whether the witnesses of a finding bring it about each time. The trials of a
// search come one after the other, and what one leaves behind, connections that were closed
// above all, is what the next begins with. So of each kind of broken connection the smallest
// witness is run once more right after a clean run, which leaves connections open.
func (s *loop) steady(ctx context.Context, found *campaignv1.Finding) error {
	seen := make(map[string]bool)
	for _, w := range slices.Clone(found.GetWitnesses()) {
		way := breakOf(w.GetTfics())
		if way == "" || seen[way] || s.mending.breaks[way] {
			continue
		}
		seen[way] = true
		if s.isSpent() {
			s.warn("the budget left no run to see whether %s comes about each time by %s", found.GetId(), report.Where(w.GetTfics()[0]))
			continue
		}
		if err := s.afterClean(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// weed takes witnesses away whose faults were mended in another run.
func (s *loop) weed(found *campaignv1.Finding) {
	for _, w := range slices.Clone(found.GetWitnesses()) {
		if s.mending.mends(w) {
			s.findings.doubt(w, "unsteady: in another run the caller made such a call again, as HTTP clients do where the connection was not new")
		}
	}
}

// afterClean runs a witness right after a clean run.
func (s *loop) afterClean(ctx context.Context, w *campaignv1.Trial) error {
	if !s.well {
		if ok, err := s.inspect(ctx); err != nil || !ok {
			return err
		}
	}
	a, err := s.oneMore(ctx, w.GetTfics(), w.GetPattern(), w.GetFault())
	if err != nil {
		return err
	}
	if a.invalid == "" && !same(a.trial, w) && !s.mending.mends(w) {
		s.findings.doubt(w, "unsteady: right after a clean run it "+cameTo(a.trial))
	}
	return nil
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
