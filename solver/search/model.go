package search

import (
	"fmt"
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// model is the fault model with its defaults filled in.
type model struct {
	faults    []*campaignv1.NamedFault
	phases    []tfiv1.Phase
	placement tfiv1.Placement
	callees   []string
	size      int
	leaves    map[string]bool
}

func newModel(r *solverv1.StartSessionRequest) *model {
	m := &model{
		faults: r.GetFaults().GetFaults(), phases: r.GetFaults().GetPhases(),
		placement: r.GetFaults().GetPlacement(), callees: r.GetFaults().GetCallees(),
		size: max(1, int(r.GetMaxFaults())), leaves: map[string]bool{},
	}
	if len(m.faults) == 0 {
		m.faults = []*campaignv1.NamedFault{
			{Name: "error", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 503, GrpcStatus: 14}}}},
			{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
		}
	}
	if len(m.phases) == 0 {
		m.phases = []tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP}
	}
	if m.placement == tfiv1.Placement_PLACEMENT_UNSPECIFIED {
		m.placement = tfiv1.Placement_PLACEMENT_CALLER
	}
	for _, l := range r.GetLeaves() {
		m.leaves[l] = true
	}
	return m
}

// tried reports whether faults on the edge are asked for. The client's own calls
// are none: that a client that is refused is refused teaches nothing.
func (m *model) tried(e edge) bool {
	return e.caller != "" && (len(m.callees) == 0 || slices.Contains(m.callees, e.callee))
}

func (m *model) fault(name string) *tfiv1.Fault {
	for _, f := range m.faults {
		if f.GetName() == name {
			return f.GetFault()
		}
	}
	return nil
}

func (m *model) rank(name string) int {
	return slices.IndexFunc(m.faults, func(f *campaignv1.NamedFault) bool { return f.GetName() == name })
}

// placementOf is the proto's name for an end.
func placementOf(r tfiv1.Role) tfiv1.Placement {
	if r == tfiv1.Role_ROLE_SERVER {
		return tfiv1.Placement_PLACEMENT_CALLEE
	}
	return tfiv1.Placement_PLACEMENT_CALLER
}

// odd lists what a reader of a clean run should know.
func (m *model) odd(x *execution) []string {
	out := slices.Clone(x.trial.Warnings)
	say := func(s string) { out = append(out, s) }
	for _, g := range x.trial.Gaps {
		say(fmt.Sprintf("%d events of %s (%s) are missing: what they would have told is not known", g.Last-g.First+1, g.Service, g.Instance))
	}
	for _, s := range x.trial.Missing(m.leaves) {
		say(fmt.Sprintf("calls to %s reached no sidecar: either its context is lost, or it has none and should be declared a leaf", s))
	}
	if n := len(x.trial.UnmatchedReceives); n > 0 {
		say(fmt.Sprintf("%d messages came from events that nobody reported", n))
	}
	for _, r := range x.trial.Retries {
		say(fmt.Sprintf("%s was attempted %d times by the mesh", x.trial.Calls[r.Call].Describe(), r.Attempts))
	}
	for _, p := range x.trial.Problems {
		say(fmt.Sprintf("%s (%s) reported %s", p.Service, p.Instance, p.What))
	}
	for _, e := range x.ambiguous() {
		say(fmt.Sprintf("several instances of %s call %s %s and rank their calls apart: a rank names more than one call", e.caller, e.callee, e.api))
	}
	if len(x.trial.Fired()) > 0 {
		say("a fault fired: this is no clean run")
	}
	if x.trial.Assumed {
		say("no sidecar's spans: order and deliveries are assumed from the applications' own")
	}
	if x.answer == trace.None {
		say("no answer to the client was seen (do its requests go past the sidecar of the service they enter?): calls made after it cannot be told from those before")
	}
	for i := range out {
		out[i] = x.name + ": " + out[i]
	}
	return out
}
