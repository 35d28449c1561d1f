package tfi_test

import (
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// path is one way of a message through the engine, as often as it is called.
type path struct {
	name   string
	allocs float64
	run    func()
}

// paths returns the three that a budget is set for.
func paths(t testing.TB) []path {
	paid := event("b", tfiv1.Role_ROLE_SERVER, "a", "POST /pay", tfiv1.Phase_PHASE_RESP)
	paid.Outcome = tfiv1.Outcome_OUTCOME_SUCCESS
	target := abort("t", "a", "b", "GET /orders/{id}", tfiv1.Phase_PHASE_RESP)
	target.Guard = after(atom(paid, 1000), atom(event("a", tfiv1.Role_ROLE_CLIENT, "b", "GET /orders/{id}", tfiv1.Phase_PHASE_REQ), 1))
	target.Target.Identities = []*tfiv1.Identity{{
		Source: &tfiv1.Identity_Query{Query: "user"}, Match: &tfiv1.Identity_Exact{Exact: "7 8"},
	}}
	m := newMesh(t, []string{"a", "b"}, target)
	a, b := m.engines["a"], m.engines["b"]
	plain := headers{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	trial := headers{"traceparent": traceparent(m.key)}
	onTheWay := headers{"traceparent": traceparent(m.key), tfi.EvidenceHeader: ""}
	back := headers{tfi.EvidenceHeader: ""}

	var client, server tfi.Call
	// The wire's strings are made once: they cost the adapter, not the engine.
	exchange := func(method, path string) func() {
		ask := tfi.Request{Role: tfi.RoleClient, Cluster: "to-b", Method: method, Path: path, Headers: trial, Now: 1}
		get := tfi.Request{Role: tfi.RoleServer, Method: method, Path: path, Headers: onTheWay, Now: 1}
		onTheWay[tfi.EvidenceHeader] = string(a.Request(&client, &ask).Evidence)
		b.Request(&server, &get)
		back[tfi.EvidenceHeader] = string(b.Response(&server, &tfi.Response{Status: 200, Headers: back, Now: 2}).Evidence)
		answered := tfi.Response{Status: 200, Headers: headers{}, Now: 2}
		arrived := tfi.Response{Status: 200, Headers: back, Now: 2}
		return func() {
			a.Request(&client, &ask)
			b.Request(&server, &get)
			b.Response(&server, &answered)
			a.Response(&client, &arrived)
			a.Delivered(&client, 3)
			if !client.Active() || !server.Active() || client.Record().Delivered.Seq == 0 {
				t.Fatal("the trial is not active")
			}
		}
	}
	full := exchange("GET", "/orders/1234567?user=7%208")
	full()
	if len(client.Record().Judged) != 1 {
		t.Fatalf("the full path judges nothing: %+v", client.Record())
	}
	other := exchange("GET", "/nothing/of/interest")
	ask := tfi.Request{Role: tfi.RoleClient, Cluster: "to-b", Method: "GET", Path: "/orders/1", Headers: plain}
	var idle tfi.Call
	return []path{
		{"NoTrial", 0, func() {
			a.Request(&idle, &ask)
			a.Response(&idle, &tfi.Response{Status: 200, Headers: plain, Now: time.Second})
		}},
		{"TrialNoMatchingOp", 0, other},
		{"FullPath", 2, full},
	}
}

func TestAllocationBudgets(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			if got := testing.AllocsPerRun(1000, p.run); got > p.allocs {
				t.Errorf("%v allocations, want at most %v", got, p.allocs)
			}
		})
	}
}

func BenchmarkEngine(b *testing.B) {
	for _, p := range paths(b) {
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.run()
			}
		})
	}
}

// BenchmarkState is what a store adds that keeps states as bytes.
func BenchmarkStateCodec(b *testing.B) {
	m := newMesh(b, []string{"a", "b"}, abort("t", "a", "b", "GET /x", tfiv1.Phase_PHASE_REQ))
	for range 20 {
		m.request("a", "b", "GET", "/y", nil).answer(200)
	}
	var encoded []byte
	m.stores["b"].View(tfi.StateID{Key: m.key}, func(s *tfi.State) { encoded, _ = s.AppendBinary(nil) })
	b.ReportAllocs()
	b.ReportMetric(float64(len(encoded)), "bytes")
	var s tfi.State
	for b.Loop() {
		if err := s.UnmarshalBinary(encoded); err != nil {
			b.Fatal(err)
		}
		encoded, _ = s.AppendBinary(encoded[:0])
	}
}
