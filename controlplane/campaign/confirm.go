package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// assess judges an attempt, and the world by it.
func (s *loop) assess(ctx context.Context, a *attempt) {
	s.judge(ctx, a)
	s.well = a.invalid == "" && isClean(a.trial)
	s.sick = s.sick && !s.well
}

// inspect makes a control run and says whether the world is well.
func (s *loop) inspect(ctx context.Context) (bool, error) {
	ok, a, err := s.control(ctx)
	if err != nil {
		return false, err
	}
	s.beside = append(s.beside, a.trial)
	s.well, s.sick = ok, !ok
	s.wary = s.wary || !ok
	return ok, nil
}

// settle runs a control for the pending trials.
func (s *loop) settle(ctx context.Context) error {
	if len(s.pending) == 0 {
		return nil
	}
	ok, err := s.inspect(ctx)
	if err != nil {
		return err
	}
	if ok {
		return s.release(ctx)
	}
	return s.retryCarefully(ctx)
}

// release lets the pending trials count.
func (s *loop) release(ctx context.Context) error {
	for len(s.pending) > 0 {
		n := s.pending[0]
		s.pending = s.pending[1:]
		if err := s.finish(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// confirm has a new finding reproduced, with a clean control run before and after.
func (s *loop) confirm(ctx context.Context, n *entry) error {
	ok, err := s.inspect(ctx)
	if err != nil {
		s.pending = append(s.pending, n)
		return err
	}
	if !ok {
		s.pending = append(s.pending, n)
		return s.retryCarefully(ctx)
	}
	if err := s.release(ctx); err != nil {
		return err
	}
	n.controlled = true
	s.pending = []*entry{n} // should the campaign be stopped now
	wanted := orDefault(s.Spec.GetBudget().GetConfirmations(), defaultConfirmations)
	seen, err := s.reproduce(ctx, n, wanted)
	if err != nil {
		return err
	}
	if !s.well {
		if ok, err = s.inspect(ctx); err != nil {
			return err
		}
	}
	if seen.done == 0 && !n.well || !ok {
		// Whether it was the fault's doing cannot be told yet.
		return s.retryCarefully(ctx)
	}
	if err := s.release(ctx); err != nil {
		return err
	}
	switch {
	case seen.silent != "":
		s.findings.leaveOpen(n.trial(), "a run that was to reproduce it said nothing: "+seen.silent)
	case seen.done < wanted:
		s.findings.doubt(n.trial(), fmt.Sprintf("reproduced in %d of %d runs; one %s", seen.done, wanted, seen.instead))
	default:
		s.findings.confirm(n.trial())
	}
	return nil
}

// reproduction is what came of running a candidate again.
type reproduction struct {
	// done runs came to the same.
	done int
	// instead is what the run came to that did not, and silent is why the last one said
	// nothing, neither for nor against; empty: there is no such run.
	instead, silent string
}

// reproduce runs a candidate again and counts how often it comes to the same. It stops at
// the first run that does not, and says what that one came to: what comes after it says little.
// A run that says nothing does not count. Where that was the world's doing it is repeated once
// the world is well; one whose reports were incomplete has been repeated already.
func (s *loop) reproduce(ctx context.Context, n *entry, runs int) (reproduction, error) {
	var seen reproduction
	for repeats := 0; seen.done < runs; {
		a, err := s.oneMore(ctx, n.candidate.GetTfics(), n.candidate.GetPattern(), n.candidate.GetFault())
		if err != nil {
			return seen, err
		}
		switch {
		case same(a.trial, n.trial()):
			seen.done++
			continue
		case speaks(a.trial):
			seen.instead = cameTo(a.trial)
			return seen, nil
		}
		seen.silent = a.trial.GetReason()
		if a.invalid != "" || repeats == maxRepeats || s.isSpent() {
			return seen, nil
		}
		if err := s.recover(ctx); err != nil || !s.well {
			return seen, err
		}
		seen.silent = ""
		repeats++
	}
	return seen, nil
}

// speaks says whether a run tells what its fault leads to. One in which the fault found no
// target does, too: it does not come about each time.
func speaks(t *campaignv1.Trial) bool {
	return conclusive(t.GetVerdict()) || t.GetVerdict() == campaignv1.Verdict_VERDICT_MISSED
}

// oneMore runs faults that have been tried before, and judges the run.
func (s *loop) oneMore(ctx context.Context, tfics []*tfiv1.Tfic, pattern, fault string) (*attempt, error) {
	a, err := s.run(ctx, nil, tfics, purposeReplay)
	if err != nil {
		return nil, err
	}
	s.spent++
	s.assess(ctx, a)
	a.trial.Pattern, a.trial.Fault = pattern, fault
	s.beside = append(s.beside, a.trial)
	s.update(Update{Trial: a.trial})
	return a, s.keep(ctx, a)
}

// retryCarefully runs the pending trials again, each between two control runs of its
// own, since one of them, or something else, left the world in disorder.
func (s *loop) retryCarefully(ctx context.Context) error {
	for len(s.pending) > 0 {
		// One that is interrupted stays pending.
		if err := s.carefully(ctx, s.pending[0]); err != nil {
			return err
		}
		s.pending = s.pending[1:]
	}
	return nil
}

func (s *loop) carefully(ctx context.Context, n *entry) error {
	why := "control runs beside it failed, every time"
	for range maxRepeats {
		if s.isSpent() {
			why = "a control run beside it failed, and the budget did not allow another try"
			break
		}
		if err := s.recover(ctx); err != nil {
			return err
		}
		if !s.well && s.isSpent() {
			continue
		}
		a, err := s.try(ctx, nil, n.candidate)
		if err != nil {
			return err
		}
		n.attempt, n.well, n.controlled = a, s.well, false
		s.assess(ctx, a)
		if a.trial.GetVerdict() == campaignv1.Verdict_VERDICT_CONTAMINATED {
			continue
		}
		if a.invalid != "" || s.well {
			return s.finish(ctx, n)
		}
		ok, err := s.inspect(ctx)
		if err != nil {
			return err
		}
		if ok {
			return s.finish(ctx, n)
		}
	}
	t := n.trial()
	t.Verdict = campaignv1.Verdict_VERDICT_CONTAMINATED
	t.Reason = why
	return s.finish(ctx, n)
}

// recover waits until a control run is clean again, at most a few times and while the
// budget lasts.
func (s *loop) recover(ctx context.Context) error {
	for wait := s.quiet; !s.well && !s.isSpent(); wait *= 4 {
		ok, err := s.inspect(ctx)
		if err != nil || ok {
			return err
		}
		if wait > maxRecovery {
			return nil // what is run now will be called contaminated
		}
		last := s.beside[len(s.beside)-1]
		s.warn("a control run failed (%s), waiting %v for the system to recover",
			orElse(last.GetSignature().GetSummary(), last.GetReason()), wait)
		if err := s.comeBack(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// comeBack waits for sidecars that are gone, for as long as they had to connect: without one
// of them no run tells anything. Errors: ErrPush if one stays away.
func (s *loop) comeBack(ctx context.Context) error {
	problem := unready(s.Fleet.Sidecars(), s.act.involved)
	if problem == "" {
		return nil
	}
	s.warn("%s", s.waitingText(problem))
	err := awaitFleet(ctx, s.Fleet, s.act.involved, s.ReadyTimeout)
	if errors.Is(err, ErrNotReady) {
		return fmt.Errorf("%w: %w", ErrPush, err)
	}
	return err
}

// sleep gives a system time; there is nothing to wait for but that.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
