package tfi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// wire serialises a policy in protobuf's text form.
func wire(t testing.TB, text string) []byte {
	t.Helper()
	var p tfiv1.Policy
	if err := prototext.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const fullPolicy = `
service: "shop" version: "v7" trace_header: "x-trace"
peers { service: "pay" clusters: "pay" clusters: "pay-v2" }
peers { service: "db" clusters: "db" leaf: true }
templates { path: "/a/{x}" }
templates { path: "/a/b" }
edge_rules { key: "\001\002\003\004\005\006\007" identities { header: "x-go" exact: "1" } }
edge_rules { key: "\011\011\011\011\011\011\011" identities { path: true prefix: "/" } }
exempt_paths: "/healthz"
reporting { cluster: "otlp" }
activations {
  key: "\001\002\003\004\005\006\007" scope: SCOPE_TRACE remaining { seconds: 60 nanos: 500 }
  services: "client" services: "shop" services: "pay"
  tfics {
    id: "t-1" max_injections: 3 answer_kind: ANSWER_KIND_UNARY
    target {
      caller: "shop" callee: "pay" api: "POST /pay" phase: PHASE_RESP k: 2 enforce_k: true
      when: OUTCOME_STATUS when_status: 201 identities { query: "user" exact: "7" }
    }
    guard { after { all_of {
      guards { atom { count: 2 event { op { observer: "shop" role: ROLE_CLIENT peer: "pay" api: "POST /pay" phase: PHASE_REQ } } } }
      guards { atom { count: 1 event { outcome: OUTCOME_SUCCESS delivered: true op { observer: "shop" role: ROLE_CLIENT peer: "pay" api: "POST /pay" phase: PHASE_RESP } } } }
      guards { atom { count: 9 event { op { observer: "shop" role: ROLE_CLIENT peer: "pay" api: "POST /pay" phase: PHASE_REQ } } } }
    } } }
    fault { error { http_status: 500 grpc_status: 13 grpc_message: "no" body: "text" headers { name: "retry-after" value: "1" } } }
  }
  tfics {
    id: "t.2"
    target { callee: "shop" api: "GET /" phase: PHASE_REQ placement: PLACEMENT_CALLEE }
    guard { atom { count: 1 event { op { observer: "pay" role: ROLE_SERVER api: "GET /" phase: PHASE_REQ } identities { header: "h" prefix: "p" } } } }
    fault { delay { normal { mean { seconds: 1 } stddev { nanos: 7 } } } }
  }
  tfics {
    id: "t_3" target { caller: "shop" callee: "x" api: "GET /" phase: PHASE_REQ }
    fault { drop {} }
  }
  tfics {
    id: "t4" target { caller: "shop" callee: "x" api: "GET /" phase: PHASE_REQ }
    fault { error {} }
  }
}
`

func TestParsePolicy(t *testing.T) {
	b := wire(t, fullPolicy)
	p, err := ParsePolicy(b)
	if err != nil {
		t.Fatal(err)
	}
	// The policy must not live in the caller's bytes.
	for i := range b {
		b[i] = 0xff
	}
	if p.Service != "shop" || p.Version != "v7" || p.TraceHeader != "x-trace" {
		t.Errorf("policy %+v", p)
	}
	if want := (Reporting{Cluster: "otlp", Path: "/v1/traces", Authority: "otlp"}); p.Reporting != want {
		t.Errorf("reporting %+v", p.Reporting)
	}
	if p.peers["pay-v2"].service != "pay" || !p.peers["db"].leaf {
		t.Errorf("peers %+v", p.peers)
	}
	if p.templates[0].text != "/a/b" || len(p.edges) != 2 || p.edges[0].act == nil || p.edges[1].act != nil {
		t.Errorf("templates %+v edges %+v", p.templates, p.edges)
	}
	a := p.Activation(Key{1, 2, 3, 4, 5, 6, 7})
	if a == nil || !p.Has(a.Key) || p.Has(Key{1, 2, 3, 4, 5, 6, 8}) {
		t.Fatal("the activation is not found by its key")
	}
	if !a.PerTrace || a.Remaining != time.Minute+500 || a.self != 2 || a.Width() != 3+4 || a.FiredIndex(1) != 4 {
		t.Errorf("activation %+v", a)
	}
	pay := Op{Observer: "shop", Role: RoleClient, Peer: "pay", API: "POST /pay", Phase: PhaseReq}
	paid := pay
	paid.Phase = PhaseResp
	want := []Predicate{
		{Op: pay},
		{Op: paid, Outcome: OutcomeSuccess, Delivered: true},
		{
			Op:         Op{Observer: "pay", Role: RoleServer, API: "GET /", Phase: PhaseReq},
			Identities: []Identity{{Source: SourceHeader, Name: "h", Value: "p", Prefix: true}},
		},
	}
	if d := cmp.Diff(want, a.Predicates); d != "" {
		t.Error(d)
	}
	tfics := []*TFIC{
		{
			ID: "t-1", Max: 3, AnswerKind: AnswerUnary,
			Target: Target{
				Caller: "shop", Callee: "pay", API: "POST /pay", Phase: PhaseResp, K: 2, EnforceK: true, Placement: PlacementCaller,
				When: OutcomeStatus, WhenStatus: 201, Identities: []Identity{{Source: SourceQuery, Name: "user", Value: "7"}},
			},
			Fault: Fault{Kind: FaultError, Error: ErrorSpec{
				HTTPStatus: 500, GRPCStatus: 13, GRPCMessage: "no", Body: []byte("text"), Headers: []Header{{"retry-after", "1"}},
			}},
			guard: &guard{op: guardAfter, kids: []guard{{op: guardAllOf, kids: []guard{
				{op: guardAtom, predicate: 0, count: 2},
				{op: guardAtom, predicate: 1, count: 1},
				{op: guardAtom, predicate: 0, count: 9},
			}}}},
		},
		{
			Index: 1, ID: "t.2", Max: 1,
			Target: Target{Callee: "shop", API: "GET /", Phase: PhaseReq, Placement: PlacementCallee},
			Fault:  Fault{Kind: FaultDelay, Delay: Delay{Distribution: DelayNormal, A: time.Second, B: 7}},
			guard:  &guard{op: guardAtom, predicate: 2, count: 1},
		},
		{
			Index: 2, ID: "t_3", Max: 1,
			Target: Target{Caller: "shop", Callee: "x", API: "GET /", Phase: PhaseReq, Placement: PlacementCaller},
			Fault:  Fault{Kind: FaultDrop, Drop: defaultDrop},
		},
		{
			Index: 3, ID: "t4", Max: 1,
			Target: Target{Caller: "shop", Callee: "x", API: "GET /", Phase: PhaseReq, Placement: PlacementCaller},
			Fault:  Fault{Kind: FaultError, Error: ErrorSpec{HTTPStatus: 503, GRPCStatus: 14, GRPCMessage: "fault injected by SequenceFI"}},
		},
	}
	if d := cmp.Diff(tfics, a.TFICs, cmp.AllowUnexported(TFIC{}, guard{})); d != "" {
		t.Error(d)
	}
}

// activation wraps what stands inside of an activation that is right otherwise.
func activation(inside string) string {
	return `service: "a" activations { key: "1234567" remaining { seconds: 1 } ` + inside + ` }`
}

// tfic adds what a TFIC still needs to be right.
func tfic(inside string) string {
	for field, rest := range map[string]string{
		"id: ":     `"t"`,
		"target {": `caller: "a" callee: "b" api: "GET /" phase: PHASE_REQ }`,
		"fault {":  `abort {} }`,
	} {
		if !strings.HasPrefix(inside, field) {
			inside += " " + field + rest
		}
	}
	return activation(`tfics { ` + inside + ` }`)
}

func TestParsePolicyProblems(t *testing.T) {
	const op = `op { observer: "a" role: ROLE_CLIENT peer: "b" api: "GET /" phase: PHASE_REQ }`
	const respOp = `op { observer: "a" role: ROLE_SERVER peer: "b" api: "GET /" phase: PHASE_RESP }`
	for _, tc := range []struct {
		name, text string
		paths      []string
	}{
		{"nothing", ``, []string{"service"}},
		{"all of several", `peers {} templates { path: "x" } trace_header: "X" exempt_paths: "x" activations {}`, []string{
			"trace_header", "service", "peers[0].service", "templates[0].path", "exempt_paths[0]",
			"activations[0].key", "activations[0].remaining",
		}},
		{"empty cluster", `service: "a" peers { service: "b" clusters: "" }`, []string{"peers[0].clusters[0]"}},
		{"cluster of two", `service: "a" peers { service: "b" clusters: "x" } peers { service: "c" clusters: "y" clusters: "x" }`, []string{"peers[1].clusters[1]"}},
		{"edge rule for everything", `service: "a" edge_rules { key: "1234567" }`, []string{"edge_rules[0].identities"}},
		{"edge rule with half an identity", `service: "a" edge_rules { key: "12" identities { } }`, []string{
			"edge_rules[0].key", "edge_rules[0].identities[0].source", "edge_rules[0].identities[0].match",
		}},
		{"identity without a name", `service: "a" edge_rules { key: "1234567" identities { query: "" exact: "" } identities { header: "X" prefix: "" } }`, []string{
			"edge_rules[0].identities[0].query", "edge_rules[0].identities[1].header",
		}},
		{"keys too near", activation("") + ` activations { key: "1234568" remaining { seconds: 1 } }`, []string{"activations[1].key"}},
		{"lifetime too long", `service: "a" activations { key: "1234567" remaining { seconds: 3601 } }`, []string{"activations[0].remaining"}},
		{"lifetime beyond all bounds", `service: "a" activations { key: "1234567" remaining { seconds: 9223372036854775807 } }`, []string{"activations[0].remaining"}},
		{"lifetime over", `service: "a" activations { key: "1234567" remaining { seconds: -9223372036854775807 } }`, []string{"activations[0].remaining"}},
		{"service twice", activation(`services: "a" services: "" services: "a"`), []string{"activations[0].services[1]", "activations[0].services[2]"}},
		{"empty TFIC", activation(`tfics {}`), []string{"activations[0].tfics[0].id", "activations[0].tfics[0].target", "activations[0].tfics[0].fault"}},
		{"empty target", activation(`tfics { id: "t" fault { abort {} } target { enforce_k: true } }`), []string{
			"activations[0].tfics[0].target.placement", "activations[0].tfics[0].target.callee", "activations[0].tfics[0].target.api",
			"activations[0].tfics[0].target.phase", "activations[0].tfics[0].target.k",
		}},
		{"outcome of a request", tfic(`target { caller: "a" callee: "b" api: "GET /" phase: PHASE_REQ when: OUTCOME_SUCCESS when_status: 3 }`), []string{
			"activations[0].tfics[0].target.when", "activations[0].tfics[0].target.when_status",
		}},
		{"two of one id", activation(strings.Repeat(`tfics { id: "t" target { caller: "a" callee: "b" api: "GET /" phase: PHASE_REQ } fault { abort {} } }`, 2)), []string{"activations[0].tfics[1].id"}},
		{"bad id", tfic(`id: "no space"`), []string{"activations[0].tfics[0].id"}},
		{"empty guard", tfic(`guard {}`), []string{"activations[0].tfics[0].guard"}},
		{"empty atom", tfic(`guard { after { all_of { guards { atom {} } } } }`), []string{"activations[0].tfics[0].guard.after.all_of.guards[0].atom.event"}},
		{"atom without count", tfic(`guard { atom { event { ` + op + ` } } }`), []string{"activations[0].tfics[0].guard.atom.count"}},
		{"empty op", tfic(`guard { atom { count: 1 event { op {} } } }`), []string{
			"activations[0].tfics[0].guard.atom.event.op.observer", "activations[0].tfics[0].guard.atom.event.op.role",
			"activations[0].tfics[0].guard.atom.event.op.api", "activations[0].tfics[0].guard.atom.event.op.phase",
		}},
		{"client without peer", tfic(`guard { atom { count: 1 event { op { observer: "a" role: ROLE_CLIENT api: "GET /" phase: PHASE_REQ } } } }`), []string{"activations[0].tfics[0].guard.atom.event.op.peer"}},
		{"delivered at the server", tfic(`guard { atom { count: 1 event { ` + respOp + ` delivered: true } } }`), []string{"activations[0].tfics[0].guard.atom.event.delivered"}},
		{"status of no outcome", tfic(`guard { atom { count: 1 event { ` + respOp + ` status: 7 } } }`), []string{"activations[0].tfics[0].guard.atom.event.status"}},
		{"status of no protocol", tfic(`guard { atom { count: 1 event { ` + respOp + ` outcome: OUTCOME_STATUS status: 600 } } }`), []string{"activations[0].tfics[0].guard.atom.event.status"}},
		{"no op", tfic(`guard { atom { count: 1 event { } } }`), []string{"activations[0].tfics[0].guard.atom.event.op"}},
		{"deep guard", tfic(`guard { ` + strings.Repeat(`after { `, 16) + `all_of {}` + strings.Repeat(` }`, 16) + ` }`), []string{
			"activations[0].tfics[0].guard" + strings.Repeat(".after", 16),
		}},
		{"wide guard", tfic(`guard { all_of { ` + strings.Repeat(`guards { atom { count: 1 event { `+op+` } } }`, 256) + ` } }`), []string{"activations[0].tfics[0].guard"}},
		{"no fault", tfic(`fault { }`), []string{"activations[0].tfics[0].fault"}},
		{"no delay", tfic(`fault { delay {} }`), []string{"activations[0].tfics[0].fault.delay"}},
		{"endless delay", tfic(`fault { delay { fixed { seconds: 301 } } }`), []string{"activations[0].tfics[0].fault.delay"}},
		{"delay from max to min", tfic(`fault { delay { uniform { min { seconds: 2 } max { seconds: 1 } } } }`), []string{"activations[0].tfics[0].fault.delay.uniform"}},
		{"endless drop", tfic(`fault { drop { limit { seconds: 301 } } }`), []string{"activations[0].tfics[0].fault.drop.limit"}},
		{"bad error", tfic(`fault { error { http_status: 99 grpc_status: 17 headers { name: "X" value: "a\nb" } } }`), []string{
			"activations[0].tfics[0].fault.error.headers[0].name", "activations[0].tfics[0].fault.error.headers[0]",
			"activations[0].tfics[0].fault.error.http_status", "activations[0].tfics[0].fault.error.grpc_status",
		}},
		{"large error", tfic(`fault { error { body: "` + strings.Repeat("x", 4097) + `"` + strings.Repeat(` headers { name: "a" }`, 17) + ` } }`), []string{
			"activations[0].tfics[0].fault.error.body", "activations[0].tfics[0].fault.error.headers",
		}},
		{"unknown enum", `service: "a" activations { key: "1234567" remaining { seconds: 1 } scope: 3 }`, []string{"activations[0].scope"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParsePolicy(wire(t, tc.text))
			var e *PolicyError
			if !errors.As(err, &e) || !errors.Is(err, ErrPolicy) {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, p := range e.Problems {
				got = append(got, p.Path)
				if p.Want == "" || !strings.Contains(e.Error(), p.Path+": "+p.Want) {
					t.Errorf("%q does not tell of %+v", e, p)
				}
			}
			slices.Sort(got)
			slices.Sort(tc.paths)
			if d := cmp.Diff(tc.paths, got); d != "" {
				t.Errorf("%s\n%v", d, err)
			}
		})
	}
}

func TestParsePolicyBudgets(t *testing.T) {
	tfics := func(n, atoms int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `tfics { id: "t%d" target { caller: "a" callee: "b" api: "GET /" phase: PHASE_REQ } fault { abort {} } guard { all_of {`, i)
			for j := range atoms {
				fmt.Fprintf(&b, ` guards { atom { count: 1 event { op { observer: "a" role: ROLE_CLIENT peer: "b" api: "GET /%d-%d" phase: PHASE_REQ } } } }`, i, j)
			}
			b.WriteString(` } } }`)
		}
		return b.String()
	}
	// observers names n services, each of which has an event that a guard counts.
	observers := func(n int) string {
		var b strings.Builder
		b.WriteString(`tfics { id: "t" target { caller: "a" callee: "b" api: "GET /" phase: PHASE_REQ } fault { abort {} } guard { all_of {`)
		for i := range n {
			fmt.Fprintf(&b, ` guards { atom { count: 1 event { op { observer: "s%d" role: ROLE_SERVER api: "GET /" phase: PHASE_REQ } } } }`, i)
		}
		b.WriteString(` } } }`)
		return b.String()
	}
	var services strings.Builder
	for i := range 4096 {
		fmt.Fprintf(&services, `services: "s%d" `, i)
	}
	for _, tc := range []struct {
		name, text string
		limits     Limits
		good       bool
	}{
		{name: "64 predicates and TFICs", text: tfics(64, 1), good: true},
		{name: "65 TFICs", text: tfics(65, 0)},
		{name: "65 predicates", text: tfics(1, 65)},
		{name: "a recording in a large mesh", text: services.String(), good: true},
		{name: "64 predicates in a large mesh", text: services.String() + tfics(64, 1), good: true},
		{name: "as many observers as a header holds", text: observers(64), good: true},
		{name: "more", text: observers(120), limits: Limits{Predicates: 120}},
		{name: "raised", text: tfics(65, 2) + services.String(), limits: Limits{Predicates: 1000, TFICs: 1000, EvidenceBytes: 1 << 20}, good: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParsePolicyWithin(wire(t, activation(tc.text)), tc.limits)
			if (err == nil) != tc.good {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestEvidenceBoundHolds: what the bound promises fits, if each index is counted at one service.
func TestEvidenceBoundHolds(t *testing.T) {
	a := &Activation{Predicates: make([]Predicate, 64)}
	for i := range a.Predicates {
		a.Predicates[i].Op.Observer = string(rune('a' + i%20))
	}
	for i := range 64 {
		t := &TFIC{Target: Target{Caller: string(rune('a' + i%20)), Callee: "z"}}
		if i%2 == 1 {
			t.Target.Caller, t.Target.Callee, t.Target.Placement = "z", t.Target.Caller, PlacementCallee
		}
		a.TFICs = append(a.TFICs, t)
	}
	c := NewCounter(a.Width())
	for i := range a.Width() {
		c.Raise(Tag(1+i%64%20)<<40, i, 127)
	}
	raw, full := appendEvidence(nil, sender{tag: 1 << 40, seq: math.MaxUint32, k: 1000, service: 20}, c, a.evidenceBound())
	if !full {
		t.Errorf("%d bytes do not hold it", a.evidenceBound())
	}
	if len(appendBase64(nil, raw)) > 1024 {
		t.Errorf("%d characters", len(appendBase64(nil, raw)))
	}
}

func TestParsePolicyOfOtherWireTypes(t *testing.T) {
	good := wire(t, fullPolicy)
	for n := range len(good) {
		if _, err := ParsePolicy(good[:n]); err != nil && !errors.Is(err, ErrPolicy) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	text := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "x")
	inside := protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), text)
	for _, b := range [][]byte{number, inside} {
		_, err := ParsePolicy(b)
		if err == nil || !strings.Contains(err.Error(), "wire type") {
			t.Errorf("%x: %v", b, err)
		}
	}
	// Fields from the future are passed over.
	future := protowire.AppendString(protowire.AppendTag(good, 900, protowire.BytesType), "x")
	future = protowire.AppendFixed64(protowire.AppendTag(future, 901, protowire.Fixed64Type), 1)
	if _, err := ParsePolicy(future); err != nil {
		t.Error(err)
	}
}

// FuzzPolicy: any bytes may come; what is accepted can be used.
func FuzzPolicy(f *testing.F) {
	f.Add(wire(f, fullPolicy))
	f.Add(wire(f, activation("")))
	f.Add(wire(f, tfic(`guard { after { all_of { guards { all_of {} } } } }`)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePolicy(b)
		if err != nil {
			var e *PolicyError
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("error %v", err)
			}
			return
		}
		e := NewEngine(p, NewMemory(4), Options{Rand: func() uint64 { return 1 }})
		for _, a := range p.Activations {
			var c Call
			for _, role := range []Role{RoleClient, RoleServer} {
				e.Request(&c, &Request{Role: role, Method: "GET", Path: "/", Headers: lines{"traceparent": "00-" + NewTraceID(a.Key, 1).String() + "-" + spanID + "-01"}})
				e.Response(&c, &Response{Status: 200, Headers: lines{}})
				e.Delivered(&c, 0)
			}
		}
	})
}
