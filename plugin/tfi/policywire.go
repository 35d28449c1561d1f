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
		peers:  make(map[string]peer),
		limits: d.limits,
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
	p.byPrefix = newActivationTable(len(p.Activations))
	for i, a := range p.Activations {
		if other := p.byPrefix.add(a); other != nil {
			d.problem(fmt.Sprintf("activations[%d].key", i), "must differ from that of activations[%d] in its first 6 bytes", other.index)
		}
		a.self = slices.Index(a.Services, p.Service) + 1
		a.findOps(p.Service)
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
