package campaign

import (
	"context"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// ahead is a run that may have begun during the quiet period of the one before it.
type ahead struct {
	act  *activation
	done chan struct{}
	run  *running
	err  error
	// void says why it says nothing, whatever comes of it; empty: it does.
	void string
}

// send begins a candidate's run.
func (s *loop) send(ctx context.Context, act *activation) *ahead {
	next := &ahead{act: act, done: make(chan struct{})}
	go func() {
		defer close(next.done)
		next.run, next.err = s.begin(ctx, act, purposeCandidate)
	}()
	return next
}

// wait waits until its reports are complete, or are not going to be.
func (n *ahead) wait() (*running, error) {
	<-n.done
	return n.run, n.err
}

const (
	voidBefore = "it had not ended when the run after it began"
	voidAfter  = "it began when the run before it had not ended"
)

// inTurn tries candidates one after the other. A run that has ended, as far as reports tell, is
// still listened to for its quiet period, and judged after that; where nothing has to
// follow it but the next candidate, that one's run begins meanwhile. So no two runs are under
// way at once. Should more come of the first after all, or should its reports turn out to lack
// something, neither says anything: both are repeated. Once more has come, each run waits for
// the end of the quiet period before it.
func (s *loop) inTurn(ctx context.Context, candidates []*solverv1.Candidate, acts []*activation) error {
	var next *ahead
	defer func() {
		if next != nil {
			<-next.done
		}
	}()
	for i, c := range candidates {
		if next == nil {
			if s.isSpent() {
				s.untried += len(candidates) - i
				return nil
			}
			if err := s.restore(ctx); err != nil {
				return err
			}
		}
		well := s.well
		var a *attempt
		var err error
		if next == nil && s.act.endangered(acts[i]) {
			a, err = s.try(ctx, acts[i], c)
		} else {
			if next == nil {
				next = s.send(ctx, acts[i])
			}
			a, next, err = s.hear(ctx, next, acts[i+1:])
		}
		if err != nil {
			return err
		}
		if err := s.accept(ctx, &entry{candidate: c, attempt: a, well: well}); err != nil {
			return err
		}
	}
	return nil
}

// hear listens to a run until it can be judged. It returns the run of the first of the
// activations that are left, if that has begun; also with an error.
func (s *loop) hear(ctx context.Context, this *ahead, left []*activation) (_ *attempt, next *ahead, _ error) {
	run, err := this.wait()
	if err != nil {
		return nil, nil, err
	}
	if len(left) > 0 && this.void == "" && s.mayBegin(ctx, run, left[0]) {
		next = s.send(ctx, left[0])
	}
	a, err := run.end(ctx)
	s.act.drop(this.act)
	if err != nil {
		return nil, next, err
	}
	a.invalid = orElse(a.invalid, this.void)
	late := a.recording != nil && a.recording.late
	s.lingers = s.lingers || late
	if next != nil && (late || a.invalid != "") {
		a.invalid, next.void = orElse(a.invalid, voidBefore), voidAfter
		// No repeat begins before it is quiet again.
		other, err := next.wait()
		if err == nil {
			_, err = other.end(ctx)
		}
		if err != nil {
			return nil, next, err
		}
	}
	if a, err = s.repeated(ctx, a, this.act.tfics, purposeCandidate); err != nil {
		return nil, next, err
	}
	s.spent += 1 + int(a.trial.GetRepeats())
	return a, next, nil
}

// mayBegin says whether the run of act may begin though the quiet period of the one before it
// has not ended: sidecars see all that could still come of that, none of it is expected, and it
// will be judged without any further run.
func (s *loop) mayBegin(ctx context.Context, before *running, act *activation) bool {
	if s.wary || s.lingers || len(s.leaves) > 0 || len(s.unreported) > 0 || !s.isPlain() ||
		s.spent+1 >= s.budget || s.isSpent() || s.act.endangered(act) {
		return false
	}
	// The run before it may itself have begun in a quiet period. Nobody has listened to it since.
	if before.listener != nil && before.listener.read(ctx) != nil {
		return false // end reads again, and says why it cannot
	}
	a := before.seen()
	if !a.isOver() || a.recording.late {
		return false
	}
	s.classify(ctx, a)
	follows := s.after(a.trial)
	return follows == nothing || follows == aControl && len(s.pending)+1 < maxPending
}

// isPlain says whether a run is nothing but requests of the workload's own: nothing is reset
// before it or probed after it.
func (s *loop) isPlain() bool {
	for i := range s.workload.Steps() {
		if !s.workload.IsRequest(i) {
			return false
		}
	}
	return len(s.Spec.GetWorkload().GetBefore()) == 0 && !s.workload.HasProbes()
}

// isOver says whether a run says something, the client got its answers, and each callee that was
// seen to get a request was seen to answer it. One whose caller gave up may still be at work,
// though all sidecars have reported.
func (a *attempt) isOver() bool {
	if a.invalid != "" {
		return false
	}
	for _, answer := range a.observation.Answers {
		if answer.GetError() != "" {
			return false
		}
	}
	t := a.recording.trial
	struck := make(map[int]bool)
	for i := range t.Events {
		if t.Events[i].Fired != "" {
			struck[t.Events[i].Call] = true
		}
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		answered := c.ServerResp != trace.None && c.Attempts <= 1 && (!c.Broken || struck[i])
		if c.ServerReq != trace.None && !answered {
			return false
		}
	}
	return true
}
