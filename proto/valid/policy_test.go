package valid

import (
	"fmt"
	"strings"
	"testing"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

const goodOp = `{"observer":"shop","role":"ROLE_CLIENT","peer":"pay","api":"POST /charge","phase":"PHASE_RESP"}`

const goodTFIC = `{
  "id": "shop-pay-k1-resp-abort",
  "target": {"caller":"shop","callee":"pay","api":"POST /charge","phase":"PHASE_RESP","k":1,"enforceK":true,
    "when":"OUTCOME_SUCCESS","identities":[{"query":"id","exact":"42"}]},
  "guard": {"after":{"allOf":{"guards":[{"atom":{"count":1,"event":{"op":` + goodOp + `,"outcome":"OUTCOME_SUCCESS"}}}]}}},
  "fault": {"abort":{}}
}`

const goodActivation = `{"key":"AQIDBAUGBw==","remaining":"60s","services":["pay","shop"],"tfics":[` + goodTFIC + `]}`

const goodPolicy = `{
  "service":"shop","version":"7",
  "peers":[{"service":"pay","clusters":["outbound|80||pay"]},{"service":"db","clusters":["db"],"leaf":true}],
  "templates":[{"path":"/customers/{id}"},{"path":"/files/{rest...}"}],
  "traceHeader":"x-trace",
  "edgeRules":[{"key":"AQIDBAUGBw==","identities":[{"header":"x-user","prefix":"test-"}]}],
  "exemptPaths":["/healthz"],
  "reporting":{"cluster":"sequencefi_otlp","path":"/v1/traces","authority":"otlp:4318"},
  "activations":[` + goodActivation + `]
}`

func TestOp(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*tfiv1.Op)
		want []string
	}{
		{"good", func(*tfiv1.Op) {}, nil},
		{"no observer", func(m *tfiv1.Op) { m.Observer = "" }, []string{"observer: must name a service"}},
		{"observer with a space", func(m *tfiv1.Op) { m.Observer = "a b" }, []string{"observer: printable"}},
		{"long observer", func(m *tfiv1.Op) { m.Observer = strings.Repeat("a", 254) }, []string{"observer: at most 253"}},
		{"no role", func(m *tfiv1.Op) { m.Role = 0 }, []string{"role: must be ROLE_CLIENT or ROLE_SERVER"}},
		{"unknown role", func(m *tfiv1.Op) { m.Role = 9 }, []string{"role: got 9"}},
		{"client without a peer", func(m *tfiv1.Op) { m.Peer = "" }, []string{"peer: must name the callee"}},
		{"server without a peer", func(m *tfiv1.Op) { m.Peer = ""; m.Role = tfiv1.Role_ROLE_SERVER }, nil},
		{"peer with a line break", func(m *tfiv1.Op) { m.Peer = "a\nb" }, []string{"peer: printable"}},
		{"no api", func(m *tfiv1.Op) { m.Api = "" }, []string{"api: must be \"METHOD"}},
		{"api with a query", func(m *tfiv1.Op) { m.Api = "GET /a?b" }, []string{"api: must be \"METHOD"}},
		{"api with a bad method", func(m *tfiv1.Op) { m.Api = "G\"T /a" }, []string{"api: must be \"METHOD"}},
		{"api without a method", func(m *tfiv1.Op) { m.Api = "/a" }, []string{"api: must be \"METHOD"}},
		{"long api", func(m *tfiv1.Op) { m.Api = "GET /" + strings.Repeat("a", 1024) }, []string{"api: at most 1024"}},
		{"gRPC api", func(m *tfiv1.Op) { m.Api = "driver.DriverService/FindNearest" }, nil},
		{"gRPC api with two slashes", func(m *tfiv1.Op) { m.Api = "a.B/C/D" }, []string{"api: must be"}},
		{"gRPC api with an empty package", func(m *tfiv1.Op) { m.Api = ".B/C" }, []string{"api: must be"}},
		{"no phase", func(m *tfiv1.Op) { m.Phase = 0 }, []string{"phase: must be PHASE_REQ or PHASE_RESP"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Op
			fromJSON(t, goodOp, &m)
			test.edit(&m)
			expect(t, Op(&m), test.want...)
		})
	}
}

func TestEventPredicate(t *testing.T) {
	good := `{"op":` + goodOp + `,"identities":[{"path":true,"prefix":"/charge"}]}`
	for _, test := range []struct {
		name string
		edit func(*tfiv1.EventPredicate)
		want []string
	}{
		{"good", func(*tfiv1.EventPredicate) {}, nil},
		{"no op", func(m *tfiv1.EventPredicate) { m.Op = nil }, []string{
			"op.observer: must name", "op.role: must be", "op.api: must be", "op.phase: must be",
		}},
		{"status without an outcome", func(m *tfiv1.EventPredicate) { m.Status = 500 }, []string{"status: needs outcome OUTCOME_STATUS"}},
		{"HTTP status", func(m *tfiv1.EventPredicate) { m.Outcome, m.Status = tfiv1.Outcome_OUTCOME_STATUS, 500 }, nil},
		{"HTTP status out of range", func(m *tfiv1.EventPredicate) { m.Outcome, m.Status = tfiv1.Outcome_OUTCOME_STATUS, 14 }, []string{"status: HTTP status from 200"}},
		{"gRPC status out of range", func(m *tfiv1.EventPredicate) {
			m.Op.Api, m.Outcome, m.Status = "a.B/C", tfiv1.Outcome_OUTCOME_STATUS, 17
		}, []string{"status: gRPC status from 0 to 16"}},
		{"unknown outcome", func(m *tfiv1.EventPredicate) { m.Outcome = 77 }, []string{"outcome: known outcome"}},
		{"outcome of a request", func(m *tfiv1.EventPredicate) {
			m.Op.Phase, m.Outcome = tfiv1.Phase_PHASE_REQ, tfiv1.Outcome_OUTCOME_FAILURE
		}, []string{"outcome: needs PHASE_RESP"}},
		{"delivered", func(m *tfiv1.EventPredicate) { m.Delivered = true }, nil},
		{"delivered at the server", func(m *tfiv1.EventPredicate) { m.Delivered, m.Op.Role = true, tfiv1.Role_ROLE_SERVER }, []string{"delivered: needs ROLE_CLIENT"}},
		{"delivered request", func(m *tfiv1.EventPredicate) { m.Delivered, m.Op.Phase = true, tfiv1.Phase_PHASE_REQ }, []string{"delivered: needs ROLE_CLIENT"}},
		{"too many identities", func(m *tfiv1.EventPredicate) {
			for range 16 {
				m.Identities = append(m.Identities, m.Identities[0])
			}
		}, []string{"identities: at most 16"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.EventPredicate
			fromJSON(t, good, &m)
			test.edit(&m)
			expect(t, EventPredicate(&m), test.want...)
		})
	}
}

func TestIdentity(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"path", `{"path":true,"exact":"/a"}`, ""},
		{"query", `{"query":"id","exact":""}`, ""},
		{"header", `{"header":"x-user","prefix":"a"}`, ""},
		{"path is false", `{"path":false,"exact":"/a"}`, "path: must be true"},
		{"empty query", `{"query":"","exact":"a"}`, "query: must name"},
		{"upper-case header", `{"header":"X-User","exact":"a"}`, "header: lower case"},
		{"no source", `{"exact":"a"}`, "must have one of path, query and header"},
		{"no match", `{"query":"id"}`, "must have one of exact and prefix"},
		{"empty prefix", `{"query":"id","prefix":""}`, "prefix: must not be empty"},
		{"path without a slash", `{"path":true,"prefix":"a"}`, "prefix: must begin with"},
		{"long value", `{"query":"id","exact":"` + strings.Repeat("a", 1025) + `"}`, "exact: at most 1024"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Identity
			fromJSON(t, test.text, &m)
			expectOne(t, Identity(&m), test.want)
		})
	}
}

// expectOne is expect for at most one problem; an empty want means none.
func expectOne(t *testing.T, problems []Problem, want string) {
	t.Helper()
	if want == "" {
		expect(t, problems)
		return
	}
	expect(t, problems, want)
}

func TestGuard(t *testing.T) {
	atom := &tfiv1.Guard{}
	fromJSON(t, `{"atom":{"count":1,"event":{"op":`+goodOp+`}}}`, atom)
	all := func(g ...*tfiv1.Guard) *tfiv1.Guard {
		return &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: &tfiv1.AllOf{Guards: g}}}
	}
	after := func(g *tfiv1.Guard) *tfiv1.Guard {
		return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: g}}
	}
	nested := func(levels int) *tfiv1.Guard {
		g := atom
		for range levels - 1 {
			g = after(g)
		}
		return g
	}
	many := func(n int) *tfiv1.Guard {
		list := make([]*tfiv1.Guard, n)
		for i := range list {
			list[i] = atom
		}
		return all(list...)
	}
	for _, test := range []struct {
		name  string
		guard *tfiv1.Guard
		want  []string
	}{
		{"atom", atom, nil},
		{"16 levels", nested(16), nil},
		{"17 levels", nested(17), []string{"at most 16 levels"}},
		{"5,000 levels", nested(5000), []string{"at most 16 levels"}},
		{"256 nodes", many(255), nil},
		{"257 nodes", many(256), []string{"at most 256 nodes"}},
		{"a million nodes", many(1_000_000), []string{"at most 256 nodes"}},
		{"empty all_of", all(), []string{"allOf.guards: at least one"}},
		{"nothing", &tfiv1.Guard{}, []string{"must have one of atom, allOf and after"}},
		{"nothing inside", after(all(atom, &tfiv1.Guard{})), []string{"after.allOf.guards[1]: must have one of"}},
		{"count 0", &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: atom.GetAtom().Event}}}, []string{"atom.count: at least 1"}},
	} {
		t.Run(test.name, func(t *testing.T) { expect(t, Guard(test.guard), test.want...) })
	}
}

func TestFault(t *testing.T) {
	headers := `{"error":{"headers":[` + strings.Repeat(`{"name":"a","value":"b"},`, 16) + `{"name":"a","value":"b"}]}}`
	for _, test := range []struct{ name, text, want string }{
		{"abort", `{"abort":{}}`, ""},
		{"drop", `{"drop":{}}`, ""},
		{"drop with a limit", `{"drop":{"limit":"300s"}}`, ""},
		{"drop for too long", `{"drop":{"limit":"301s"}}`, "drop.limit: from 0s to 5m0s (got 5m1s)"},
		{"error", `{"error":{}}`, ""},
		{"error in full", `{"error":{"httpStatus":500,"grpcStatus":13,"body":"b29wcw==","headers":[{"name":"retry-after","value":"1"}]}}`, ""},
		{"no kind", `{}`, "must have one of delay, error, abort and drop"},
		{"fixed", `{"delay":{"fixed":"0.1s"}}`, ""},
		{"fixed, too long", `{"delay":{"fixed":"301s"}}`, "delay.fixed: from 1ms to 5m0s"},
		{"fixed, negative", `{"delay":{"fixed":"-1s"}}`, "delay.fixed: got -1s"},
		{"delay of no kind", `{"delay":{}}`, "delay: must have one of fixed"},
		{"uniform", `{"delay":{"uniform":{"min":"0s","max":"1s"}}}`, ""},
		{"uniform, reversed", `{"delay":{"uniform":{"min":"2s","max":"1s"}}}`, "delay.uniform.min: must be at most max (2s > 1s)"},
		{"uniform without max", `{"delay":{"uniform":{}}}`, "delay.uniform.max: must be a duration"},
		{"uniform, min too long", `{"delay":{"uniform":{"min":"400s","max":"300s"}}}`, "delay.uniform.min: *"},
		{"normal", `{"delay":{"normal":{"mean":"0.1s","stddev":"0.05s"}}}`, ""},
		{"normal without mean", `{"delay":{"normal":{}}}`, "delay.normal.mean: must be"},
		{"normal, negative stddev", `{"delay":{"normal":{"mean":"1s","stddev":"-1s"}}}`, "delay.normal.stddev: from 0s"},
		{"exponential", `{"delay":{"exponential":{"mean":"0.1s"}}}`, ""},
		{"exponential without mean", `{"delay":{"exponential":{}}}`, "delay.exponential.mean: must be"},
		{"HTTP status below 200", `{"error":{"httpStatus":100}}`, "error.httpStatus: from 200 to 599"},
		{"HTTP status above 599", `{"error":{"httpStatus":600}}`, "error.httpStatus: got 600"},
		{"gRPC status above 16", `{"error":{"grpcStatus":17}}`, "error.grpcStatus: from 1 to 16"},
		{"gRPC message with a line break", `{"error":{"grpcMessage":"a\r\nb: c"}}`, "error.grpcMessage: no line break"},
		{"large body", `{"error":{"body":"` + strings.Repeat("AAAA", 1366) + `"}}`, "error.body: at most 4096"},
		{"17 headers", headers, "error.headers: at most 16 (got 17)"},
		{"header in upper case", `{"error":{"headers":[{"name":"A"}]}}`, "error.headers[0].name: lower case"},
		{"header of ours", `{"error":{"headers":[{"name":"x-fic-evidence"}]}}`, "error.headers[0].name: the sidecar sets it"},
		{"header of the connection", `{"error":{"headers":[{"name":"content-length","value":"1"}]}}`, "error.headers[0].name: the sidecar sets it"},
		{"header value with a line break", `{"error":{"headers":[{"name":"a","value":"b\nc"}]}}`, "error.headers[0].value: no line break"},
		{"huge header value", `{"error":{"headers":[{"name":"a","value":"` + strings.Repeat("a", 8193) + `"}]}}`, "error.headers[0].value: at most 8 KiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Fault
			fromJSON(t, test.text, &m)
			got := Fault(&m)
			if path, ok := strings.CutSuffix(test.want, ": *"); ok { // two at one path
				expect(t, got, path+": must be a duration", path+": must be at most max")
				return
			}
			expectOne(t, got, test.want)
		})
	}
}

func TestTFIC(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*tfiv1.Tfic)
		want []string
	}{
		{"good", func(*tfiv1.Tfic) {}, nil},
		{"no guard", func(m *tfiv1.Tfic) { m.Guard = nil }, nil},
		{"no id", func(m *tfiv1.Tfic) { m.Id = "" }, []string{"id: 1 to 64 characters"}},
		{"long id", func(m *tfiv1.Tfic) { m.Id = strings.Repeat("a", 65) }, []string{"id: 1 to 64 characters"}},
		{"id with a slash", func(m *tfiv1.Tfic) { m.Id = "a/b" }, []string{"id: 1 to 64 characters"}},
		{"no target", func(m *tfiv1.Tfic) { m.Target = nil }, []string{"target: must say where"}},
		{"no fault", func(m *tfiv1.Tfic) { m.Fault = nil }, []string{"fault: must say what"}},
		{"empty guard", func(m *tfiv1.Tfic) { m.Guard = &tfiv1.Guard{} }, []string{"guard: must have one of"}},
		{"unknown answer kind", func(m *tfiv1.Tfic) { m.AnswerKind = 9 }, []string{"answerKind: must be"}},
		{"caller with a space", func(m *tfiv1.Tfic) { m.Target.Caller = "a b" }, []string{"target.caller: printable"}},
		{"no callee", func(m *tfiv1.Tfic) { m.Target.Callee = "" }, []string{"target.callee: must name"}},
		{"bad api", func(m *tfiv1.Tfic) { m.Target.Api = "x" }, []string{"target.api: must be"}},
		{"no phase", func(m *tfiv1.Tfic) { m.Target.Phase = 0 }, []string{"target.phase: must be"}},
		{"k enforced but absent", func(m *tfiv1.Tfic) { m.Target.K = 0 }, []string{"target.k: at least 1"}},
		{"unknown placement", func(m *tfiv1.Tfic) { m.Target.Placement = 5 }, []string{"target.placement: must be"}},
		{"no caller, placed there", func(m *tfiv1.Tfic) { m.Target.Caller = "" }, []string{"target.placement: must be PLACEMENT_CALLEE"}},
		{"no caller, placed at the callee", func(m *tfiv1.Tfic) {
			m.Target.Caller, m.Target.Placement = "", tfiv1.Placement_PLACEMENT_CALLEE
		}, nil},
		{"when, of a request", func(m *tfiv1.Tfic) { m.Target.Phase = tfiv1.Phase_PHASE_REQ }, []string{"target.when: needs PHASE_RESP"}},
		{"when status alone", func(m *tfiv1.Tfic) { m.Target.WhenStatus = 200 }, []string{"target.whenStatus: needs when OUTCOME_STATUS"}},
		{"bad identity", func(m *tfiv1.Tfic) { m.Target.Identities[0].Match = nil }, []string{"target.identities[0]: must have one of exact"}},
		{"everything at once", func(m *tfiv1.Tfic) {
			m.Id, m.Target.Callee, m.Fault, m.Target.Phase = "", "", nil, 3
		}, []string{"id: 1 to", "target.callee: must", "target.phase: got 3", "fault: must say"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Tfic
			fromJSON(t, goodTFIC, &m)
			test.edit(&m)
			expect(t, Tfic(&m), test.want...)
		})
	}
	expectOne(t, StaticConfiguration(&tfiv1.StaticConfiguration{
		Caller: "a", Callee: "b", Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ,
	}), "")
}

func TestActivation(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*tfiv1.Activation)
		want []string
	}{
		{"good", func(*tfiv1.Activation) {}, nil},
		{"recording", func(m *tfiv1.Activation) { m.Tfics = nil }, nil},
		{"short key", func(m *tfiv1.Activation) { m.Key = m.Key[:6] }, []string{"key: must be 7 random bytes (got 6)"}},
		{"zero key", func(m *tfiv1.Activation) { m.Key = make([]byte, 7) }, []string{"key: must be random"}},
		{"unknown scope", func(m *tfiv1.Activation) { m.Scope = 9 }, []string{"scope: must be"}},
		{"no lifetime", func(m *tfiv1.Activation) { m.Remaining = nil }, []string{"remaining: must be a duration from 1ms to 1h0m0s"}},
		{"long lifetime", func(m *tfiv1.Activation) { m.Remaining.Seconds = 3601 }, []string{"remaining: got 1h0m1s"}},
		{"nameless service", func(m *tfiv1.Activation) { m.Services = append(m.Services, "") }, []string{"services[2]: must name"}},
		{"service twice", func(m *tfiv1.Activation) { m.Services = append(m.Services, "pay") }, []string{"services[2]: must be unique"}},
		{"too many services", func(m *tfiv1.Activation) {
			for i := range 4095 {
				m.Services = append(m.Services, fmt.Sprint("s", i))
			}
		}, []string{"services: at most 4096"}},
		{"id twice", func(m *tfiv1.Activation) { m.Tfics = append(m.Tfics, m.Tfics[0]) }, []string{"tfics[1].id: must be unique in its activation (tfics[0]"}},
		{"injector unknown", func(m *tfiv1.Activation) { m.Services = []string{"pay"} }, []string{
			"tfics[0].target.caller: must be one of the activation's services",
			"tfics[0].guard: every observer must be one",
		}},
		{"callee unknown, but it makes no fault", func(m *tfiv1.Activation) { m.Services = []string{"shop"} }, nil},
		{"callee unknown", func(m *tfiv1.Activation) {
			m.Services = []string{"shop"}
			m.Tfics[0].Target.Placement = tfiv1.Placement_PLACEMENT_CALLEE
		}, []string{"tfics[0].target.callee: must be one of"}},
		{"no service table", func(m *tfiv1.Activation) { m.Services = nil }, nil},
		{"64 predicates", func(m *tfiv1.Activation) { m.Tfics = manyPredicates(t, 64) }, nil},
		{"65 predicates", func(m *tfiv1.Activation) { m.Tfics = manyPredicates(t, 65) }, []string{"tfics: at most 64 different event predicates"}},
		{"65 TFICs", func(m *tfiv1.Activation) {
			for i := range 64 {
				var one tfiv1.Tfic
				fromJSON(t, goodTFIC, &one)
				one.Id = fmt.Sprint("t", i)
				m.Tfics = append(m.Tfics, &one)
			}
		}, []string{"tfics: must be at most 64 (got 65)"}},
		{"evidence too large", func(m *tfiv1.Activation) {
			m.Services = nil
			m.Tfics = manyPredicates(t, 64)
			i := 0
			for _, f := range m.Tfics {
				f.Target.Caller = fmt.Sprint("caller-", f.Id)
				for a := range atoms(f.Guard) {
					a.Event.Op.Observer = fmt.Sprint("observer-", i)
					i++
				}
			}
			for i := range 30 {
				var one tfiv1.Tfic
				fromJSON(t, goodTFIC, &one)
				one.Id, one.Guard, one.Target.Caller = fmt.Sprint("x", i), nil, fmt.Sprint("caller-x", i)
				m.Tfics = append(m.Tfics, &one)
			}
		}, []string{"tfics: must need at most 1024 bytes of evidence header"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Activation
			fromJSON(t, goodActivation, &m)
			test.edit(&m)
			expect(t, Activation(&m), test.want...)
		})
	}
}

// manyPredicates makes TFICs whose guards name n different predicates.
func manyPredicates(t *testing.T, n int) []*tfiv1.Tfic {
	t.Helper()
	var f tfiv1.Tfic
	fromJSON(t, goodTFIC, &f)
	list := &tfiv1.AllOf{}
	for i := range n {
		var a tfiv1.Atom
		fromJSON(t, `{"count":1,"event":{"op":`+goodOp+`}}`, &a)
		a.Event.Op.Api = fmt.Sprint("GET /", i)
		list.Guards = append(list.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &a}})
	}
	f.Guard = &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: list}}
	return []*tfiv1.Tfic{&f}
}

func TestActivationIn(t *testing.T) {
	fleet := func(n int) func(string) int {
		return func(service string) int {
			if service == "shop" {
				return n
			}
			return 1
		}
	}
	var m tfiv1.Activation
	fromJSON(t, goodActivation, &m)
	target := m.Tfics[0].Target

	expect(t, ActivationIn(&m, fleet(3)))
	target.Identities = nil
	expect(t, ActivationIn(&m, fleet(3)))
	target.EnforceK = false
	expect(t, ActivationIn(&m, fleet(3)), `tfics[0].target: needs enforceK with k, or an identity: 3 instances of "shop"`)
	expect(t, ActivationIn(&m, fleet(1)))
	m.Tfics[0].MaxInjections = Unlimited
	expect(t, ActivationIn(&m, fleet(3)))
	m.Tfics[0].MaxInjections = 0

	target.EnforceK = true
	if small, large := EvidenceSize(&m, fleet(1)), EvidenceSize(&m, fleet(50)); small >= large {
		t.Errorf("evidence of 50 instances takes %d bytes, of one %d", large, small)
	}
	expect(t, ActivationIn(&m, fleet(200)), "tfics: must need at most 1024 bytes")
}

func TestPolicy(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*tfiv1.Policy)
		want []string
	}{
		{"good", func(*tfiv1.Policy) {}, nil},
		{"no version yet", func(m *tfiv1.Policy) { m.Version = "" }, nil},
		{"no service", func(m *tfiv1.Policy) { m.Service = "" }, []string{"service: must name"}},
		{"version with a space", func(m *tfiv1.Policy) { m.Version = "a b" }, []string{"version: printable"}},
		{"nameless peer", func(m *tfiv1.Policy) { m.Peers[0].Service = "" }, []string{"peers[0].service: must name"}},
		{"peer twice", func(m *tfiv1.Policy) { m.Peers[1].Service = "pay" }, []string{"peers[1].service: must be unique (peers[0]"}},
		{"nameless cluster", func(m *tfiv1.Policy) { m.Peers[0].Clusters[0] = "" }, []string{"peers[0].clusters[0]: must name a cluster"}},
		{"cluster with a space", func(m *tfiv1.Policy) { m.Peers[0].Clusters[0] = "a b" }, []string{"peers[0].clusters[0]: printable"}},
		{"cluster twice", func(m *tfiv1.Policy) { m.Peers[1].Clusters[0] = "outbound|80||pay" }, []string{"peers[1].clusters[0]: must lead to one service only"}},
		{"template without a slash", func(m *tfiv1.Policy) { m.Templates[0].Path = "a" }, []string{"templates[0].path: must be a path"}},
		{"template with half a variable", func(m *tfiv1.Policy) { m.Templates[0].Path = "/a/x{id}" }, []string{"templates[0].path: whole segment"}},
		{"template with a nameless variable", func(m *tfiv1.Policy) { m.Templates[0].Path = "/a/{}" }, []string{"templates[0].path: whole segment"}},
		{"template with an early rest", func(m *tfiv1.Policy) { m.Templates[0].Path = "/{a...}/b" }, []string{"templates[0].path: must be the last segment"}},
		{"template twice", func(m *tfiv1.Policy) { m.Templates[1].Path = "/customers/{other}" }, []string{"templates[1].path: must differ from templates[0]"}},
		{"trace header in upper case", func(m *tfiv1.Policy) { m.TraceHeader = "X-Trace" }, []string{"traceHeader: lower case"}},
		{"trace header of ours", func(m *tfiv1.Policy) { m.TraceHeader = "x-fic-evidence" }, []string{"traceHeader: must not be one of"}},
		{"trace formats", func(m *tfiv1.Policy) {
			m.TraceFormats = []tfiv1.TraceFormat{tfiv1.TraceFormat_TRACE_FORMAT_W3C, 0, 99, tfiv1.TraceFormat_TRACE_FORMAT_W3C}
		}, []string{
			"traceFormats[1]: must be a format", "traceFormats[2]: must be a format", "traceFormats[3]: must not be there twice",
		}},
		{"exempt path without a slash", func(m *tfiv1.Policy) { m.ExemptPaths[0] = "healthz" }, []string{"exemptPaths[0]: must be a path prefix"}},
		{"everything exempt", func(m *tfiv1.Policy) { m.ExemptPaths[0] = "/" }, []string{"exemptPaths[0]: would exempt everything"}},
		{"reporting cluster", func(m *tfiv1.Policy) { m.Reporting.Cluster = "a b" }, []string{"reporting.cluster: printable"}},
		{"reporting path", func(m *tfiv1.Policy) { m.Reporting.Path = "v1" }, []string{"reporting.path: must begin"}},
		{"reporting authority", func(m *tfiv1.Policy) { m.Reporting.Authority = "a\r\nb" }, []string{"reporting.authority: must be a host"}},
		{"bad activation", func(m *tfiv1.Policy) { m.Activations[0].Tfics[0].Target.K = 0 }, []string{"activations[0].tfics[0].target.k: at least 1"}},
		{"key twice in its first 48 bits", func(m *tfiv1.Policy) {
			var a tfiv1.Activation
			fromJSON(t, goodActivation, &a)
			a.Key[6]++
			m.Activations = append(m.Activations, &a)
		}, []string{"activations[1].key: its first 6 bytes must be unique (activations[0] has 010203040506"}},
		{"edge rule with a short key", func(m *tfiv1.Policy) { m.EdgeRules[0].Key = nil }, []string{"edgeRules[0].key: must be 7"}},
		{"edge rule of no activation", func(m *tfiv1.Policy) { m.EdgeRules[0].Key = []byte("7654321") }, []string{"edgeRules[0].key: must be the key of one"}},
		{"edge rule for everything", func(m *tfiv1.Policy) { m.EdgeRules[0].Identities = nil }, []string{"edgeRules[0].identities: must have at least one"}},
		{"edge rule with a bad identity", func(m *tfiv1.Policy) { m.EdgeRules[0].Identities[0].Source = nil }, []string{"edgeRules[0].identities[0]: must have one of path"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m tfiv1.Policy
			fromJSON(t, goodPolicy, &m)
			test.edit(&m)
			expect(t, Policy(&m), test.want...)
		})
	}
}
