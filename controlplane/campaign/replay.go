package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Replayed is what a replay came to.
type Replayed struct {
	// Runs that were made, those in which the fault was made as it was meant, and those of
	// these that came to the finding's signature. Only what was Injected says whether it can
	// be reproduced.
	Runs, Injected, Reproduced int
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
	text := fmt.Sprintf("reproduced in %d of %d runs", r.Reproduced, r.Injected)
	switch {
	case r.Runs > 0 && r.Injected == 0:
		return fmt.Sprintf("the fault was never injected in %s: %s", plural(r.Runs, "run"), r.mostly())
	case r.Reproduced == 0:
		text = "not reproduced in " + plural(r.Injected, "run")
	}
	if r.Injected < r.Runs {
		text += fmt.Sprintf("; in %d more the fault was not injected as it was meant", r.Runs-r.Injected)
	}
	return text
}

// mostly is what most of the runs came to that did not reproduce it.
func (r *Replayed) mostly() string {
	most := ""
	for _, what := range slices.Sorted(maps.Keys(r.Otherwise)) {
		if r.Otherwise[what] > r.Otherwise[most] {
			most = what
		}
	}
	return most
}

// Replay runs witnesses of a finding again, each runs times, against clean runs of its own, and
// returns what each came to, in their order. The config's spec and topology may differ from the
// file's in addresses only; where they are nil the file's are taken. ctx ending is an error here,
// and what was seen until then is returned with it.
//
// Errors: those of Run.
func Replay(ctx context.Context, config Config, file *campaignv1.Replay, witnesses []*campaignv1.ReplayWitness, runs int) ([]*Replayed, error) {
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
	if err := e.awaitFleet(ctx); err != nil {
		return nil, err
	}
	if err := e.recordClean(ctx, cleanRuns(e.Spec)); err != nil {
		return nil, err
	}
	r := &replay{env: e, signature: file.GetSignature().GetId(), runs: runs, planned: runs * len(witnesses)}
	e.update(Update{Stage: StageReplay, Planned: r.planned})
	var out []*Replayed
	for _, w := range witnesses {
		seen := &Replayed{Otherwise: make(map[string]int)}
		out = append(out, seen)
		if err := r.witness(ctx, w, seen); err != nil {
			return out, err
		}
	}
	e.update(Update{Stage: StageDone})
	return out, nil
}

// replay is one under way.
type replay struct {
	*env
	signature           string
	runs, planned, done int
}

// witness runs one witness, and a clean run after it.
func (r *replay) witness(ctx context.Context, w *campaignv1.ReplayWitness, out *Replayed) error {
	for out.Runs < r.runs {
		sets := make([][]*tfiv1.Tfic, min(roundSize, r.runs-out.Runs))
		for i := range sets {
			sets[i] = w.GetTfics()
		}
		acts, err := r.act.pushNew(ctx, 1, sets...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrPush) {
			return err
		}
		if err != nil {
			// Each run makes one of its own, and is invalid if that is refused as well.
			r.warn("%v", err)
			acts = make([]*activation, len(sets))
		}
		for _, act := range acts {
			if err := r.once(ctx, act, w, out); err != nil {
				return err
			}
		}
	}
	ok, control, err := r.control(ctx)
	if err != nil {
		return err
	}
	if !ok {
		out.Disturbed = orElse(control.trial.GetSignature().GetSummary(), control.trial.GetReason())
	}
	return nil
}

func (r *replay) once(ctx context.Context, act *activation, w *campaignv1.ReplayWitness, out *Replayed) error {
	a, err := r.run(ctx, act, w.GetTfics(), purposeReplay)
	if err != nil {
		return err
	}
	r.judge(ctx, a)
	a.trial.Pattern, a.trial.Fault = w.GetPattern(), w.GetFault()
	out.Runs++
	r.done++
	out.Trials = append(out.Trials, a.trial)
	if conclusive(a.trial.GetVerdict()) {
		out.Injected++
	}
	switch {
	case a.trial.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && a.trial.GetSignature().GetId() == r.signature:
		out.Reproduced++
	case a.trial.GetReason() != "":
		out.Otherwise[a.trial.GetReason()]++
	default:
		out.Otherwise[a.trial.GetSignature().GetSummary()]++
	}
	r.update(Update{Trial: a.trial, Done: r.done, Planned: r.planned})
	return r.keep(ctx, a)
}
