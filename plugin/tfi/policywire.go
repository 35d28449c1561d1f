package tfi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// ParsePolicy decodes a serialised sequencefi.tfi.v1.Policy within the default
// limits. It keeps nothing of b. Errors: a [*PolicyError] that lists every problem with
// its field path.
func ParsePolicy(b []byte) (*Policy, error) { return ParsePolicyWithin(b, Limits{}) }

// ParsePolicyWithin is [ParsePolicy] with other limits.
func ParsePolicyWithin(b []byte, l Limits) (*Policy, error) {
	d := &policyDecoder{limits: l.orDefault()}
	p := d.policy(bytes.Clone(b))
	if len(d.problems) > 0 {
		return nil, &PolicyError{Problems: d.problems}
	}
	return p, nil
}

type policyDecoder struct {
	limits   Limits
	problems []Problem
}

func (d *policyDecoder) problem(path, want string, args ...any) {
	if len(args) > 0 {
		want = fmt.Sprintf(want, args...)
	}
	d.problems = append(d.problems, Problem{Path: path, Want: want})
}

// field is one field of a message on the wire.
type field struct {
	d    *policyDecoder
	path string // of the message
	num  protowire.Number
	typ  protowire.Type
	n    uint64
	b    []byte
}

// message calls f for each field of the message b. Fields that nobody reads are
// passed over: a plane may be newer than its sidecars.
func (d *policyDecoder) message(path string, b []byte, f func(field)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			d.problem(orMessage(path), "must be a protobuf message")
			return
		}
		b = b[n:]
		v := field{d: d, path: path, num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			v.n, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			d.problem(orMessage(path), "must be a protobuf message")
			return
		}
		b = b[n:]
		f(v)
	}
}

func orMessage(path string) string {
	if path == "" {
		return "policy"
	}
	return path
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (f field) is(typ protowire.Type, name string) bool {
	if f.typ != typ {
		f.d.problem(join(f.path, name), "must have the wire type of its field")
		return false
	}
	return true
}

func (f field) bytes(name string) []byte {
	if !f.is(protowire.BytesType, name) {
		return nil
	}
	return f.b
}

func (f field) text(name string) string { return string(f.bytes(name)) }

func (f field) bool(name string) bool { return f.is(protowire.VarintType, name) && f.n != 0 }

// uint32 cuts off what is beyond 32 bits, as protobuf does.
func (f field) uint32(name string) uint32 {
	if !f.is(protowire.VarintType, name) {
		return 0
	}
	return uint32(f.n)
}

// enum returns a value from 0 to last, and reports any other.
func (f field) enum(name string, last uint8) uint8 {
	if !f.is(protowire.VarintType, name) {
		return 0
	}
	if f.n > uint64(last) {
		f.d.problem(join(f.path, name), "must be one of the values known here (0 to %d)", last)
		return 0
	}
	return uint8(f.n)
}

// duration decodes a google.protobuf.Duration. One that does not fit is the
// longest there is, which no field takes.
func (f field) duration(name string) time.Duration {
	var seconds int64
	var nanos int32
	f.d.message(join(f.path, name), f.bytes(name), func(f field) {
		switch f.num {
		case 1:
			if f.is(protowire.VarintType, "seconds") {
				seconds = int64(f.n)
			}
		case 2:
			if f.is(protowire.VarintType, "nanos") {
				nanos = int32(f.n)
			}
		}
	})
	const limit = int64(1<<63-1) / int64(time.Second)
	if seconds >= limit || seconds <= -limit {
		return 1<<63 - 1
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanos)
}

func (d *policyDecoder) policy(b []byte) *Policy {
	p := &Policy{
		peers:    make(map[string]peer),
		byPrefix: make(map[prefix]*Activation),
		limits:   d.limits,
	}
	// Edge rules name activations, and activations the service, both of which may
	// come later.
	type edgeRule struct {
		key        Key
		identities []Identity
	}
	var edges []edgeRule
	var npeers int
	d.message("", b, func(f field) {
		switch f.num {
		case 1:
			p.Service = f.text("service")
		case 2:
			p.Version = f.text("version")
		case 3:
			d.peer(p, fmt.Sprintf("peers[%d]", npeers), f.bytes("peers"))
			npeers++
		case 4:
			path := fmt.Sprintf("templates[%d].path", len(p.templates))
			t, want := parseTemplate(d.apiTemplate(path, f.bytes("templates")))
			if want != "" {
				d.problem(path, "%s", want)
			}
			p.templates = append(p.templates, t)
		case 5:
			p.TraceHeader = f.text("trace_header")
			if p.TraceHeader != strings.ToLower(p.TraceHeader) {
				d.problem("trace_header", "must be in lower case")
			}
		case 6:
			path := fmt.Sprintf("edge_rules[%d]", len(edges))
			var e edgeRule
			d.message(path, f.bytes("edge_rules"), func(f field) {
				switch f.num {
				case 1:
					e.key = d.key(join(path, "key"), f.bytes("key"))
				case 2:
					e.identities = append(e.identities, d.identity(fmt.Sprintf("%s.identities[%d]", path, len(e.identities)), f.bytes("identities")))
				}
			})
			if len(e.identities) == 0 {
				d.problem(join(path, "identities"), "must name at least one, or the rule would take all traffic")
			}
			edges = append(edges, e)
		case 7:
			prefix := f.text("exempt_paths")
			if !strings.HasPrefix(prefix, "/") {
				d.problem(fmt.Sprintf("exempt_paths[%d]", len(p.exempt)), "must begin with /")
			}
			p.exempt = append(p.exempt, prefix)
		case 8:
			p.Reporting = d.reporting("reporting", f.bytes("reporting"))
		case 9:
			a := d.activation(fmt.Sprintf("activations[%d]", len(p.Activations)), f.bytes("activations"))
			a.index = len(p.Activations)
			p.Activations = append(p.Activations, a)
		}
	})
	if p.Service == "" {
		d.problem("service", "must be set")
	}
	sortTemplates(p.templates)
	for i, a := range p.Activations {
		if other := p.byPrefix[a.Key.prefix()]; other != nil {
			d.problem(fmt.Sprintf("activations[%d].key", i), "must differ from that of activations[%d] in its first 6 bytes", other.index)
		}
		p.byPrefix[a.Key.prefix()] = a
		a.self = slices.Index(a.Services, p.Service) + 1
	}
	for _, e := range edges {
		p.edges = append(p.edges, edge{act: p.Activation(e.key), identities: e.identities})
	}
	return p
}

func (d *policyDecoder) apiTemplate(path string, b []byte) (text string) {
	d.message(path, b, func(f field) {
		if f.num == 1 {
			text = f.text("path")
		}
	})
	return text
}

func (d *policyDecoder) peer(p *Policy, path string, b []byte) {
	var v peer
	var clusters []string
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			v.service = f.text("service")
		case 2:
			clusters = append(clusters, f.text("clusters"))
		case 3:
			v.leaf = f.bool("leaf")
		}
	})
	if v.service == "" {
		d.problem(join(path, "service"), "must be set")
	}
	for i, c := range clusters {
		switch other, taken := p.peers[c]; {
		case c == "":
			d.problem(fmt.Sprintf("%s.clusters[%d]", path, i), "must not be empty")
		case taken && other.service != v.service:
			d.problem(fmt.Sprintf("%s.clusters[%d]", path, i), "must lead to one service only, and %q leads to %q too", c, other.service)
		}
		p.peers[c] = v
	}
}

func (d *policyDecoder) reporting(path string, b []byte) Reporting {
	r := Reporting{Path: "/v1/traces"}
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			r.Cluster = f.text("cluster")
		case 2:
			if v := f.text("path"); v != "" {
				r.Path = v
			}
		case 3:
			r.Authority = f.text("authority")
		}
	})
	if r.Authority == "" {
		r.Authority = r.Cluster
	}
	return r
}

func (d *policyDecoder) key(path string, b []byte) Key {
	if len(b) != len(Key{}) {
		d.problem(path, "must be 7 bytes, and is %d", len(b))
		return Key{}
	}
	return Key(b)
}

func (d *policyDecoder) identity(path string, b []byte) Identity {
	var id Identity
	var compared bool
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			if f.bool("path") {
				id.Source, id.Name = SourcePath, ""
			}
		case 2:
			id.Source, id.Name = SourceQuery, f.text("query")
		case 3:
			id.Source, id.Name = SourceHeader, f.text("header")
		case 4:
			id.Value, id.Prefix, compared = f.text("exact"), false, true
		case 5:
			id.Value, id.Prefix, compared = f.text("prefix"), true, true
		}
	})
	switch {
	case id.Source == 0:
		d.problem(join(path, "source"), "must be path, query or header")
	case id.Source == SourceQuery && id.Name == "":
		d.problem(join(path, "query"), "must name a parameter")
	case id.Source == SourceHeader && (id.Name == "" || id.Name != strings.ToLower(id.Name)):
		d.problem(join(path, "header"), "must name a header in lower case")
	}
	if !compared {
		d.problem(join(path, "match"), "must be exact or prefix")
	}
	return id
}

func (d *policyDecoder) activation(path string, b []byte) *Activation {
	a := new(Activation)
	keyed := false
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			keyed = true
			a.Key = d.key(join(path, "key"), f.bytes("key"))
		case 2:
			t := d.tfic(a, fmt.Sprintf("%s.tfics[%d]", path, len(a.TFICs)), f.bytes("tfics"))
			for _, other := range a.TFICs {
				if t.ID != "" && other.ID == t.ID {
					d.problem(fmt.Sprintf("%s.tfics[%d].id", path, len(a.TFICs)), "must be unique in its activation, and tfics[%d] has it too", other.Index)
				}
			}
			t.Index = len(a.TFICs)
			a.TFICs = append(a.TFICs, t)
		case 3:
			a.PerTrace = f.enum("scope", 2) == 2
		case 4:
			a.Remaining = f.duration("remaining")
		case 5:
			name := f.text("services")
			if name == "" || slices.Contains(a.Services, name) {
				d.problem(fmt.Sprintf("%s.services[%d]", path, len(a.Services)), "must be a name, each once")
			}
			a.Services = append(a.Services, name)
		}
	})
	if !keyed {
		d.problem(join(path, "key"), "must be 7 bytes, and is missing")
	}
	if a.Remaining <= 0 || a.Remaining > maxRemaining {
		d.problem(join(path, "remaining"), "must be more than 0 and at most 1 hour")
	}
	if n := len(a.TFICs); n > d.limits.TFICs {
		d.problem(join(path, "tfics"), "must be at most %d, and are %d", d.limits.TFICs, n)
	}
	if n := len(a.Predicates); n > d.limits.Predicates {
		d.problem(join(path, "tfics"), "must name at most %d event predicates, and name %d", d.limits.Predicates, n)
	}
	if have, room := a.evidenceBound(), evidenceRoom(d.limits.EvidenceBytes); have > room {
		d.problem(path, "must need at most %d bytes of evidence, and may need %d", room, have)
	}
	return a
}

func (d *policyDecoder) tfic(a *Activation, path string, b []byte) *TFIC {
	t := &TFIC{Max: 1}
	var targeted, faulty bool
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			t.ID = f.text("id")
		case 2:
			targeted = true
			t.Target = d.target(join(path, "target"), f.bytes("target"))
		case 3:
			nodes := 0
			t.guard = d.guard(a, join(path, "guard"), f.bytes("guard"), 1, &nodes)
			if nodes > maxGuardNodes {
				d.problem(join(path, "guard"), "must have at most %d nodes", maxGuardNodes)
			}
		case 4:
			faulty = true
			t.Fault = d.fault(join(path, "fault"), f.bytes("fault"))
		case 5:
			t.Max = max(f.uint32("max_injections"), 1)
		case 6:
			t.AnswerKind = AnswerKind(f.enum("answer_kind", 2))
		}
	})
	if !validID(t.ID) {
		d.problem(join(path, "id"), "must be 1 to %d characters of [A-Za-z0-9._-]", maxID)
	}
	if !targeted {
		d.problem(join(path, "target"), "must be set")
	}
	if !faulty {
		d.problem(join(path, "fault"), "must be set")
	}
	return t
}

func validID(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxID
}

func (d *policyDecoder) target(path string, b []byte) Target {
	t := Target{Placement: PlacementCaller}
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			t.Caller = f.text("caller")
		case 2:
			t.Callee = f.text("callee")
		case 3:
			t.API = f.text("api")
		case 4:
			t.Phase = Phase(f.enum("phase", 2))
		case 5:
			t.K = f.uint32("k")
		case 6:
			t.EnforceK = f.bool("enforce_k")
		case 7:
			if f.enum("placement", 2) == 2 {
				t.Placement = PlacementCallee
			} else {
				t.Placement = PlacementCaller
			}
		case 8:
			t.When = Outcome(f.enum("when", 3))
		case 9:
			t.WhenStatus = int(f.uint32("when_status"))
		case 10:
			t.Identities = append(t.Identities, d.identity(fmt.Sprintf("%s.identities[%d]", path, len(t.Identities)), f.bytes("identities")))
		}
	})
	if t.Caller == "" && t.Placement != PlacementCallee {
		d.problem(join(path, "placement"), "must be PLACEMENT_CALLEE where the caller is outside the mesh")
	}
	if t.Callee == "" {
		d.problem(join(path, "callee"), "must be set")
	}
	if t.API == "" {
		d.problem(join(path, "api"), "must be set")
	}
	if t.Phase == 0 {
		d.problem(join(path, "phase"), "must be PHASE_REQ or PHASE_RESP")
	}
	if t.EnforceK && t.K == 0 {
		d.problem(join(path, "k"), "must be at least 1 where enforce_k is set")
	}
	d.outcome(path, "when", "when_status", t.Phase, t.When, t.WhenStatus)
	return t
}

// outcome checks an outcome and the status beside it.
func (d *policyDecoder) outcome(path, name, statusName string, phase Phase, o Outcome, status int) {
	if o != OutcomeAny && phase != PhaseResp {
		d.problem(join(path, name), "must be unset unless the phase is PHASE_RESP")
	}
	if status != 0 && o != OutcomeStatus {
		d.problem(join(path, statusName), "must be unset unless %s is OUTCOME_STATUS", name)
	}
	if status > 599 {
		d.problem(join(path, statusName), "must be an HTTP or gRPC status")
	}
}

// guard decodes one node and those below it. nodes counts them.
func (d *policyDecoder) guard(a *Activation, path string, b []byte, depth int, nodes *int) *guard {
	if depth > maxGuardDepth {
		d.problem(path, "must be at most %d levels deep", maxGuardDepth)
		return nil
	}
	*nodes++
	var g *guard
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			g = d.atom(a, join(path, "atom"), f.bytes("atom"))
		case 2:
			g = &guard{op: guardAllOf}
			allOf := join(path, "all_of")
			d.message(allOf, f.bytes("all_of"), func(f field) {
				if f.num == 1 && *nodes <= maxGuardNodes {
					if kid := d.guard(a, fmt.Sprintf("%s.guards[%d]", allOf, len(g.kids)), f.bytes("guards"), depth+1, nodes); kid != nil {
						g.kids = append(g.kids, *kid)
					}
				}
			})
		case 3:
			g = &guard{op: guardAfter}
			if kid := d.guard(a, join(path, "after"), f.bytes("after"), depth+1, nodes); kid != nil {
				g.kids = append(g.kids, *kid)
			}
		}
	})
	if g == nil {
		d.problem(path, "must be an atom, all_of or after")
	}
	return g
}

func (d *policyDecoder) atom(a *Activation, path string, b []byte) *guard {
	g := &guard{op: guardAtom}
	var p Predicate
	named := false
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			named = true
			p = d.predicate(join(path, "event"), f.bytes("event"))
		case 2:
			g.count = uint64(f.uint32("count"))
		}
	})
	if !named {
		d.problem(join(path, "event"), "must be set")
		return g
	}
	if g.count == 0 {
		d.problem(join(path, "count"), "must be at least 1")
	}
	g.predicate = slices.IndexFunc(a.Predicates, func(q Predicate) bool { return p.Equal(&q) })
	if g.predicate < 0 {
		g.predicate = len(a.Predicates)
		a.Predicates = append(a.Predicates, p)
	}
	return g
}

func (d *policyDecoder) predicate(path string, b []byte) Predicate {
	var p Predicate
	named := false
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			named = true
			p.Op = d.op(join(path, "op"), f.bytes("op"))
		case 2:
			p.Identities = append(p.Identities, d.identity(fmt.Sprintf("%s.identities[%d]", path, len(p.Identities)), f.bytes("identities")))
		case 3:
			p.Outcome = Outcome(f.enum("outcome", 3))
		case 4:
			p.Status = int(f.uint32("status"))
		case 5:
			p.Delivered = f.bool("delivered")
		}
	})
	if !named {
		d.problem(join(path, "op"), "must be set")
	}
	d.outcome(path, "outcome", "status", p.Op.Phase, p.Outcome, p.Status)
	if p.Delivered && (p.Op.Phase != PhaseResp || p.Op.Role != RoleClient) {
		d.problem(join(path, "delivered"), "must be unset unless the op is ROLE_CLIENT and PHASE_RESP")
	}
	return p
}

func (d *policyDecoder) op(path string, b []byte) Op {
	var o Op
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			o.Observer = f.text("observer")
		case 2:
			o.Role = Role(f.enum("role", 2))
		case 3:
			o.Peer = f.text("peer")
		case 4:
			o.API = f.text("api")
		case 5:
			o.Phase = Phase(f.enum("phase", 2))
		}
	})
	if o.Observer == "" {
		d.problem(join(path, "observer"), "must be set")
	}
	if o.Role == 0 {
		d.problem(join(path, "role"), "must be ROLE_CLIENT or ROLE_SERVER")
	}
	if o.Peer == "" && o.Role == RoleClient {
		d.problem(join(path, "peer"), "must be set unless the role is ROLE_SERVER")
	}
	if o.API == "" {
		d.problem(join(path, "api"), "must be set")
	}
	if o.Phase == 0 {
		d.problem(join(path, "phase"), "must be PHASE_REQ or PHASE_RESP")
	}
	return o
}

func (d *policyDecoder) fault(path string, b []byte) Fault {
	var v Fault
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			v = Fault{Kind: FaultDelay, Delay: d.delay(join(path, "delay"), f.bytes("delay"))}
		case 2:
			v = Fault{Kind: FaultError, Error: d.errorSpec(join(path, "error"), f.bytes("error"))}
		case 3:
			v = Fault{Kind: FaultAbort}
		case 4:
			v = Fault{Kind: FaultDrop, Drop: defaultDrop}
			drop := join(path, "drop")
			d.message(drop, f.bytes("drop"), func(f field) {
				if f.num == 1 {
					if limit := f.duration("limit"); limit != 0 {
						v.Drop = limit
					}
				}
			})
			if v.Drop < 0 || v.Drop > maxDelay {
				d.problem(join(drop, "limit"), "must be from 0 to 5 minutes")
			}
		}
	})
	if v.Kind == 0 {
		d.problem(path, "must be delay, error, abort or drop")
	}
	return v
}

func (d *policyDecoder) delay(path string, b []byte) Delay {
	var v Delay
	d.message(path, b, func(f field) {
		// two decodes a message of up to two durations.
		two := func(name string) (a, b time.Duration) {
			d.message(join(path, name), f.bytes(name), func(f field) {
				switch f.num {
				case 1:
					a = f.duration("1")
				case 2:
					b = f.duration("2")
				}
			})
			return a, b
		}
		switch f.num {
		case 1:
			v = Delay{Distribution: DelayFixed, A: f.duration("fixed")}
		case 2:
			v = Delay{Distribution: DelayUniform}
			v.A, v.B = two("uniform")
		case 3:
			v = Delay{Distribution: DelayNormal}
			v.A, v.B = two("normal")
		case 4:
			v = Delay{Distribution: DelayExponential}
			v.A, _ = two("exponential")
		}
	})
	switch {
	case v.Distribution == 0:
		d.problem(path, "must be fixed, uniform, normal or exponential")
	case v.A < 0 || v.A > maxDelay || v.B < 0 || v.B > maxDelay:
		d.problem(path, "must have durations from 0 to 5 minutes")
	case v.Distribution == DelayUniform && v.A > v.B:
		d.problem(join(path, "uniform"), "must have min not above max")
	}
	return v
}

func (d *policyDecoder) errorSpec(path string, b []byte) ErrorSpec {
	e := ErrorSpec{HTTPStatus: 503, GRPCStatus: 14, GRPCMessage: "fault injected by SequenceFI"}
	d.message(path, b, func(f field) {
		switch f.num {
		case 1:
			if v := f.uint32("http_status"); v != 0 {
				e.HTTPStatus = int(v)
			}
		case 2:
			if v := f.uint32("grpc_status"); v != 0 {
				e.GRPCStatus = int(v)
			}
		case 3:
			if v := f.text("grpc_message"); v != "" {
				e.GRPCMessage = v
			}
		case 4:
			e.Body = f.bytes("body")
		case 5:
			var h Header
			header := fmt.Sprintf("%s.headers[%d]", path, len(e.Headers))
			d.message(header, f.bytes("headers"), func(f field) {
				switch f.num {
				case 1:
					h.Name = f.text("name")
				case 2:
					h.Value = f.text("value")
				}
			})
			if h.Name == "" || h.Name != strings.ToLower(h.Name) {
				d.problem(join(header, "name"), "must be a header name in lower case")
			}
			if strings.ContainsAny(h.Name+h.Value, "\r\n\x00") {
				d.problem(header, "must be on one line")
			}
			e.Headers = append(e.Headers, h)
		}
	})
	if e.HTTPStatus < 200 || e.HTTPStatus > 599 {
		d.problem(join(path, "http_status"), "must be 0 or 200 to 599")
	}
	if e.GRPCStatus > 16 {
		d.problem(join(path, "grpc_status"), "must be 0 or 1 to 16")
	}
	if len(e.Body) > maxFaultBody {
		d.problem(join(path, "body"), "must be at most %d bytes", maxFaultBody)
	}
	if n := len(e.Headers); n > maxFaultHeaders {
		d.problem(join(path, "headers"), "must be at most %d, and are %d", maxFaultHeaders, n)
	}
	return e
}
