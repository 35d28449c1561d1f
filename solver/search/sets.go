package search

import (
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
)

// readySets lists the sets of several faults that are worth a trial, given all
// runs so far: first the minimal ones that no single run that kept its outcome
// could survive; then those that add a fault to an effective set, where it could
// bring about yet another outcome.
func (s *Session) readySets(size int) []*attempt {
	fresh := s.minimalSets(size)
	rest := s.extendedSets(size)
	byPlace := func(x, y *attempt) int {
		return slices.CompareFunc(x.variables(), y.variables(), s.compare)
	}
	slices.SortFunc(fresh, byPlace)
	slices.SortFunc(rest, byPlace)
	for _, a := range rest {
		if !slices.Contains(fresh, a) {
			fresh = append(fresh, a)
		}
	}
	return fresh
}

// pendingAttempt returns the attempt of a set unless it is over.
func (s *Session) pendingAttempt(vs []lineage.Variable) *attempt {
	if a := s.attempt(vs); a.state == open || a.state == offered {
		return a
	}
	return nil
}

func (s *Session) minimalSets(size int) []*attempt {
	var out []*attempt
	effective := s.effective(func(n int) bool { return n < size })
	steps := s.steps
	defer func() { s.cut[size] = steps < 0 }()
	for vs := range s.formula().Minimal(size, &steps) {
		if slices.ContainsFunc(effective, func(a *attempt) bool { return a.within(vs) }) {
			continue
		}
		if a := s.pendingAttempt(vs); a != nil {
			if out = append(out, a); len(out) == maxBatch {
				break
			}
		}
	}
	return out
}

// formula has a clause for each distinct execution that kept its outcome. Of the
// variables it has those that may be in a set of several.
func (s *Session) formula() *lineage.Formula {
	f := &lineage.Formula{}
	add := func(x *execution) {
		f.Add(slices.DeleteFunc(s.variables(x), func(v lineage.Variable) bool {
			return slices.Contains(x.fired, v) || !s.combinable(v, campaignv1.Verdict_VERDICT_TOLERATED)
		}))
	}
	for _, list := range [...][]*execution{s.clean, s.idle} {
		for _, x := range list {
			add(x)
		}
	}
	for _, x := range s.faulty {
		if x.verdict == campaignv1.Verdict_VERDICT_TOLERATED {
			add(x)
		}
	}
	return f
}

// combinable reports whether v may be part of a set: alone it has struck with
// one of the verdicts, or no clean run has its call, so that it can only strike in
// company. Others are represented, or could not be made to strike.
func (s *Session) combinable(v lineage.Variable, verdicts ...campaignv1.Verdict) bool {
	a := s.attempts[setKey([]lineage.Variable{v})]
	return a == nil || a.state == judged && slices.Contains(verdicts, a.verdict)
}

// extendedSets lists effective sets with one more fault that could have struck in
// the same run.
func (s *Session) extendedSets(size int) []*attempt {
	var out []*attempt
	for _, a := range s.effective(func(n int) bool { return n == size-1 }) {
		if a.run == nil {
			continue
		}
		has := a.variables()
		for _, v := range s.variables(a.run) {
			sameCall := func(u lineage.Variable) bool { return u.Occurrence == v.Occurrence }
			if slices.ContainsFunc(has, sameCall) ||
				!s.combinable(v, campaignv1.Verdict_VERDICT_TOLERATED, campaignv1.Verdict_VERDICT_EFFECTIVE) {
				continue
			}
			vs := append(slices.Clone(has), v)
			slices.SortFunc(vs, lineage.Compare)
			next := s.pendingAttempt(vs)
			if next == nil || slices.Contains(out, next) {
				continue
			}
			if out = append(out, next); len(out) == maxBatch {
				return out
			}
		}
	}
	return out
}

// effective lists the attempts of so many faults that broke the outcome.
func (s *Session) effective(ofSize func(int) bool) []*attempt {
	var out []*attempt
	for _, a := range s.order {
		if a.state == judged && a.verdict == campaignv1.Verdict_VERDICT_EFFECTIVE && ofSize(len(a.plans)) {
			out = append(out, a)
		}
	}
	return out
}

// within reports whether all of the attempt's variables are among vs.
func (a *attempt) within(vs []lineage.Variable) bool {
	return !slices.ContainsFunc(a.plans, func(p *plan) bool { return !slices.Contains(vs, p.variable) })
}
