package campaign

import (
	"context"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/baseline"
)

// contrast injects the faults of a finding's smallest witness statically.
func (s *loop) contrast(ctx context.Context, found *campaignv1.Finding) error {
	witness := found.GetWitnesses()[0]
	sets := make([][]*tfiv1.Tfic, len(baseline.All))
	for i, b := range baseline.All {
		for _, t := range witness.GetTfics() {
			sets[i] = append(sets[i], b.Tfic(t))
		}
	}
	acts, err := s.act.pushNew(ctx, 1, sets...)
	if err != nil {
		return err
	}
	temporal := true
	for i, b := range baseline.All {
		if !s.well && (s.wary || i == 0) {
			if err := s.recover(ctx); err != nil {
				return err
			}
		}
		a, err := s.run(ctx, acts[i], sets[i], purposeContrast)
		if err != nil {
			return err
		}
		s.spent++
		s.assess(ctx, a)
		if err := s.keep(ctx, a); err != nil {
			return err
		}
		a.trial.Pattern, a.trial.Fault = b.Name, witness.GetFault()
		same := a.invalid == "" && a.trial.GetSignature().GetId() == found.GetSignature().GetId()
		temporal = temporal && a.invalid == "" && !same
		found.Contrasts = append(found.Contrasts, &campaignv1.Contrast{Baseline: b.Name, Trial: a.trial, Same: same})
		s.update(Update{Trial: a.trial})
	}
	found.TemporalOnly = temporal
	return nil
}
