package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/lineage"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// AddResults feeds back judged trials. Either all are taken or none. A result of
// a candidate that has one already is ignored: no trial is judged twice.
// Errors: [ErrUnknownCandidate], [ErrTooLarge], [valid.ErrInvalid], those of package trace; all
// of a call's problems are joined.
func (s *Session) AddResults(_ context.Context, results []*solverv1.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.clock(time.Now())
	runs := make([]*execution, len(results))
	var problems []error
	for i, r := range results {
		if s.byID[r.GetCandidate()] == nil {
			problems = append(problems, fmt.Errorf("results[%d].candidate: %w %q", i, ErrUnknownCandidate, r.GetCandidate()))
			continue
		}
		if _, ok := campaignv1.Verdict_name[int32(r.GetVerdict())]; !ok || r.GetVerdict() == campaignv1.Verdict_VERDICT_UNSPECIFIED {
			problems = append(problems, valid.Error([]valid.Problem{{
				Path: fmt.Sprintf("results[%d].verdict", i), Want: "must be what the trial came to",
			}}))
			continue
		}
		if len(r.GetRecorded().GetTracesData()) == 0 {
			continue
		}
		trials, err := decode(r.GetRecorded())
		if err != nil && !errors.Is(err, trace.ErrNoEvents) {
			problems = append(problems, fmt.Errorf("results[%d].recorded: %w", i, err))
			continue
		}
		if len(trials) > 0 && len(trials[0].Events) > 0 {
			runs[i] = newExecution("trial "+trials[0].ID, trials[0])
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for i, r := range results {
		a := s.byID[r.GetCandidate()]
		if a.state != offered || a.id != r.GetCandidate() {
			continue
		}
		s.take(a, r, runs[i])
	}
	return nil
}

// take updates a by the result of its trial; x is the trial's run, nil if it left
// no traces.
func (s *Session) take(a *attempt, r *solverv1.Result, x *execution) {
	if x != nil {
		s.events += len(x.trial.Events)
		s.traces++
		x.fired = s.firedOf(a, r, x)
	}
	switch r.GetVerdict() {
	case campaignv1.Verdict_VERDICT_EFFECTIVE, campaignv1.Verdict_VERDICT_TOLERATED:
		if s.model.size == 1 {
			x = nil // only larger sets are made from runs with faults
		}
		partly := x != nil && len(x.fired) > 0 && len(x.fired) < len(a.plans)
		if x != nil && (len(x.fired) == 0 || !s.keep(x)) {
			x = nil
		}
		if x != nil {
			x.verdict = r.GetVerdict()
			s.faulty = append(s.faulty, x)
		}
		if partly {
			// It tells of a smaller set; from its run the others' guards are made anew.
			s.refine(a, reasonMissed, true)
			return
		}
		a.state, a.verdict, a.signature, a.run = judged, r.GetVerdict(), r.GetSignature(), x
	case campaignv1.Verdict_VERDICT_MISSED:
		// One more run without a fault: an atom that it did not have gets weaker.
		if x != nil && len(x.fired) == 0 && x.trial.Complete(s.model.leaves) && s.replays(x) && s.keep(x) {
			s.idle = append(s.idle, x)
		}
		s.refine(a, reasonMissed, true)
	case campaignv1.Verdict_VERDICT_PREMATURE:
		learnt := false
		for _, p := range a.plans {
			learnt = s.learnEarly(a, p, x) || learnt
			p.enforce = p.enforce || !learnt
		}
		s.refine(a, reasonPremature, true)
	case campaignv1.Verdict_VERDICT_MULTIPLE:
		changed := false
		for _, p := range a.plans {
			changed = s.narrow(p) || changed
		}
		s.refine(a, reasonMultiple, changed)
	default: // invalid or contaminated: it says nothing
		if a.repeats += 1 + int(r.GetRepeats()); a.repeats > maxRepeats {
			a.giveUp(reasonInvalid)
			return
		}
		a.again(false)
	}
}

// keep takes the room that x needs and reports whether there is any: without it guards
// are made from fewer runs.
func (s *Session) keep(x *execution) bool {
	n := cells(x.trial)
	if n > s.room {
		return false
	}
	s.room -= n
	return true
}

// replays reports whether guards can be made from x.
func (s *Session) replays(x *execution) bool {
	_, err := x.knowledge(s.universe.predicates)
	return err == nil
}

// refine offers a once more, unless that has been done often enough or nothing
// would be different.
func (s *Session) refine(a *attempt, reason string, changed bool) {
	if a.refined++; a.refined > maxRefinements || !changed {
		a.giveUp(reason)
		return
	}
	a.again(true)
}

// learnEarly keeps the moment at which p's fault struck too early.
func (s *Session) learnEarly(a *attempt, p *plan, x *execution) bool {
	if x == nil || !s.replays(x) {
		return false
	}
	for i := range x.trial.Events {
		e := &x.trial.Events[i]
		if e.Fired == "" || s.ownerOf(a, e.Fired) != p || !s.keep(x) {
			continue
		}
		p.early = append(p.early, early{x, i})
		return true
	}
	return false
}

// narrow makes p fire more rarely: by rank, then at the callee's sidecar.
func (s *Session) narrow(p *plan) bool {
	in := s.universe.info[occurrenceEdge(p.variable.Occurrence)]
	switch {
	case p.variable.Variant == PatternPostEffect && !p.enforce:
		p.enforce = true
		return true
	case in != nil && in.server && p.role == tfiv1.Role_ROLE_CLIENT:
		p.role = tfiv1.Role_ROLE_SERVER
		return true
	}
	return false
}

// ownerOf finds the plan whose TFIC has the id.
func (s *Session) ownerOf(a *attempt, tfic string) *plan {
	for i, m := range a.members {
		if tfic == m || tfic == m+fmt.Sprintf("-r%d", a.revision+1) {
			return a.plans[i]
		}
	}
	return nil
}

// firedOf lists the variables of a whose faults struck, by the result or, if that
// is silent, by the trace.
func (s *Session) firedOf(a *attempt, r *solverv1.Result, x *execution) []lineage.Variable {
	ids := r.GetFired()
	if len(ids) == 0 {
		ids = x.trial.Fired()
	}
	var out []lineage.Variable
	for _, id := range ids {
		if p := s.ownerOf(a, id); p != nil && !slices.Contains(out, p.variable) {
			out = append(out, p.variable)
		}
	}
	return out
}
