package search

import (
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
)

// state of an attempt.
type state uint8

const (
	open    state = iota // to be offered
	offered              // a result is awaited
	judged               // fired, and judged
	givenUp              // will not be tried again
)

// Reasons why a point of the fault space was not reached.
const (
	reasonVaries        = "not in every clean run"
	reasonNoSidecar     = "no sidecar at either end"
	reasonMissed        = "missed"
	reasonPremature     = "premature"
	reasonMultiple      = "multiple"
	reasonInvalid       = "invalid"
	reasonInexpressible = "inexpressible"
	reasonNames         = "names that a policy cannot hold"
	reasonUnsound       = "no replay strikes where it should"
	reasonNothing       = "no call that can be faulted was in every clean run"
	reasonCut           = "the search stopped at its bound"
)

// NotTried is the reason of points for which no candidate was given or judged yet.
const NotTried = "not tried"

// Bounds on how often a candidate is given again.
const (
	maxRepeats     = 3 // after an invalid trial
	maxRefinements = 3 // after a missed, premature or multiple one
)

// attempt is one set of variables and what became of it.
type attempt struct {
	plans []*plan
	// id of the current revision.
	id, base string
	revision int
	state    state

	verdict   campaignv1.Verdict
	signature string
	reason    string
	repeats   int
	refined   int
	// run in which it was judged; nil: it left no traces.
	run *execution
	// varies: some clean run has not got it.
	varies bool
	// superseded: what later clean runs told changed the call's variant, so that
	// another attempt stands for the point.
	superseded bool
	// members are the TFIC ids, as plans.
	members []string
}

func (a *attempt) variables() []lineage.Variable {
	out := make([]lineage.Variable, len(a.plans))
	for i, p := range a.plans {
		out[i] = p.variable
	}
	return out
}

func (a *attempt) giveUp(reason string) { a.state, a.reason = givenUp, reason }

// again offers the attempt once more: unchanged, or as a new revision because
// its TFICs will differ.
func (a *attempt) again(changed bool) {
	if a.varies {
		a.giveUp(reasonVaries)
		return
	}
	a.state = open
	if changed {
		a.revision++
	}
}

// outcome is what representatives must agree in.
func (a *attempt) outcome() string {
	return a.verdict.String() + " " + a.signature
}

// setKey names a set of variables, whatever their order.
func setKey(vs []lineage.Variable) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.String()
	}
	slices.Sort(names)
	return strings.Join(names, "\x00")
}
