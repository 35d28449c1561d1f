package search

import (
	"slices"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
)

// groupKey is what the calls of a group have in common.
type groupKey struct {
	edge    edge
	phase   tfiv1.Phase
	fault   string
	variant string
}

func groupOf(v lineage.Variable) groupKey {
	return groupKey{occurrenceEdge(v.Occurrence), v.Phase, v.Fault, v.Variant}
}

// group is the calls of one op under one fault. The first, the middle and the
// last stand for the rest, as long as they agree. If they do not, all are tried, or
// of many calls those between neighbours that differ.
type group struct {
	members []*attempt // by rank
	reps    []int
}

func newGroup(members []*attempt) *group {
	slices.SortFunc(members, func(a, b *attempt) int {
		return int(a.plans[0].variable.Occurrence.K) - int(b.plans[0].variable.Occurrence.K)
	})
	g := &group{members: members}
	last := len(members) - 1
	for _, i := range [...]int{0, last / 2, last} {
		if !slices.Contains(g.reps, i) {
			g.reps = append(g.reps, i)
		}
	}
	return g
}

// status says which members are to be tried now, and which are represented. A
// representative that could not be judged is replaced by one that was not tried
// yet, at most as often as there are representatives.
func (g *group) status() (try []*attempt, represented []*attempt) {
	voters := slices.Clone(g.reps)
	lost, pending := 0, false
	outcomes := map[string]bool{}
	for i := 0; i < len(voters); i++ {
		m := g.members[voters[i]]
		switch m.state {
		case judged:
			outcomes[m.outcome()] = true
		case givenUp:
			if lost++; lost <= len(g.reps) {
				if next := g.substitute(voters, voters[i]); next >= 0 {
					voters = append(voters, next)
				}
			}
		default:
			pending = true
			try = append(try, m)
		}
	}
	switch {
	case len(outcomes) > 1 && len(g.members) <= allUpTo:
		return slices.Clone(g.members), nil
	case len(outcomes) > 1:
		return g.between(try)
	}
	if pending || len(outcomes) == 0 {
		return try, nil
	}
	for i, m := range g.members {
		if !slices.Contains(voters, i) && m.state == open {
			represented = append(represented, m)
		}
	}
	return nil, represented
}

// allUpTo is the largest group of which all members are tried when
// representatives disagree: beyond it, halving the gaps takes fewer trials.
const allUpTo = 4

// between halves the gaps between neighbours that were judged differently, until
// the calls at which the outcome changes are known. try are voters still open.
func (g *group) between(try []*attempt) (_, represented []*attempt) {
	last := -1
	for i, m := range g.members {
		if m.state != judged {
			continue
		}
		if last >= 0 {
			var open []*attempt
			for _, inner := range g.members[last+1 : i] {
				if inner.state != givenUp {
					open = append(open, inner)
				}
			}
			if g.members[last].outcome() == m.outcome() {
				represented = append(represented, open...)
			} else if len(open) > 0 {
				try = append(try, open[len(open)/2])
			}
		}
		last = i
	}
	if len(try) > 0 {
		return try, nil
	}
	return nil, represented
}

// substitute picks the nearest member to lost that is no voter yet.
func (g *group) substitute(voters []int, lost int) int {
	best := -1
	for i := range g.members {
		if slices.Contains(voters, i) {
			continue
		}
		if best < 0 || distance(i, lost) < distance(best, lost) {
			best = i
		}
	}
	return best
}

// represents is the number of members for which a stands: those nearer to it
// than to another representative.
func (g *group) represents(a *attempt) uint32 {
	n := uint32(0)
	for i := range g.members {
		if slices.Contains(g.reps, i) {
			continue
		}
		near := g.reps[0]
		for _, r := range g.reps {
			if distance(r, i) < distance(near, i) {
				near = r
			}
		}
		if g.members[near] == a {
			n++
		}
	}
	return n
}

func distance(a, b int) int { return max(a-b, b-a) }
