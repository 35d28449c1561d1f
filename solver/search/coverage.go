package search

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Statistics tells how far the search is. The coverage is of single faults; the
// statement covers sets up to the session's bound as well. It returns no error.
func (s *Session) Statistics(context.Context) (*solverv1.GetStatisticsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &solverv1.GetStatisticsResponse{
		Coverage:   s.coverage(),
		Traces:     uint32(s.traces),
		Events:     uint32(s.events),
		Candidates: uint32(s.given),
		Solving:    durationpb.New(s.solving),
	}, nil
}

type rowKey struct {
	edge  edge
	phase tfiv1.Phase
	fault string
}

func (s *Session) coverage() *campaignv1.Coverage {
	c := &campaignv1.Coverage{Unreached: map[string]uint32{}}
	if s.universe == nil {
		c.Statement = "incomplete(0, no clean run)"
		return c
	}
	represented := map[*attempt]bool{}
	for _, g := range s.groups {
		_, list := g.status()
		for _, a := range list {
			represented[a] = true
		}
	}
	rows := map[rowKey]*campaignv1.CoverageRow{}
	why := map[rowKey]map[string]int{}
	row := func(k rowKey) *campaignv1.CoverageRow {
		r := rows[k]
		if r == nil {
			r = &campaignv1.CoverageRow{
				Caller: k.edge.caller, Callee: k.edge.callee, Api: k.edge.api, Phase: k.phase, Fault: k.fault,
			}
			if in := s.universe.info[k.edge]; in != nil {
				r.Calls = uint32(in.calls)
			}
			rows[k], why[k] = r, map[string]int{}
			c.Rows = append(c.Rows, r)
		}
		return r
	}
	unreached := func(k rowKey, reason string, n int) {
		c.Unreached[reason] += uint32(n)
		why[k][reason] += n
	}
	patterns := map[string]bool{}
	for _, a := range s.order {
		if len(a.plans) > 1 || a.superseded {
			continue
		}
		v := a.plans[0].variable
		k := rowKey{occurrenceEdge(v.Occurrence), v.Phase, v.Fault}
		r := row(k)
		c.Space++
		for _, name := range strings.Split(v.Variant, ", ") {
			patterns[name] = true
		}
		switch {
		case a.state == judged:
			c.Reached++
			r.Reached++
		case represented[a]:
			c.Represented++
			r.Represented++
		case a.state == givenUp:
			unreached(k, a.reason, 1)
		default:
			unreached(k, NotTried, 1)
		}
	}
	for _, e := range s.universe.edges {
		in := s.universe.info[e]
		if _, ok := in.role(s.model.placement); ok || !s.model.tried(e) {
			continue
		}
		for _, p := range s.model.phases {
			for _, f := range s.model.faults {
				k := rowKey{e, p, f.GetName()}
				row(k)
				c.Space += uint32(in.calls)
				unreached(k, reasonNoSidecar, in.calls)
			}
		}
	}
	for k, r := range rows {
		r.Unreached = reasons(why[k])
	}
	s.state(c, patterns)
	return c
}

// state says in a line how complete the search is. A call that is not in every
// clean run belongs to no minimal set, so it does not count against it.
func (s *Session) state(c *campaignv1.Coverage, patterns map[string]bool) {
	left := map[string]int{}
	for reason, n := range c.GetUnreached() {
		if reason != reasonVaries {
			left[reason] = int(n)
		}
	}
	for size := 2; size <= s.model.size && len(left) == 0; size++ {
		if n := len(s.readySets(size)); n > 0 {
			left[fmt.Sprintf("%s: sets of %d", NotTried, size)] = n
		} else if s.cut[size] {
			left[fmt.Sprintf("%s: sets of %d", reasonCut, size)] = 1
		}
	}
	for _, a := range s.order {
		if len(a.plans) > 1 && a.state == givenUp {
			left[a.reason+": sets"]++
		}
	}
	if len(left) == 0 && c.GetReached() == 0 {
		c.Statement = fmt.Sprintf("incomplete(%d, %s)", c.GetSpace(), reasonNothing)
		return
	}
	if len(left) > 0 {
		n := 0
		for _, m := range left {
			n += m
		}
		c.Statement = fmt.Sprintf("incomplete(%d, %s)", n, reasons(left))
		return
	}
	var faults []string
	for _, f := range s.model.faults {
		faults = append(faults, f.GetName())
	}
	equivalences := "none"
	if c.GetRepresented() > 0 {
		equivalences = "calls of one op by representatives that agree"
	}
	c.Exhausted = true
	c.Statement = fmt.Sprintf("exhausted(size ≤ %d, faults: %s, variants: %s, equivalences: %s)", s.model.size,
		strings.Join(faults, " "), strings.Join(names(patterns), ", "), equivalences)
	if n := c.GetUnreached()[reasonVaries]; n > 0 {
		c.Statement += fmt.Sprintf(", beside %d %s", n, reasonVaries)
	}
}

// names lists patterns, simple ones first.
func names(patterns map[string]bool) []string {
	var out []string
	for _, name := range [...]string{PatternUnguarded, PatternPostEffect, PatternKOfN} {
		if patterns[name] {
			out = append(out, name)
		}
	}
	return out
}

func reasons(counts map[string]int) string {
	var out []string
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[r], r))
	}
	return strings.Join(out, "; ")
}
