package search

import (
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
)

// readySets lists the minimal sets of several faults that could change the
// outcome, given all runs so far. First those that contain no set known to be
// effective; then the others, which would be worth a trial for another outcome
// only.
func (s *Session) readySets(size int) []*attempt {
	var fresh, rest []*attempt
	seen := map[*attempt]bool{}
	take := func(f *lineage.Formula) {
		for vs := range f.Minimal(size) {
			if len(seen) == maxBatch {
				return
			}
			if !s.worthTrying(vs) {
				continue
			}
			a := s.attempt(vs)
			if seen[a] {
				continue
			}
			seen[a] = true
			if a.state != open && a.state != offered {
				continue
			}
			if s.containsEffective(vs) {
				rest = append(rest, a)
			} else {
				fresh = append(fresh, a)
			}
		}
	}
	take(s.formula(false))
	take(s.formula(true))
	byPlace := func(x, y *attempt) int {
		return slices.CompareFunc(x.variables(), y.variables(), s.compare)
	}
	slices.SortFunc(fresh, byPlace)
	slices.SortFunc(rest, byPlace)
	return append(fresh, rest...)
}

// formula has a clause for each distinct execution that kept its outcome; with
// effective, also for those that did not: to see yet another outcome, something
// else has to fail in them.
func (s *Session) formula(effective bool) *lineage.Formula {
	f := &lineage.Formula{}
	for _, x := range s.clean {
		f.Add(s.variables(x))
	}
	for _, x := range s.idle {
		f.Add(s.variables(x))
	}
	for i, x := range s.faulty {
		if s.verdicts[i] == campaignv1.Verdict_VERDICT_EFFECTIVE && !effective {
			continue
		}
		clause := slices.DeleteFunc(s.variables(x), func(v lineage.Variable) bool { return slices.Contains(x.fired, v) })
		// A run that left nothing to fail says nothing of other sets.
		if len(clause) > 0 {
			f.Add(clause)
		}
	}
	return f
}

// worthTrying leaves out sets with a fault that another one stands for, or that
// could not be made to fire by itself.
func (s *Session) worthTrying(vs []lineage.Variable) bool {
	for _, v := range vs {
		a := s.attempts[setKey([]lineage.Variable{v})]
		if a != nil && (a.state == givenUp || a.state == open) {
			return false
		}
	}
	return true
}

func (s *Session) containsEffective(vs []lineage.Variable) bool {
	for _, a := range s.order {
		if a.state != judged || a.verdict != campaignv1.Verdict_VERDICT_EFFECTIVE || len(a.plans) >= len(vs) {
			continue
		}
		if !slices.ContainsFunc(a.plans, func(p *plan) bool { return !slices.Contains(vs, p.variable) }) {
			return true
		}
	}
	return false
}
