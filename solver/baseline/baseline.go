// Package baseline makes a candidate's fault the way static fault injection
// would: without a guard, and so without a sense of time. Campaigns run them
// beside a finding to show what static injection would have seen.
package baseline

import (
	"google.golang.org/protobuf/proto"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Baseline makes static TFICs of a candidate's. It returns new messages and
// leaves the candidate alone.
type Baseline struct {
	// Name as reports use it.
	Name string
	make func(*tfiv1.Tfic)
}

// All are the baselines, by how much they know.
var All = []Baseline{
	{"static-req", staticReq},
	{"static-phase", staticPhase},
	{"static-k", staticK},
}

// Tfics returns the candidate's TFICs as the baseline would make them.
func (b Baseline) Tfics(c *solverv1.Candidate) []*tfiv1.Tfic {
	var out []*tfiv1.Tfic
	for _, t := range c.GetTfics() {
		out = append(out, b.Tfic(t))
	}
	return out
}

// Tfic returns one TFIC as the baseline would make it. Its id is kept, so that
// equal baselines of different candidates can be told apart by their trial only.
func (b Baseline) Tfic(t *tfiv1.Tfic) *tfiv1.Tfic {
	out := proto.CloneOf(t)
	out.Guard = nil
	b.make(out)
	return out
}

// staticReq knows the api: every request to it fails.
func staticReq(t *tfiv1.Tfic) {
	staticPhase(t)
	t.Target.Phase = tfiv1.Phase_PHASE_REQ
}

// staticPhase knows the api and the phase: every such message fails.
func staticPhase(t *tfiv1.Tfic) {
	t.MaxInjections = valid.Unlimited // static injection does not count what it has done
	t.Target.K, t.Target.EnforceK = 0, false
	t.Target.When, t.Target.WhenStatus = tfiv1.Outcome_OUTCOME_UNSPECIFIED, 0
	t.Target.Identities = nil
}

// staticK knows the api, the phase and the rank.
func staticK(t *tfiv1.Tfic) {
	k := t.GetTarget().GetK()
	staticPhase(t)
	t.MaxInjections = 1
	t.Target.K, t.Target.EnforceK = k, k > 0
}
