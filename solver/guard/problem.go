// Package guard finds the temporal guard of a fault: the smallest conjunction of
// event counts that is true where the fault shall strike, in every run, and false
// wherever it could strike too early.
//
// [Solve] takes a [Problem], which is nothing but numbers that replays gave, and
// returns a [Result] with the atoms and with how they were found. It is pure and
// its outcome does not depend on the order of its inputs' runs.
package guard

import (
	"cmp"
	"errors"
	"slices"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/replay"
)

// Errors of [Solve].
var (
	// ErrInexpressible: some occurrence cannot be told from the target by counts that
	// the injecting sidecar knows.
	ErrInexpressible = errors.New("no After guard tells the target from an earlier occurrence")
	// ErrObligatory: an atom that the pattern needs is not known at the target.
	ErrObligatory = errors.New("what the pattern waits for is not known at the target")
	// ErrNoTarget: no run has the target.
	ErrNoTarget = errors.New("no run has the target")
)

// Atom is true once its event is known to have occurred Count times.
type Atom struct {
	Event replay.Predicate
	Count uint32
}

// Point is a moment of a run: what its observer knew.
type Point struct {
	// Name for people, as "run 2, call 1".
	Name string
	// Known counts by the index of the predicate.
	Known []uint32
}

// Problem asks for a guard.
type Problem struct {
	// Predicates that an atom may count, and that Known refers to.
	Predicates []replay.Predicate
	// Targets are the moments to strike at, one for each relevant run.
	Targets []Point
	// Rivals are the moments at which the guard must be false.
	Rivals []Point
	// Obligatory atoms belong to the pattern whatever they tell apart.
	Obligatory []Atom
	// Own says that a predicate counts the target's own op: such atoms are used only
	// where nothing else will do. nil: none.
	Own func(replay.Predicate) bool
	// Barred predicates make no atom. nil: none.
	Barred func(replay.Predicate) bool
	// Fits says that a predicate expresses the pattern: preferred among equals.
	// nil: none.
	Fits func(replay.Predicate) bool
	// Hops is how many messages lie between a predicate's observer and the
	// injecting sidecar; fewer are preferred. nil: all the same.
	Hops func(replay.Predicate) int
}

// Result is a guard and how it was found.
type Result struct {
	// Atoms of the guard, the obligatory ones first, then by name.
	Atoms []Atom
	// Chosen are those that tell rivals apart, beside the obligatory ones.
	Chosen []Atom
	// Candidates is the number of predicates that are known at the target in every
	// run: A has an atom for each of their counts up to the smallest.
	Candidates int
	// UsedOwn: the target's own op had to be counted.
	UsedOwn bool
	// Smallest: it is proven that no smaller set would do. Otherwise the search
	// was given up at its bound and a greedy set is returned.
	Smallest bool
}

// Proto returns the guard as a message; nil, always true, without atoms.
func (r *Result) Proto() *tfiv1.Guard {
	if len(r.Atoms) == 0 {
		return nil
	}
	inner := &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: r.Atoms[0].Proto()}}
	if len(r.Atoms) > 1 {
		all := &tfiv1.AllOf{}
		for _, a := range r.Atoms {
			all.Guards = append(all.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: a.Proto()}})
		}
		inner = &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: all}}
	}
	return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: inner}}
}

// Proto returns the atom as a message.
func (a Atom) Proto() *tfiv1.Atom {
	return &tfiv1.Atom{Event: a.Event.Proto(), Count: a.Count}
}

func compareAtoms(a, b Atom) int {
	return cmp.Or(replay.Compare(a.Event, b.Event), cmp.Compare(a.Count, b.Count))
}

// floors returns for each predicate the smallest count known at a target.
func (p *Problem) floors() []uint32 {
	out := slices.Clone(p.Targets[0].Known)
	for _, t := range p.Targets[1:] {
		for i, n := range t.Known {
			out[i] = min(out[i], n)
		}
	}
	return out
}
