// Package replay says what a sidecar could have known at a given moment of a
// recorded trial.
//
// That an event came earlier in a trace is not enough for a guard: it may be
// earlier on the clock and yet unknown at the sidecar that judges. [Replay] runs a
// trace through the engine that sidecars run, along the deliveries that they
// observed, with every candidate predicate named at once. [Knowledge] then tells
// the count C(e, i) that the observer of event i would have known.
package replay

import (
	"cmp"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Predicate says which events an atom counts (proto: sequencefi.tfi.v1.EventPredicate,
// without identities).
type Predicate struct {
	Op trace.Op
	// Outcome narrows answers: unspecified takes any.
	Outcome tfiv1.Outcome
	// Delivered counts deliveries to the application instead of arrivals.
	Delivered bool
}

// Proto returns the predicate as a message.
func (p Predicate) Proto() *tfiv1.EventPredicate {
	return &tfiv1.EventPredicate{Op: p.Op.Proto(), Outcome: p.Outcome, Delivered: p.Delivered}
}

// Matches reports whether p counts e.
func (p Predicate) Matches(e *trace.Event) bool {
	return p.Op == e.Op && p.Delivered == e.Delivered &&
		(p.Outcome == tfiv1.Outcome_OUTCOME_UNSPECIFIED || p.Outcome == e.Outcome)
}

// String names the predicate for people.
func (p Predicate) String() string {
	s := p.Op.String()
	switch p.Outcome {
	case tfiv1.Outcome_OUTCOME_SUCCESS:
		s += " success"
	case tfiv1.Outcome_OUTCOME_FAILURE:
		s += " failure"
	}
	if p.Delivered {
		s += " delivered"
	}
	return s
}

// Compare orders predicates.
func Compare(a, b Predicate) int {
	delivered := func(p Predicate) int {
		if p.Delivered {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.Op.Observer, b.Op.Observer),
		cmp.Compare(a.Op.Role, b.Op.Role),
		cmp.Compare(a.Op.Peer, b.Op.Peer),
		cmp.Compare(a.Op.API, b.Op.API),
		cmp.Compare(a.Op.Phase, b.Op.Phase),
		cmp.Compare(a.Outcome, b.Outcome),
		cmp.Compare(delivered(a), delivered(b)),
	)
}
