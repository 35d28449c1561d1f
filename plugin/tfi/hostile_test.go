package tfi_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// everything is an activation with a bit of all there is.
func everything() []*tfiv1.Tfic {
	paid := event("b", tfiv1.Role_ROLE_SERVER, "a", "POST /pay", tfiv1.Phase_PHASE_RESP)
	paid.Outcome = tfiv1.Outcome_OUTCOME_SUCCESS
	guarded := abort("guarded", "a", "b", "GET /x", tfiv1.Phase_PHASE_RESP)
	guarded.Guard = after(atom(paid, 1))
	identified := abort("identified", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ)
	identified.Target.K, identified.Target.EnforceK = 2, true
	identified.Target.Identities = []*tfiv1.Identity{
		{Source: &tfiv1.Identity_Query{Query: "q"}, Match: &tfiv1.Identity_Prefix{Prefix: "v"}},
		{Source: &tfiv1.Identity_Header{Header: "x-h"}, Match: &tfiv1.Identity_Exact{Exact: ""}},
	}
	outside := abort("outside", "", "a", "p.S/M", tfiv1.Phase_PHASE_RESP)
	outside.Target.Placement = tfiv1.Placement_PLACEMENT_CALLEE
	outside.Fault = errorFault(0)
	return []*tfiv1.Tfic{guarded, identified, outside}
}

// FuzzEngine: whatever a message looks like, nothing panics, no application sees
// evidence, and what goes out is well-formed.
func FuzzEngine(f *testing.F) {
	m := newMesh(f, []string{"a", "b"}, everything()...)
	x := m.request("a", "b", "GET", "/x?q=v", nil)
	f.Add(uint8(1), "to-b", "GET", "/x?q=v", false, traceparent(testKey), "", 200)
	f.Add(uint8(2), "", "POST", "/p.S/M", true, traceparent(testKey), string(x.dc.Evidence), 0)
	f.Add(uint8(2), "", "", "", false, strings.ToUpper(traceparent(testKey)), "AQ==", -1)
	f.Add(uint8(0), "to-leaf", "GET", "*", false, "", "AQAAAAAABwECAwAAAAAAAQEAAQ", 101)
	f.Fuzz(func(t *testing.T, role uint8, cluster, method, path string, grpc bool, trace, evidence string, status int) {
		m := newMesh(t, []string{"a", "b"}, everything()...)
		e := m.engines["a"]
		h := headers{"traceparent": trace, tfi.EvidenceHeader: evidence, "x-h": evidence}
		var c tfi.Call
		for range 2 {
			d := e.Request(&c, &tfi.Request{Role: tfi.Role(role), Cluster: cluster, Method: method, Path: path, GRPC: grpc, Headers: h})
			forwarded := forward(h, d)
			if _, leaks := forwarded[tfi.EvidenceHeader]; leaks && c.Active() && tfi.Role(role) == tfi.RoleServer {
				t.Fatalf("evidence reaches the application: %+v", d)
			}
			if c.Active() && tfi.Role(role) == tfi.RoleClient && len(d.Evidence) > 0 {
				var s tfi.Call
				m.engines["b"].Request(&s, &tfi.Request{Role: tfi.RoleServer, Method: method, Path: path, GRPC: grpc, Headers: forwarded})
				if s.Record() == nil || s.Record().Req.FromSeq != c.Record().Req.Seq {
					t.Fatalf("own evidence is not understood: %q", d.Evidence)
				}
			}
			d = e.Response(&c, &tfi.Response{Status: status, Headers: h})
			if _, leaks := forward(h, d)[tfi.EvidenceHeader]; leaks && c.Active() && tfi.Role(role) == tfi.RoleClient {
				t.Fatalf("evidence reaches the application: %+v", d)
			}
			e.Delivered(&c, 1)
			e.LetGo(&c)
		}
	})
}

// TestLostEvidenceOnlyMakesLessKnown: a sidecar with room for few instances knows
// less than the naive model, and never more.
func TestLostEvidenceOnlyMakesLessKnown(t *testing.T) {
	less := false
	rapid.Check(t, func(t *rapid.T) {
		x := drawExecution(t)
		w := newWorld(t, x, conditions{seed: 5, engines: 1})
		for name := range w.engines {
			p := &tfiv1.Policy{Service: name[:1], Activations: []*tfiv1.Activation{
				{Key: testKey[:], Tfics: x.tfics, Remaining: durationpb.New(1e9), Services: serviceNames},
			}}
			for _, s := range serviceNames {
				p.Peers = append(p.Peers, &tfiv1.Peer{Service: s, Clusters: []string{"to-" + s}})
			}
			b, err := proto.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := tfi.ParsePolicyWithin(b, tfi.Limits{Instances: 2})
			if err != nil {
				t.Fatal(err)
			}
			seed := uint64(name[0])<<8 + uint64(name[1])
			w.engines[name] = []*tfi.Engine{tfi.NewEngine(parsed, tfi.NewMemory(0), tfi.Options{Rand: func() uint64 { seed += 1 << 20; return seed }})}
		}
		for i := range x.steps {
			got, want := w.play(i), x.steps[i].want
			if got == want {
				continue
			}
			less = true
			known, wanted := counted(got), counted(want)
			for index, n := range known {
				if n > wanted[index] {
					t.Fatalf("step %d knows more:\n got %s\nwant %s", i, got, want)
				}
			}
			if strings.Contains(got, " forward ") != strings.Contains(want, " forward ") {
				// From here on the two see different messages.
				return
			}
		}
	})
	if !less {
		t.Error("no evidence was ever lost")
	}
}

// counted returns the counts in a verdict's text.
func counted(verdict string) map[string]string {
	_, list, _ := strings.Cut(verdict, "known=[")
	m := map[string]string{}
	for _, item := range strings.Fields(strings.TrimSuffix(list, "]")) {
		index, n, _ := strings.Cut(item, ":")
		m[index] = strings.Repeat("0", 8-len(n)) + n // comparable as text
	}
	return m
}

func TestHasEdges(t *testing.T) {
	m := newMesh(t, []string{"a"})
	p := m.policy("a")
	if parse(t, p).HasEdges() {
		t.Error("edges in a policy without rules")
	}
	rule := &tfiv1.EdgeRule{Key: []byte("nowhere"), Identities: []*tfiv1.Identity{{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Prefix{}}}}
	p.EdgeRules = []*tfiv1.EdgeRule{rule}
	if parse(t, p).HasEdges() {
		t.Error("a rule for an activation that is not here counts")
	}
	rule.Key = m.key[:]
	if e := tfi.NewEngine(parse(t, p), m.stores["a"], tfi.Options{}); !e.Policy().HasEdges() {
		t.Error("a rule does not count")
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"client server unknown":                         join(tfi.RoleClient, tfi.RoleServer, tfi.Role(0)),
		"req resp unknown":                              join(tfi.PhaseReq, tfi.PhaseResp, tfi.Phase(0)),
		"any success failure status unknown":            join(tfi.OutcomeAny, tfi.OutcomeSuccess, tfi.OutcomeFailure, tfi.OutcomeStatus, tfi.Outcome(9)),
		"none delay error abort drop":                   join(tfi.FaultKind(0), tfi.FaultDelay, tfi.FaultError, tfi.FaultAbort, tfi.FaultDrop),
		"when k guard spent instance other unknown":     join(tfi.ReasonWhen, tfi.ReasonK, tfi.ReasonGuard, tfi.ReasonSpent, tfi.ReasonInstance, tfi.ReasonOther, tfi.Reason(0)),
		"call decision trial_end problem unknown":       join(tfi.KindCall, tfi.KindDecision, tfi.KindTrialEnd, tfi.KindProblem, tfi.RecordKind(9)),
		"01020304050607 00000000000a 0000ffffffff":      join(testKey, tfi.Tag(10), tfi.Tag(1<<32-1)),
		"5f1c0102030405060703000000000000 800000000001": join(tfi.NewTraceID(testKey, 3), tfi.Tag(1<<47+1)),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func join[T interface{ String() string }](first T, rest ...interface{ String() string }) string {
	names := []string{first.String()}
	for _, v := range rest {
		names = append(names, v.String())
	}
	return strings.Join(names, " ")
}
