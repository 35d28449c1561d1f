package campaign

import (
	"fmt"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// unused are declared edges within reach of the workload over which no run has made a call,
// in order. A workload may need none, but an application that loses trace context looks the
// same: its calls are made, belong to no trial, and nothing that a campaign says is about them.
type unused []Edge

// unusedByClean returns the edges that clean runs did not use. Beyond reach they would say
// nothing, so it is asked before services are let go that were not reached.
func (e *env) unusedByClean() unused {
	seen := newSightings()
	for _, a := range e.clean {
		seen.add(a.recording.trial)
	}
	var out unused
	for _, edge := range e.edges(seen, len(e.clean)) {
		if edge.State == EdgeUnseen {
			out = append(out, edge)
		}
	}
	return out
}

// see takes away the edges that a run used.
func (u *unused) see(t *trace.Trial) {
	used := make(map[[2]string]bool)
	for i := range t.Calls {
		used[[2]string{t.Calls[i].Caller, t.Calls[i].Callee}] = true
	}
	var left unused
	for _, edge := range *u {
		if !used[[2]string{edge.Caller, edge.Callee}] {
			left = append(left, edge)
		}
	}
	*u = left
}

// String lists the edges, the first few where there are many.
func (u unused) String() string {
	const most = 5
	var out []string
	for i, edge := range u {
		if i == most {
			out = append(out, fmt.Sprintf("%d more", len(u)-most))
			break
		}
		out = append(out, edge.Caller+" → "+edge.Callee)
	}
	return strings.Join(out, ", ")
}

// warnUnused tells of edges that clean runs did not use.
func (e *env) warnUnused() {
	if len(e.unused) > 0 {
		e.warn("clean runs made no call that the topology declares as %s: the workload may need none, or trace context is lost on the way there, which `sequencefi check` tells; nothing is faulted there", e.unused)
	}
}

// caveat says of an exhausted fault space which declared edges are not in it.
func (e *env) caveat(c *campaignv1.Coverage) {
	if c.GetExhausted() && len(e.unused) > 0 {
		c.Statement += fmt.Sprintf(", without the declared %s, over which no run made a call", e.unused)
	}
}
