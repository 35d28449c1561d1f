package replay

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// drawTFIC draws one that strikes at some event of x, or could have.
func drawTFIC(t *rapid.T, x *trace.Trial, predicates []Predicate) (tfic *tfiv1.Tfic, atoms map[int]uint32) {
	inside := slices.DeleteFunc(slices.Clone(x.Events), func(e trace.Event) bool { return e.Delivered })
	op := rapid.SampledFrom(inside).Draw(t, "at").Op
	sigma := &tfiv1.StaticConfiguration{Caller: op.Observer, Callee: op.Peer, Api: op.API, Phase: op.Phase}
	if op.Role == tfiv1.Role_ROLE_SERVER {
		sigma.Caller, sigma.Callee, sigma.Placement = op.Peer, op.Observer, tfiv1.Placement_PLACEMENT_CALLEE
	}
	if rapid.Bool().Draw(t, "enforced") {
		sigma.K, sigma.EnforceK = uint32(rapid.IntRange(1, 3).Draw(t, "k")), true
	}
	if op.Phase == tfiv1.Phase_PHASE_RESP {
		sigma.When = tfiv1.Outcome(rapid.IntRange(0, 2).Draw(t, "when"))
	}
	atoms = map[int]uint32{}
	all := &tfiv1.AllOf{}
	for range rapid.IntRange(0, 2).Draw(t, "atoms") {
		i := rapid.IntRange(0, len(predicates)-1).Draw(t, "predicate")
		n := uint32(rapid.IntRange(1, 2).Draw(t, "count"))
		atoms[i] = max(atoms[i], n)
		all.Guards = append(all.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: predicates[i].Proto(), Count: n}}})
	}
	tfic = &tfiv1.Tfic{Id: "t", Target: sigma, Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}}
	if len(all.Guards) > 0 {
		tfic.Guard = &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: all}}}}
	}
	return tfic, atoms
}

// TestStrikesAgreeWithDefinition: a TFIC strikes at the first event of its op at
// which rank and outcome are right and its atoms lie in the past.
func TestStrikesAgreeWithDefinition(t *testing.T) {
	struck, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		x := mustBuild(t, story(t))
		if len(x.Events) == 0 || len(x.UnmatchedReceives) > 0 {
			t.Skip("the definition knows nothing of senders that did not report")
		}
		predicates := all(x)
		tfic, atoms := drawTFIC(t, x, predicates)
		known := causal(x, predicates)
		sigma := tfic.GetTarget()
		own := trace.Op{Observer: sigma.GetCaller(), Role: tfiv1.Role_ROLE_CLIENT, Peer: sigma.GetCallee(), API: sigma.GetApi(), Phase: sigma.GetPhase()}
		if sigma.GetPlacement() == tfiv1.Placement_PLACEMENT_CALLEE {
			own.Observer, own.Role, own.Peer = sigma.GetCallee(), tfiv1.Role_ROLE_SERVER, sigma.GetCaller()
		}
		var want []Strike
		for i := range x.Events {
			e := &x.Events[i]
			holds := e.Op == own && !e.Delivered && (!sigma.GetEnforceK() || e.K == sigma.GetK()) &&
				(sigma.GetWhen() == tfiv1.Outcome_OUTCOME_UNSPECIFIED || sigma.GetWhen() == e.Outcome)
			for p, n := range atoms {
				holds = holds && known.At(i)[p] >= n
			}
			if holds && len(want) == 0 {
				want = append(want, Strike{Event: i, TFIC: "t"})
			}
		}
		got, err := Strikes(x, []*tfiv1.Tfic{tfic})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%v: %s", tfic, d)
		}
		if len(want) > 0 {
			struck++
		} else {
			refused++
		}
	})
	if struck == 0 || refused == 0 {
		t.Errorf("%d struck and %d refused: the stories are too tame", struck, refused)
	}
}

func TestStrikesLeavesItsArgumentAlone(t *testing.T) {
	x := mustBuild(t, tracetest.Dispatch(1, nil))
	tfic := &tfiv1.Tfic{
		Id:     "t",
		Target: &tfiv1.StaticConfiguration{Caller: tracetest.Front, Callee: "customer", Api: tracetest.CustomerAPI, Phase: tfiv1.Phase_PHASE_REQ},
		Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(1)}}},
	}
	before := tfic.String()
	got, err := Strikes(x, []*tfiv1.Tfic{tfic})
	if err != nil || len(got) != 1 || tfic.String() != before {
		t.Errorf("strikes %v, %v; now %v", got, err, tfic)
	}
	tfic.Target.Callee = ""
	if _, err := Strikes(x, []*tfiv1.Tfic{tfic}); err == nil {
		t.Error("a TFIC that no sidecar would take")
	}
}

// TestDisagreement: two services that go by one tag cannot be told apart, and
// nothing is said of what they knew.
func TestDisagreement(t *testing.T) {
	r := tracetest.New("one tag")
	root := r.Send("", "a", "GET /").Receive()
	r.Send("a", "b", "GET /b").Done()
	root.Answer(200)
	td := r.Traces()
	seq := int64(100)
	for _, rs := range td.ResourceSpans {
		for _, s := range rs.ScopeSpans[0].Spans {
			for _, kv := range s.Attributes {
				value := kv.GetValue()
				switch kv.Key {
				case span.Instance, span.ReqFromInstance, span.RespFromInstance:
					value.Value = &commonv1.AnyValue_StringValue{StringValue: "00000000000a"}
				case span.ReqSeq, span.RespSeq, span.DeliveredSeq:
					seq++
					value.Value = &commonv1.AnyValue_IntValue{IntValue: seq}
				case span.ReqFromSeq, span.RespFromSeq:
					value.Value = &commonv1.AnyValue_IntValue{}
				}
			}
		}
	}
	x, err := trace.Build(r.Key(), td)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Replay(x, all(x)); !errors.Is(err, ErrDisagree) {
		t.Errorf("error %v, want ErrDisagree", err)
	}
}
