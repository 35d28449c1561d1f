package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

const (
	// roundSize is how many candidates are put in force at once: enough to spare pushes,
	// few enough to be over well before they expire.
	roundSize = 32
	// maxPending is how many trials may share one control run: as long as none has
	// failed, one is mostly a formality.
	maxPending = 16
	// maxRecovery is the longest wait between two control runs while the world is not well.
	maxRecovery = 10 * time.Second
	// maxPushFailures in a row end a campaign.
	maxPushFailures = 3
)

// ErrPush says that sidecars went on refusing policies, or are gone.
var ErrPush = errors.New("sidecars do not take policies")

// loop tries candidates until there are no more.
type loop struct {
	*env
	solver   Solver
	findings findings
	trials   []*campaignv1.Trial
	// beside are the control runs, and those that had to reproduce a finding.
	beside  []*campaignv1.Trial
	results []*solverv1.Result
	// pending trials came out wrong, and await a control run that shows that the
	// world is well.
	pending []*entry
	// well: the last run was clean, and so the next one starts in a sound world.
	well bool
	// wary: a control run has failed once. From then on each run that comes out wrong is
	// followed by a control run of its own, and none starts before the world is well.
	wary bool
	// sick: the last control run failed, and no run has been clean since.
	sick bool
	// spent trials with faults.
	spent    int
	budget   int
	deadline time.Time
	parallel int
	// untried candidates, because the budget was spent.
	untried int
	// planned candidates so far.
	planned int
}

// entry is a candidate with its latest attempt.
type entry struct {
	candidate *solverv1.Candidate
	attempt   *attempt
	// well: the world was, when the attempt began.
	well bool
	// controlled: a clean control run followed the attempt.
	controlled bool
}

func (n *entry) trial() *campaignv1.Trial { return n.attempt.trial }

// rounds tries all that the solver gives.
func (s *loop) rounds(ctx context.Context) error {
	for {
		candidates, err := s.solver.Next(ctx, roundSize)
		if err != nil {
			return fmt.Errorf("ask the solver for candidates: %w", err)
		}
		if len(candidates) == 0 {
			return nil
		}
		if s.isSpent() {
			s.untried += len(candidates)
			return nil
		}
		s.planned += len(candidates)
		s.update(Update{Stage: StageSearch, Done: len(s.trials), Planned: s.planned})
		if err := s.round(ctx, candidates); err != nil {
			return err
		}
		if err := s.report(ctx); err != nil {
			return err
		}
	}
}

// report gives the solver the results that it does not have yet.
func (s *loop) report(ctx context.Context) error {
	if len(s.results) == 0 {
		return nil
	}
	if err := s.solver.AddResults(ctx, s.results); err != nil {
		return fmt.Errorf("give the solver results: %w", err)
	}
	s.results = nil
	return nil
}

// isSpent says whether the budget is.
func (s *loop) isSpent() bool { return s.spent >= s.budget || time.Now().After(s.deadline) }

// round puts all candidates in force at once and tries one after the other.
func (s *loop) round(ctx context.Context, candidates []*solverv1.Candidate) error {
	sets := make([][]*tfiv1.Tfic, len(candidates))
	for i, c := range candidates {
		sets[i] = c.GetTfics()
	}
	acts, err := s.act.pushNew(ctx, 2+len(candidates)/maxPending, sets...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return s.unpushed(ctx, candidates, err)
	}
	if s.parallel > 1 {
		if err := s.probeIsolation(ctx, candidates[0]); err != nil {
			return err
		}
	}
	if s.parallel == 1 {
		if err := s.inTurn(ctx, candidates, acts); err != nil {
			return err
		}
		return s.settle(ctx)
	}
	for from := 0; from < len(candidates); from += s.parallel {
		if s.isSpent() {
			s.untried += len(candidates) - from
			break
		}
		to := min(len(candidates), from+s.parallel)
		if err := s.batch(ctx, candidates[from:to], acts[from:to]); err != nil {
			return err
		}
	}
	return s.settle(ctx)
}

// unpushed gives candidates back that no sidecar was told of.
func (s *loop) unpushed(ctx context.Context, candidates []*solverv1.Candidate, why error) error {
	if errors.Is(why, ErrPush) {
		return why
	}
	s.warn("%v", why)
	for _, c := range candidates {
		a := &attempt{trial: &campaignv1.Trial{Tfics: c.GetTfics(), Purpose: purposeCandidate}, invalid: why.Error()}
		s.judge(ctx, a)
		if err := s.finish(ctx, &entry{candidate: c, attempt: a}); err != nil {
			return err
		}
	}
	return nil
}

// batch tries candidates at once, as many as the workload allows.
func (s *loop) batch(ctx context.Context, candidates []*solverv1.Candidate, acts []*activation) error {
	if err := s.restore(ctx); err != nil {
		return err
	}
	well := s.well
	attempts := make([]*attempt, len(candidates))
	if err := s.together(ctx, candidates, acts, attempts); err != nil {
		return err
	}
	for i, a := range attempts {
		if err := s.accept(ctx, &entry{candidate: candidates[i], attempt: a, well: well}); err != nil {
			return err
		}
	}
	return nil
}

// restore waits for a sound world if there is reason to doubt it.
func (s *loop) restore(ctx context.Context) error {
	if !s.wary || s.well {
		return nil
	}
	return s.recover(ctx)
}

// together runs attempts side by side. One that says nothing is repeated alone.
func (s *loop) together(ctx context.Context, candidates []*solverv1.Candidate, acts []*activation, out []*attempt) error {
	group, inner := errgroup.WithContext(ctx)
	for i := range candidates {
		group.Go(func() error {
			a, err := s.attempt(inner, acts[i], purposeCandidate)
			out[i] = a
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.spent += len(candidates)
	for i, a := range out {
		s.act.drop(acts[i])
		if a.invalid == "" {
			continue
		}
		s.adopt(a)
		again, err := s.try(ctx, nil, candidates[i])
		if err != nil {
			return err
		}
		out[i] = again
	}
	return nil
}

// try runs a candidate.
func (s *loop) try(ctx context.Context, act *activation, c *solverv1.Candidate) (*attempt, error) {
	a, err := s.run(ctx, act, c.GetTfics(), purposeCandidate)
	if err != nil {
		return nil, err
	}
	s.spent += 1 + int(a.trial.GetRepeats())
	return a, nil
}

// followUp is what has to be run after a trial before it counts.
type followUp int

const (
	// nothing: it says nothing, or its own outcome shows that the world is well.
	nothing followUp = iota
	// aControl run, which others may share.
	aControl
	// proof that it comes about again, between two control runs.
	proof
	// another try, in a sound world.
	another
)

// after says what has to follow a trial.
func (s *loop) after(t *campaignv1.Trial) followUp {
	switch {
	case t.GetVerdict() == campaignv1.Verdict_VERDICT_INVALID, isClean(t):
		return nothing
	case t.GetVerdict() == campaignv1.Verdict_VERDICT_CONTAMINATED:
		return another
	case t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && isFinding(t) && s.findings.awaitsProof(t.GetSignature()):
		return proof
	}
	return aControl
}

// accept judges an attempt and sees to what has to follow before it counts.
func (s *loop) accept(ctx context.Context, n *entry) error {
	s.assess(ctx, n.attempt)
	t := n.trial()
	switch s.after(t) {
	case nothing:
		if isClean(t) {
			// As good as a control run.
			if err := s.release(ctx); err != nil {
				return err
			}
		}
		return s.finish(ctx, n)
	case another:
		s.pending = append(s.pending, n)
		return s.retryCarefully(ctx)
	case proof:
		return s.confirm(ctx, n)
	}
	s.pending = append(s.pending, n)
	if s.wary || len(s.pending) >= maxPending {
		return s.settle(ctx)
	}
	return nil
}

// finish counts a trial: it is judged, and nothing changes that any more.
func (s *loop) finish(ctx context.Context, n *entry) error {
	t := n.trial()
	t.Pattern, t.Fault = n.candidate.GetPattern(), n.candidate.GetFault()
	s.trials = append(s.trials, t)
	recorded, err := n.attempt.recorded()
	if err != nil {
		return err
	}
	s.results = append(s.results, &solverv1.Result{
		Candidate: n.candidate.GetId(), Verdict: t.GetVerdict(), Signature: t.GetSignature().GetId(),
		Recorded: recorded, Fired: t.GetFired(), Repeats: t.GetRepeats(),
	})
	u := Update{Trial: t, Done: len(s.trials), Planned: s.planned}
	if t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE {
		u.Finding = s.findings.add(t)
	}
	s.update(u)
	return s.keep(ctx, n.attempt)
}

// abandon keeps what was still pending when the campaign was stopped. It is no finding: in a
// world that is not well it says nothing, and else it is suspected at most.
func (s *loop) abandon() {
	for _, n := range s.pending {
		t := n.trial()
		t.Pattern, t.Fault = n.candidate.GetPattern(), n.candidate.GetFault()
		s.trials = append(s.trials, t)
		why := "stopped before a control run could confirm it"
		switch {
		case s.sick:
			t.Verdict = campaignv1.Verdict_VERDICT_CONTAMINATED
			t.Reason = "the control run after it failed, and the campaign was stopped before another try"
			continue
		case n.controlled:
			why = "stopped before it was confirmed"
		}
		t.Reason = why
		// Where the outcome has witnesses already, one that proves nothing takes nothing away.
		known := s.findings.find(t.GetSignature())
		if t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && (known == nil || len(known.GetWitnesses()) == 0) {
			s.findings.add(t)
			s.findings.doubt(t, why)
		}
	}
	s.pending = nil
}

// probeIsolation checks that clean runs beside a faulted one look like clean runs; if
// not, one run follows the other.
func (s *loop) probeIsolation(ctx context.Context, c *solverv1.Candidate) error {
	sets := make([][]*tfiv1.Tfic, s.parallel)
	sets[0] = c.GetTfics()
	acts, err := s.act.pushNew(ctx, 0, sets...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrPush) {
		return err
	}
	if err != nil {
		s.parallel = 1
		s.warn("whether runs are isolated cannot be told, one follows the other from here on: %v", err)
		return nil
	}
	out := make([]*attempt, len(acts))
	group, inner := errgroup.WithContext(ctx)
	for i, act := range acts {
		group.Go(func() error {
			a, err := s.attempt(inner, act, purposeControl)
			out[i] = a
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.spent++
	s.well = false
	for i, a := range out {
		s.act.drop(acts[i])
		if i == 0 {
			continue
		}
		s.judge(ctx, a)
		if a.invalid != "" || !isClean(a.trial) {
			s.warn("runs are not isolated, one follows the other from here on: beside a faulted run a clean one was: %s",
				orElse(a.invalid, a.trial.GetSignature().GetSummary()))
			s.parallel = 1
			return nil
		}
	}
	return nil
}
