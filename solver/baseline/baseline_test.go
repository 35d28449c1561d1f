package baseline

import (
	"testing"

	"google.golang.org/protobuf/proto"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

func candidate() *solverv1.Candidate {
	event := &tfiv1.EventPredicate{Op: &tfiv1.Op{
		Observer: "b", Role: tfiv1.Role_ROLE_SERVER, Peer: "a", Api: "GET /x", Phase: tfiv1.Phase_PHASE_RESP,
	}, Outcome: tfiv1.Outcome_OUTCOME_SUCCESS}
	return &solverv1.Candidate{Id: "c", Tfics: []*tfiv1.Tfic{{
		Id: "c",
		Target: &tfiv1.StaticConfiguration{
			Caller: "a", Callee: "b", Api: "GET /x", Phase: tfiv1.Phase_PHASE_RESP, K: 3, EnforceK: true,
			Placement: tfiv1.Placement_PLACEMENT_CALLER, When: tfiv1.Outcome_OUTCOME_SUCCESS,
		},
		Guard: &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: event, Count: 2}}}}},
		Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}, MaxInjections: 1,
		AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
	}}}
}

func TestBaselines(t *testing.T) {
	for _, tt := range []struct {
		name    string
		phase   tfiv1.Phase
		k       uint32
		enforce bool
		once    bool
	}{
		{"static-req", tfiv1.Phase_PHASE_REQ, 0, false, false},
		{"static-phase", tfiv1.Phase_PHASE_RESP, 0, false, false},
		{"static-k", tfiv1.Phase_PHASE_RESP, 3, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := candidate()
			before := proto.CloneOf(c)
			var found bool
			for _, b := range All {
				if b.Name != tt.name {
					continue
				}
				found = true
				got := b.Tfics(c)[0]
				sigma := got.GetTarget()
				if sigma.GetPhase() != tt.phase || sigma.GetK() != tt.k || sigma.GetEnforceK() != tt.enforce {
					t.Errorf("target %v", sigma)
				}
				if got.GetGuard() != nil || sigma.GetWhen() != tfiv1.Outcome_OUTCOME_UNSPECIFIED {
					t.Errorf("it knows of time or outcome: %v", got)
				}
				if once := got.GetMaxInjections() == 1; once != tt.once {
					t.Errorf("%d injections", got.GetMaxInjections())
				}
				if !proto.Equal(got.GetFault(), c.GetTfics()[0].GetFault()) || sigma.GetPlacement() != tfiv1.Placement_PLACEMENT_CALLER {
					t.Error("the fault or its place differs")
				}
				if err := valid.Error(valid.Tfic(got)); err != nil {
					t.Error(err)
				}
			}
			if !found {
				t.Fatal("no such baseline")
			}
			if !proto.Equal(before, c) {
				t.Error("the candidate was changed")
			}
		})
	}
}
