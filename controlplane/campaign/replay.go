package campaign

import (
	"context"
	"fmt"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Replayed is what a replay came to.
type Replayed struct {
	// Runs that were made, and those that came to the finding's signature.
	Runs, Reproduced int
	// Otherwise says what the other runs came to, and how often.
	Otherwise map[string]int
	// Trials in order.
	Trials []*campaignv1.Trial
	// Disturbed says that the clean run after them was not clean: what was seen may be
	// the doing of an earlier run. Empty: it was.
	Disturbed string
}

// String says it in a sentence.
func (r *Replayed) String() string {
	text := fmt.Sprintf("reproduced in %d of %d runs", r.Reproduced, r.Runs)
	if r.Reproduced == 0 {
		text = "not reproduced in " + plural(r.Runs, "run")
	}
	return text
}

// Replay runs a finding's witness again, runs times, against clean runs of its own. The
// config's spec and topology may differ from the file's in addresses only; where they are nil
// the file's are taken. ctx ending is an error here, and what was seen until then is returned
// with it.
//
// Errors: those of Run.
func Replay(ctx context.Context, config Config, file *campaignv1.Replay, runs int) (*Replayed, error) {
	if config.Spec == nil {
		config.Spec = file.GetSpec()
	}
	if config.Topology == nil {
		t, err := topologyOf(file)
		if err != nil {
			return nil, err
		}
		config.Topology = t
	}
	e, err := newEnv(config)
	if err != nil {
		return nil, err
	}
	defer e.close()
	out := &Replayed{Otherwise: make(map[string]int)}
	if err := e.awaitFleet(ctx); err != nil {
		return out, err
	}
	if err := e.recordClean(ctx, cleanRuns(e.Spec)); err != nil {
		return out, err
	}
	e.update(Update{Stage: StageReplay, Planned: runs})
	for out.Runs < runs {
		sets := make([][]*tfiv1.Tfic, min(roundSize, runs-out.Runs))
		for i := range sets {
			sets[i] = file.GetTfics()
		}
		acts, err := e.act.pushNew(ctx, 1, sets...)
		if err != nil {
			return out, err
		}
		for _, act := range acts {
			if err := e.replayOnce(ctx, act, file, out, runs); err != nil {
				return out, err
			}
		}
	}
	ok, control, err := e.control(ctx)
	if err != nil {
		return out, err
	}
	if !ok {
		out.Disturbed = orElse(control.trial.GetSignature().GetSummary(), control.trial.GetReason())
	}
	e.update(Update{Stage: StageDone, Text: out.String()})
	return out, nil
}

func (e *env) replayOnce(ctx context.Context, act *activation, file *campaignv1.Replay, out *Replayed, runs int) error {
	a, err := e.run(ctx, act, file.GetTfics(), purposeReplay)
	if err != nil {
		return err
	}
	e.judge(ctx, a)
	a.trial.Pattern, a.trial.Fault = file.GetPattern(), file.GetFault()
	out.Runs++
	out.Trials = append(out.Trials, a.trial)
	switch {
	case a.trial.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && a.trial.GetSignature().GetId() == file.GetSignature().GetId():
		out.Reproduced++
	case a.trial.GetReason() != "":
		out.Otherwise[a.trial.GetReason()]++
	default:
		out.Otherwise[a.trial.GetSignature().GetSummary()]++
	}
	e.update(Update{Trial: a.trial, Done: out.Runs, Planned: runs})
	return e.keep(ctx, a)
}
