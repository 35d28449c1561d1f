package campaign

import (
	"fmt"
	"slices"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// passedBy says which steps' requests set off calls that sidecars saw, and were seen by none
// themselves: they went to an application instead of its sidecar. Such a run looks sound, but
// the client's own request cannot be told from what came of it.
func (e *env) passedBy(a *attempt) []string {
	var out []string
	t := a.recording.trial
	for _, r := range a.requests {
		if !r.reported(t) || entered(t, r) {
			continue
		}
		entry := first(t, r)
		if entry == "" {
			continue
		}
		address := "the topology gives none"
		if s, ok := e.Topology.Service(entry); ok && s.Inbound != "" {
			address = s.Inbound
		}
		out = append(out, fmt.Sprintf(
			"step %s: no request of the client was seen at the sidecar of the entry service %s: does the URL go to its inbound address (%s)?",
			a.observation.Answers[r.step].GetStep(), entry, address))
	}
	return out
}

// entered says whether a callee's sidecar saw the request, which no sidecar sent.
func entered(t *trace.Trial, r request) bool {
	return slices.ContainsFunc(t.Calls, func(c trace.Call) bool {
		return c.ServerReq != trace.None && c.ClientReq == trace.None && r.is(&c)
	})
}

// first is the service that made the first call with the request's trace context; empty: there
// is none.
func first(t *trace.Trial, r request) string {
	for i := range t.Events {
		if c := &t.Calls[t.Events[i].Call]; r.is(c) {
			return c.Caller
		}
	}
	return ""
}

// astray says which steps' commands sent requests that the trial has nothing of.
func (a *attempt) astray() []string {
	var out []string
	for i, u := range a.unmarked {
		step := a.observation.Answers[i].GetStep()
		const instead = "; the command can pass on the trace context that it finds in its environment (TRACEPARENT and its kin)"
		if u.Foreign > 0 {
			out = append(out, fmt.Sprintf("step %s: %d requests of its command bear a trace of their own in the formats of the topology's propagation, and are no part of the trial%s",
				step, u.Foreign, instead))
		}
		// A command may speak TLS to others.
		if u.Tunnels > 0 && !slices.ContainsFunc(a.observation.Calls, func(c oracle.Call) bool { return c.Step == i }) {
			out = append(out, fmt.Sprintf("step %s: %d requests of its command went through TLS, where no header can be added, and no sidecar saw any of the step%s",
				step, u.Tunnels, instead))
		}
	}
	return out
}
