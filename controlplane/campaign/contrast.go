package campaign

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/baseline"
)

// contrast injects the faults of a finding's smallest witness statically. Where that is what
// the witness did anyway, the witness is its own contrast.
func (s *loop) contrast(ctx context.Context, found *campaignv1.Finding) error {
	witness := found.GetWitnesses()[0]
	sets := make([][]*tfiv1.Tfic, len(baseline.All))
	var wanted [][]*tfiv1.Tfic
	for i, b := range baseline.All {
		for _, t := range witness.GetTfics() {
			sets[i] = append(sets[i], b.Tfic(t))
		}
		if !equal(sets[i], witness.GetTfics()) {
			wanted = append(wanted, sets[i])
		}
	}
	acts, err := s.act.pushNew(ctx, 1, wanted...)
	if err != nil {
		return err
	}
	found.TemporalOnly = true
	for i, b := range baseline.All {
		trial := witness
		if !equal(sets[i], witness.GetTfics()) {
			a, err := s.static(ctx, acts[0], sets[i])
			if err != nil {
				return err
			}
			acts = acts[1:]
			trial = a.trial
			trial.Pattern, trial.Fault = b.Name, witness.GetFault()
			s.update(Update{Trial: trial})
		}
		same := trial.GetSignature().GetId() == found.GetSignature().GetId()
		if same || !conclusive(trial.GetVerdict()) {
			found.TemporalOnly = false // reached, or not known not to be
		}
		found.Contrasts = append(found.Contrasts, &campaignv1.Contrast{Baseline: b.Name, Trial: trial, Same: same})
	}
	return nil
}

// conclusive says whether a contrast with the verdict tells what its fault leads to:
// it was injected, and into a sound world.
func conclusive(v campaignv1.Verdict) bool {
	switch v {
	case campaignv1.Verdict_VERDICT_EFFECTIVE, campaignv1.Verdict_VERDICT_TOLERATED,
		campaignv1.Verdict_VERDICT_PREMATURE, campaignv1.Verdict_VERDICT_MULTIPLE:
		return true
	}
	return false
}

// static makes a run of a contrast, in a sound world if there is reason to doubt it.
func (s *loop) static(ctx context.Context, act *activation, set []*tfiv1.Tfic) (*attempt, error) {
	if s.wary && !s.well {
		if err := s.recover(ctx); err != nil {
			return nil, err
		}
	}
	a, err := s.run(ctx, act, set, purposeContrast)
	if err != nil {
		return nil, err
	}
	s.spent++
	s.assess(ctx, a)
	return a, s.keep(ctx, a)
}

func equal(a, b []*tfiv1.Tfic) bool {
	return slices.EqualFunc(a, b, func(x, y *tfiv1.Tfic) bool { return proto.Equal(x, y) })
}
