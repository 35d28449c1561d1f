package replay

import (
	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Strike is a TFIC that would have fired.
type Strike struct {
	// Event is the index of the event at which it would have.
	Event int
	// TFIC is its id.
	TFIC string
}

// Strikes runs t through the engine with the TFICs in force and tells, in causal
// order, which of them would have fired at which event. It takes the trace as it is:
// what a fault would have changed afterwards is not known. Targets and guards
// with identities are none of its business. Errors: [ErrDisagree], and those of
// a policy that cannot be read.
func Strikes(t *trace.Trial, tfics []*tfiv1.Tfic) ([]Strike, error) {
	m := newMesh(t)
	for _, original := range tfics {
		c := proto.CloneOf(original)
		c.Fault = harmless
		sigma := c.GetTarget()
		sigma.Caller, sigma.Callee, sigma.Api = m.service(sigma.GetCaller()), m.service(sigma.GetCallee()), m.api(sigma.GetApi())
		m.renameGuard(c.GetGuard())
		m.tfics = append(m.tfics, c)
	}
	m.refuse()
	for i := range t.Events {
		if _, err := m.judge(i); err != nil {
			return nil, err
		}
	}
	return m.strikes, nil
}

func (m *mesh) renameGuard(g *tfiv1.Guard) {
	switch e := g.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		m.rename(e.Atom.GetEvent().GetOp())
	case *tfiv1.Guard_AllOf:
		for _, inner := range e.AllOf.GetGuards() {
			m.renameGuard(inner)
		}
	case *tfiv1.Guard_After:
		m.renameGuard(e.After)
	}
}
