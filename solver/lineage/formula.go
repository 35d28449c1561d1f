package lineage

import (
	"iter"
	"math/bits"
	"slices"
)

// set is a bit set over the formula's variables.
type set []uint64

func (s set) has(i int) bool {
	return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0
}

func (s *set) add(i int) {
	for len(*s) <= i/64 {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// within reports whether all of s is in t.
func (s set) within(t set) bool {
	for i, w := range s {
		var other uint64
		if i < len(t) {
			other = t[i]
		}
		if w&^other != 0 {
			return false
		}
	}
	return true
}

// members lists the set in ascending order.
func (s set) members() []int {
	out := make([]int, 0, s.size())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, i*64+bits.TrailingZeros64(w))
		}
	}
	return out
}

// Formula is a conjunction of clauses, each a set of variables of which at least
// one must fire. The zero value is an empty formula.
type Formula struct {
	index   map[Variable]int
	vars    []Variable
	clauses []set
	empty   bool
}

// Add adds a clause and reports whether it says anything new. A clause with no
// variables cannot be hit: the formula has no solutions from then on.
func (f *Formula) Add(clause []Variable) bool {
	var s set
	for _, v := range clause {
		s.add(f.number(v))
	}
	if len(clause) == 0 {
		changed := !f.empty
		f.empty = true
		return changed
	}
	for _, c := range f.clauses {
		if c.within(s) {
			return false
		}
	}
	// What the new clause implies need not be kept: minimal hitting sets are those
	// of the minimal clauses.
	f.clauses = slices.DeleteFunc(f.clauses, func(c set) bool { return s.within(c) })
	f.clauses = append(f.clauses, s)
	return true
}

// Clauses is the number of clauses that are not implied by others.
func (f *Formula) Clauses() int { return len(f.clauses) }

func (f *Formula) number(v Variable) int {
	if i, ok := f.index[v]; ok {
		return i
	}
	if f.index == nil {
		f.index = map[Variable]int{}
	}
	f.index[v] = len(f.vars)
	f.vars = append(f.vars, v)
	return len(f.vars) - 1
}

// Minimal yields the minimal hitting sets of exactly size variables in a fixed
// order, no two of one occurrence in a set. The yielded slice belongs to the
// receiver. An empty formula has the empty set only, which is not yielded.
//
// There may be few sets and yet exponentially many ways that lead to none. So each
// step of the search takes one off steps; where none is left it ends, with *steps
// below 0, and sets may be missing.
func (f *Formula) Minimal(size int, steps *int) iter.Seq[[]Variable] {
	return func(yield func([]Variable) bool) {
		if f.empty || size < 1 || len(f.clauses) == 0 {
			return
		}
		e := f.enumeration(size, yield)
		e.steps = steps
		e.extend(0)
	}
}

// enumeration is one depth-first search. Variables are numbered anew in
// [Compare]'s order, so that the outcome does not depend on who came first.
type enumeration struct {
	size     int
	vars     []Variable
	clauses  [][]int // shortest first
	contains []set   // of variable: the clauses it hits
	chosen   []int
	hit      []int // how many chosen variables hit the clause
	excluded []bool
	yield    func([]Variable) bool
	steps    *int
}

func (f *Formula) enumeration(size int, yield func([]Variable) bool) *enumeration {
	order := make([]int, len(f.vars))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return Compare(f.vars[a], f.vars[b]) })
	rank := make([]int, len(order))
	e := &enumeration{
		size: size, yield: yield,
		vars: make([]Variable, len(order)), contains: make([]set, len(order)),
		excluded: make([]bool, len(order)), hit: make([]int, len(f.clauses)),
	}
	for r, i := range order {
		rank[i], e.vars[r] = r, f.vars[i]
	}
	for _, c := range f.clauses {
		var list []int
		for _, i := range c.members() {
			list = append(list, rank[i])
		}
		slices.Sort(list)
		e.clauses = append(e.clauses, list)
	}
	slices.SortFunc(e.clauses, func(a, b []int) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
	for ci, c := range e.clauses {
		for _, v := range c {
			e.contains[v].add(ci)
		}
	}
	return e
}

// extend tries every variable of the first clause that is not hit from clause
// `from` on; a variable that was tried is excluded for its later siblings, so no
// set comes twice. It returns false to stop.
func (e *enumeration) extend(from int) bool {
	if *e.steps--; *e.steps < 0 {
		return false
	}
	for from < len(e.clauses) && e.hit[from] > 0 {
		from++
	}
	if from == len(e.clauses) {
		return len(e.chosen) != e.size || e.emit()
	}
	if len(e.chosen) == e.size {
		return true
	}
	last := len(e.chosen) == e.size-1
	var tried []int
	defer func() {
		for _, v := range tried {
			e.excluded[v] = false
		}
	}()
	for _, v := range e.clauses[from] {
		if e.excluded[v] {
			continue
		}
		// The last one must hit all that is left.
		if last && !e.hitsRest(v, from) || e.rivalChosen(v) {
			continue
		}
		e.choose(v, 1)
		// Each chosen one must remain the only hitter of some clause.
		if e.allNeeded() && !e.extend(from+1) {
			return false
		}
		e.choose(v, -1)
		e.excluded[v] = true
		tried = append(tried, v)
	}
	return true
}

func (e *enumeration) choose(v, by int) {
	if by > 0 {
		e.chosen = append(e.chosen, v)
	} else {
		e.chosen = e.chosen[:len(e.chosen)-1]
	}
	for _, c := range e.contains[v].members() {
		e.hit[c] += by
	}
}

func (e *enumeration) hitsRest(v, from int) bool {
	for c := from; c < len(e.clauses); c++ {
		if e.hit[c] == 0 && !e.contains[v].has(c) {
			return false
		}
	}
	return true
}

func (e *enumeration) rivalChosen(v int) bool {
	for _, c := range e.chosen {
		if e.vars[c].Occurrence == e.vars[v].Occurrence {
			return true
		}
	}
	return false
}

func (e *enumeration) allNeeded() bool {
	for _, v := range e.chosen {
		needed := false
		for _, c := range e.contains[v].members() {
			if e.hit[c] == 1 {
				needed = true
				break
			}
		}
		if !needed {
			return false
		}
	}
	return true
}

func (e *enumeration) emit() bool {
	out := make([]Variable, len(e.chosen))
	for i, v := range e.chosen {
		out[i] = e.vars[v]
	}
	slices.SortFunc(out, Compare)
	return e.yield(out)
}
