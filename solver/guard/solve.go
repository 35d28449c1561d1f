package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/solver/replay"
)

// maxSteps bounds the exact search. It suffices for a few atoms among hundreds
// of candidates; beyond, a greedy set is marked as not proven.
const maxSteps = 200_000

// Solve finds the guard. Errors: [ErrNoTarget], [ErrObligatory],
// [ErrInexpressible], whose text names what cannot be told apart.
func Solve(p *Problem) (*Result, error) {
	if len(p.Targets) == 0 {
		return nil, ErrNoTarget
	}
	floors := p.floors()
	r := &Result{Smallest: true}
	for _, n := range floors {
		if n > 0 {
			r.Candidates++
		}
	}
	rivals := p.Rivals
	for _, a := range p.Obligatory {
		i := slices.Index(p.Predicates, a.Event)
		if i < 0 || floors[i] < a.Count {
			known := uint32(0)
			if i >= 0 {
				known = floors[i]
			}
			return nil, fmt.Errorf("%w: %s at least %d; known in every run: %d", ErrObligatory, a.Event, a.Count, known)
		}
		rivals = slices.DeleteFunc(slices.Clone(rivals), func(q Point) bool { return q.Known[i] < a.Count })
	}
	r.Atoms = slices.Clone(p.Obligatory)
	if len(rivals) == 0 {
		return r, nil
	}
	options, missing := p.options(floors, rivals, false)
	if len(missing) > 0 {
		r.UsedOwn = true
		options, missing = p.options(floors, rivals, true)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrInexpressible, strings.Join(missing, "; "))
	}
	s := &search{options: undominated(options), rivals: len(rivals)}
	chosen := s.run()
	r.Smallest = !s.cut
	for _, i := range chosen { // ascending, as the options are by name
		r.Chosen = append(r.Chosen, s.options[i].atom)
	}
	r.Atoms = append(r.Atoms, r.Chosen...)
	return r, nil
}

// option is a candidate atom: which rivals it excludes, and what it costs.
type option struct {
	atom Atom
	cost cost
	hits []bool // by rival
}

// cost orders sets of the same size: how many of their atoms do not express the
// pattern, their hops, their counts.
type cost struct{ foreign, hops, count int }

func (c cost) plus(d cost) cost {
	return cost{c.foreign + d.foreign, c.hops + d.hops, c.count + d.count}
}

func (c cost) compare(d cost) int {
	for _, pair := range [...][2]int{{c.foreign, d.foreign}, {c.hops, d.hops}, {c.count, d.count}} {
		if pair[0] != pair[1] {
			return pair[0] - pair[1]
		}
	}
	return 0
}

// options lists the atoms of A that exclude some rival. Of the counts of one
// predicate only those are listed at which the excluded set grows: a count in
// between excludes no more than the smaller one. missing names rivals that no
// atom excludes.
func (p *Problem) options(floors []uint32, rivals []Point, own bool) (out []option, missing []string) {
	covered := make([]bool, len(rivals))
	for i, e := range p.Predicates {
		if floors[i] == 0 || (p.Barred != nil && p.Barred(e)) || (!own && p.Own != nil && p.Own(e)) {
			continue
		}
		var counts []uint32
		for _, q := range rivals {
			if q.Known[i] < floors[i] {
				counts = append(counts, q.Known[i]+1)
			}
		}
		slices.Sort(counts)
		for _, n := range slices.Compact(counts) {
			o := option{atom: Atom{e, n}, hits: make([]bool, len(rivals)), cost: cost{foreign: 1, count: int(n)}}
			if p.Fits != nil && p.Fits(e) {
				o.cost.foreign = 0
			}
			if p.Hops != nil {
				o.cost.hops = p.Hops(e)
			}
			for j, q := range rivals {
				o.hits[j] = q.Known[i] < n
				covered[j] = covered[j] || o.hits[j]
			}
			out = append(out, o)
		}
	}
	for j, ok := range covered {
		if !ok {
			missing = append(missing, rivals[j].Name)
		}
	}
	slices.SortFunc(out, func(a, b option) int { return compareAtoms(a.atom, b.atom) })
	return out, missing
}

// undominated drops atoms in whose place another, cheaper one always serves.
func undominated(options []option) []option {
	within := func(a, b option) bool {
		for j := range a.hits {
			if a.hits[j] && !b.hits[j] {
				return false
			}
		}
		return true
	}
	var out []option
	for i, a := range options {
		worse := false
		for j, b := range options {
			if i == j || !within(a, b) {
				continue
			}
			c := b.cost.compare(a.cost)
			// Of equals the first stays.
			if c < 0 || (c == 0 && (!within(b, a) || j < i)) {
				worse = true
				break
			}
		}
		if !worse {
			out = append(out, a)
		}
	}
	return out
}

// search is a branch and bound over sets of options, smaller sets first.
type search struct {
	options []option
	rivals  int

	hitters  [][]int // of rival: its options
	count    []int   // of rival: chosen options that hit it
	excluded []bool
	chosen   []int
	best     []int
	bestCost cost
	steps    int
	cut      bool
	widest   int
}

func (s *search) run() []int {
	s.hitters = make([][]int, s.rivals)
	s.count = make([]int, s.rivals)
	s.excluded = make([]bool, len(s.options))
	for i, o := range s.options {
		n := 0
		for j, hit := range o.hits {
			if hit {
				s.hitters[j] = append(s.hitters[j], i)
				n++
			}
		}
		s.widest = max(s.widest, n)
	}
	greedy := s.greedy()
	for size := 1; size < len(greedy); size++ {
		if s.extend(size, cost{}); s.best != nil || s.cut {
			break
		}
	}
	if s.best == nil && !s.cut {
		// Greedy's size is the smallest; look for the best set of that size.
		s.extend(len(greedy), cost{})
	}
	if s.best == nil {
		return greedy
	}
	return s.best
}

// extend looks for the cheapest set of at most left more options.
func (s *search) extend(left int, so cost) {
	if s.steps++; s.steps > maxSteps {
		s.cut = true
		return
	}
	open, pick := 0, -1
	for j, n := range s.count {
		if n > 0 {
			continue
		}
		open++
		if pick < 0 || len(s.hitters[j]) < len(s.hitters[pick]) {
			pick = j
		}
	}
	if open == 0 {
		if s.best == nil || so.compare(s.bestCost) < 0 || (so.compare(s.bestCost) == 0 && s.firstByName()) {
			s.best, s.bestCost = slices.Clone(s.chosen), so
			slices.Sort(s.best)
		}
		return
	}
	if open > left*s.widest {
		return
	}
	var tried []int
	for _, i := range s.hitters[pick] {
		next := so.plus(s.options[i].cost)
		if s.excluded[i] || (s.best != nil && next.compare(s.bestCost) > 0) {
			continue
		}
		s.take(i, 1)
		s.extend(left-1, next)
		s.take(i, -1)
		if s.cut {
			break
		}
		s.excluded[i] = true
		tried = append(tried, i)
	}
	for _, i := range tried {
		s.excluded[i] = false
	}
}

// firstByName settles what costs leave open.
func (s *search) firstByName() bool {
	mine := slices.Clone(s.chosen)
	slices.Sort(mine)
	return slices.Compare(mine, s.best) < 0
}

func (s *search) take(i, by int) {
	if by > 0 {
		s.chosen = append(s.chosen, i)
	} else {
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	for j, hit := range s.options[i].hits {
		if hit {
			s.count[j] += by
		}
	}
}

// greedy takes what excludes most, and of those the cheapest, until all are excluded.
func (s *search) greedy() []int {
	var out []int
	left := make([]bool, s.rivals)
	for open := s.rivals; open > 0; {
		best, most := -1, 0
		for i, o := range s.options {
			n := 0
			for j, hit := range o.hits {
				if hit && !left[j] {
					n++
				}
			}
			if n > most || (n == most && n > 0 && o.cost.compare(s.options[best].cost) < 0) {
				best, most = i, n
			}
		}
		for j, hit := range s.options[best].hits {
			left[j] = left[j] || hit
		}
		open -= most
		out = append(out, best)
	}
	slices.Sort(out)
	return out
}

// Explain tells how the guard was found, for people.
func (r *Result) Explain(p *Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d event kinds are known at the target in every run (%d)", r.Candidates, len(p.Predicates), len(p.Targets))
	for _, a := range r.Atoms[:len(r.Atoms)-len(r.Chosen)] {
		fmt.Fprintf(&b, "; the pattern needs: %s, at least %d", a.Event, a.Count)
	}
	switch {
	case len(p.Rivals) == 0:
		b.WriteString("; no earlier occurrence has to be told apart")
	case len(r.Chosen) == 0:
		fmt.Fprintf(&b, "; that already excludes the earlier occurrences (%d)", len(p.Rivals))
	default:
		fmt.Fprintf(&b, "; the earlier occurrences (%d) are excluded by", len(p.Rivals))
		for i, a := range r.Chosen {
			if i > 0 {
				b.WriteString(" and")
			}
			fmt.Fprintf(&b, " %s, at least %d", a.Event, a.Count)
		}
	}
	if r.UsedOwn {
		b.WriteString("; only by counting the target's own op could they be told apart")
	}
	if !r.Smallest {
		b.WriteString("; a smaller set may exist: the search stopped at its bound")
	}
	return b.String()
}

// Holds reports whether the guard is true where known is known.
func (r *Result) Holds(predicates []replay.Predicate, known []uint32) bool {
	for _, a := range r.Atoms {
		i := slices.Index(predicates, a.Event)
		if i < 0 || known[i] < a.Count {
			return false
		}
	}
	return true
}
