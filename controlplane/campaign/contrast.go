package campaign

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/baseline"
)

// contrast injects the faults of a finding's smallest witness statically. What comes to the
// same injection is run once: a witness may be its own contrast, and without a phase to tell
// apart two baselines are one.
func (s *loop) contrast(ctx context.Context, found *campaignv1.Finding) error {
	witness := found.GetWitnesses()[0]
	made := []injection{{witness.GetTfics(), witness}}
	of := make([]int, len(baseline.All)) // baseline to its injection
	var wanted [][]*tfiv1.Tfic
	for i, b := range baseline.All {
		var set []*tfiv1.Tfic
		for _, t := range witness.GetTfics() {
			set = append(set, b.Tfic(t))
		}
		of[i] = slices.IndexFunc(made, func(m injection) bool { return equal(m.set, set) })
		if of[i] < 0 {
			of[i] = len(made)
			made = append(made, injection{set: set})
			wanted = append(wanted, set)
		}
	}
	acts, err := s.act.pushNew(ctx, 1, wanted...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrPush) {
		return err
	}
	if err != nil {
		s.warn("%s is not compared with static injection: %v", found.GetId(), err)
		return nil
	}
	found.TemporalOnly = true
	for i, b := range baseline.All {
		m := &made[of[i]]
		if m.trial == nil {
			a, err := s.static(ctx, acts[0], m.set)
			if err != nil {
				return err
			}
			acts = acts[1:]
			m.trial = a.trial
			m.trial.Pattern, m.trial.Fault = b.Name, witness.GetFault()
			s.update(Update{Trial: m.trial})
		}
		same := m.trial.GetSignature().GetId() == found.GetSignature().GetId()
		if same || !conclusive(m.trial.GetVerdict()) {
			found.TemporalOnly = false // reached, or not known not to be
		}
		found.Contrasts = append(found.Contrasts, &campaignv1.Contrast{Baseline: b.Name, Trial: m.trial, Same: same})
	}
	return nil
}

// injection is what a contrast injects, and the run in which it did; nil: not yet.
type injection struct {
	set   []*tfiv1.Tfic
	trial *campaignv1.Trial
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
	if err := s.restore(ctx); err != nil {
		return nil, err
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
