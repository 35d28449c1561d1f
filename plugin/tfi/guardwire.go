package tfi

import (
	"fmt"
	"slices"
)

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
				if f.num == 1 && *nodes <= d.limits.GuardNodes {
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
