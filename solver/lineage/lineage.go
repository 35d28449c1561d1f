// Package lineage says which sets of faults could change what the client sees.
//
// Each distinct execution supports its outcome by the calls that it made: to
// break the outcome, at least one of them must fail. So an execution is a clause
// over [Variable]s, all executions together are a monotone formula, and the
// minimal sets of variables that hit every clause are what is worth trying
// (lineage-driven fault injection). [Formula] collects clauses,
// [Formula.Minimal] enumerates.
package lineage

import (
	"cmp"
	"fmt"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Occurrence is one call of a trial.
type Occurrence struct {
	Caller, Callee, API string
	// K is its rank among the calls of these three, from 1.
	K uint32
}

// Variable is a fault that could be made: which call, which half of it, which
// fault, and at what moment. Of the variables of one occurrence at most one is
// chosen at a time.
type Variable struct {
	Occurrence Occurrence
	Phase      tfiv1.Phase
	// Fault by its name in the fault model.
	Fault string
	// Variant of the guard, by its pattern's name.
	Variant string
}

// Compare orders variables: by call, then phase, fault and variant.
func Compare(a, b Variable) int {
	return cmp.Or(
		cmp.Compare(a.Occurrence.Caller, b.Occurrence.Caller),
		cmp.Compare(a.Occurrence.Callee, b.Occurrence.Callee),
		cmp.Compare(a.Occurrence.API, b.Occurrence.API),
		cmp.Compare(a.Occurrence.K, b.Occurrence.K),
		cmp.Compare(a.Phase, b.Phase),
		cmp.Compare(a.Fault, b.Fault),
		cmp.Compare(a.Variant, b.Variant),
	)
}

// String names a variable for people.
func (v Variable) String() string {
	phase := "req"
	if v.Phase == tfiv1.Phase_PHASE_RESP {
		phase = "resp"
	}
	return fmt.Sprintf("%s->%s %s #%d %s %s (%s)", v.Occurrence.Caller, v.Occurrence.Callee, v.Occurrence.API,
		v.Occurrence.K, phase, v.Fault, v.Variant)
}
