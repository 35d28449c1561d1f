package main

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

const somePolicy = `{
  "service":"shop","version":"7",
  "peers":[{"service":"pay","clusters":["pay"]},{"service":"db","clusters":["db"],"leaf":true}],
  "templates":[{"path":"/customers/{id}"},{"path":"/files/{rest...}"}],
  "traceHeader":"x-trace",
  "edgeRules":[{"key":"AQIDBAUGBw==","identities":[{"header":"x-user","prefix":"test-"}]}],
  "exemptPaths":["/healthz"],
  "reporting":{"cluster":"otlp","path":"/v1/traces","authority":"otlp:4318"},
  "activations":[{"key":"AQIDBAUGBw==","remaining":"60s","services":["pay","shop"],"tfics":[{
    "id":"t",
    "target":{"caller":"shop","callee":"pay","api":"POST /charge","phase":"PHASE_RESP","k":1,"enforceK":true,
      "when":"OUTCOME_SUCCESS","identities":[{"query":"id","exact":"42"}]},
    "guard":{"after":{"allOf":{"guards":[{"atom":{"count":1,"event":{"outcome":"OUTCOME_SUCCESS","delivered":true,
      "op":{"observer":"shop","role":"ROLE_CLIENT","peer":"pay","api":"POST /charge","phase":"PHASE_RESP"}}}}]}}},
    "fault":{"abort":{}}}]}]
}`

// TestSidecarsTakeWhatIsValid feeds the engine's own decoder with policies at
// the bounds: what passes here must not be refused there, where nobody sees it.
func TestSidecarsTakeWhatIsValid(t *testing.T) {
	first := func(m *tfiv1.Policy) *tfiv1.Tfic { return m.Activations[0].Tfics[0] }
	fault := func(text string) func(*tfiv1.Policy) {
		return func(m *tfiv1.Policy) {
			first(m).Fault = &tfiv1.Fault{}
			if err := protojson.Unmarshal([]byte(text), first(m).Fault); err != nil {
				t.Fatal(err)
			}
		}
	}
	atom := func() *tfiv1.Guard {
		return proto.CloneOf(&tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Count: 1, Event: &tfiv1.EventPredicate{
			Op: &tfiv1.Op{Observer: "shop", Role: tfiv1.Role_ROLE_CLIENT, Peer: "pay", Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ},
		}}}})
	}
	for name, edit := range map[string]func(*tfiv1.Policy){
		"good":        func(*tfiv1.Policy) {},
		"recording":   func(m *tfiv1.Policy) { m.Activations[0].Tfics = nil },
		"nothing":     func(m *tfiv1.Policy) { proto.Reset(m); m.Service = "shop" },
		"one hour":    func(m *tfiv1.Policy) { m.Activations[0].Remaining = durationpb.New(valid.MaxRemaining) },
		"scope trace": func(m *tfiv1.Policy) { m.Activations[0].Scope = tfiv1.Scope_SCOPE_TRACE },
		"no services": func(m *tfiv1.Policy) { m.Activations[0].Services = nil },
		"64 predicates": func(m *tfiv1.Policy) {
			list := &tfiv1.AllOf{}
			for i := range valid.MaxPredicates {
				g := atom()
				g.GetAtom().Event.Op.Api = fmt.Sprint("GET /", i)
				list.Guards = append(list.Guards, g)
			}
			first(m).Guard = &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: list}}
		},
		"no guard": func(m *tfiv1.Policy) { first(m).Guard = nil },
		"deep guard": func(m *tfiv1.Policy) {
			g := atom()
			for range valid.MaxGuardDepth - 1 {
				g = &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: g}}
			}
			first(m).Guard = g
		},
		"wide guard": func(m *tfiv1.Policy) {
			list := &tfiv1.AllOf{}
			for range valid.MaxGuardNodes - 1 {
				list.Guards = append(list.Guards, atom())
			}
			first(m).Guard = &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: list}}
		},
		"64 TFICs": func(m *tfiv1.Policy) {
			a := m.Activations[0]
			for i := range valid.MaxTFICs - 1 {
				one := proto.CloneOf(a.Tfics[0])
				one.Id = string(rune('A'+i/26)) + string(rune('a'+i%26))
				a.Tfics = append(a.Tfics, one)
			}
		},
		"outside caller": func(m *tfiv1.Policy) {
			first(m).Target.Caller, first(m).Target.Placement = "", tfiv1.Placement_PLACEMENT_CALLEE
		},
		"when status": func(m *tfiv1.Policy) {
			first(m).Target.When, first(m).Target.WhenStatus = tfiv1.Outcome_OUTCOME_STATUS, 404
		},
		"gRPC": func(m *tfiv1.Policy) {
			first(m).Target.Api = "pay.Pay/Charge"
			first(m).Target.When, first(m).Target.WhenStatus = tfiv1.Outcome_OUTCOME_STATUS, 0
		},
		"path prefix": func(m *tfiv1.Policy) {
			first(m).Target.Identities = []*tfiv1.Identity{{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Prefix{Prefix: "/a"}}}
		},
		"error":        fault(`{"error":{}}`),
		"full error":   fault(`{"error":{"httpStatus":599,"grpcStatus":16,"grpcMessage":"no","body":"b29wcw==","headers":[{"name":"retry-after","value":"1"}]}}`),
		"drop":         fault(`{"drop":{}}`),
		"long drop":    fault(`{"drop":{"limit":"300s"}}`),
		"fixed":        fault(`{"delay":{"fixed":"300s"}}`),
		"uniform":      fault(`{"delay":{"uniform":{"min":"0s","max":"0.001s"}}}`),
		"normal":       fault(`{"delay":{"normal":{"mean":"0.1s"}}}`),
		"exponential":  fault(`{"delay":{"exponential":{"mean":"300s"}}}`),
		"streaming":    func(m *tfiv1.Policy) { first(m).AnswerKind = tfiv1.AnswerKind_ANSWER_KIND_STREAMING },
		"many times":   func(m *tfiv1.Policy) { first(m).MaxInjections = 1 << 31 },
		"mesh cluster": func(m *tfiv1.Policy) { m.Peers[0].Clusters = []string{"outbound|80|v1|pay.ns.svc.cluster.local"} },
	} {
		t.Run(name, func(t *testing.T) {
			m := &tfiv1.Policy{}
			if err := protojson.Unmarshal([]byte(somePolicy), m); err != nil {
				t.Fatal(err)
			}
			edit(m)
			if name == "nothing" || name == "recording" {
				m.EdgeRules = nil
			}
			if err := valid.Error(valid.Policy(m)); err != nil {
				t.Fatal(err)
			}
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tfi.ParsePolicy(b); err != nil {
				t.Errorf("a sidecar refuses it: %v", err)
			}
		})
	}
}
