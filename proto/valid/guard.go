package valid

import (
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Bounds of a guard's expression tree (proto: sequencefi.tfi.v1.Guard).
const (
	MaxGuardDepth = 16
	MaxGuardNodes = 256
)

// maxIdentities bounds what a sidecar compares for each message.
const maxIdentities = 16

// Op returns the problems of an op.
func Op(m *tfiv1.Op) []Problem {
	var c checker
	c.op("", m)
	return c.problems
}

// EventPredicate returns the problems of an event predicate.
func EventPredicate(m *tfiv1.EventPredicate) []Problem {
	var c checker
	c.predicate("", m)
	return c.problems
}

// Guard returns the problems of a guard.
func Guard(m *tfiv1.Guard) []Problem {
	var c checker
	c.guard("", m)
	return c.problems
}

// Identity returns the problems of an identity.
func Identity(m *tfiv1.Identity) []Problem {
	var c checker
	c.identity("", m)
	return c.problems
}

func (c *checker) op(path string, m *tfiv1.Op) {
	c.namedService(field(path, "observer"), m.GetObserver())
	c.service(field(path, "peer"), m.GetPeer())
	switch m.GetRole() {
	case tfiv1.Role_ROLE_CLIENT:
		if m.GetPeer() == "" {
			c.want(field(path, "peer"), "must name the callee: only ROLE_SERVER has callers outside the mesh")
		}
	case tfiv1.Role_ROLE_SERVER:
	default:
		c.want(field(path, "role"), "must be ROLE_CLIENT or ROLE_SERVER (got %v)", m.GetRole())
	}
	c.api(field(path, "api"), m.GetApi())
	c.phase(field(path, "phase"), m.GetPhase())
}

func (c *checker) phase(path string, p tfiv1.Phase) {
	if p != tfiv1.Phase_PHASE_REQ && p != tfiv1.Phase_PHASE_RESP {
		c.want(path, "must be PHASE_REQ or PHASE_RESP (got %v)", p)
	}
}

func (c *checker) predicate(path string, m *tfiv1.EventPredicate) {
	op := m.GetOp()
	c.op(field(path, "op"), op)
	c.identities(field(path, "identities"), m.GetIdentities())
	c.outcome(path, "outcome", "status", op.GetApi(), op.GetPhase(), m.GetOutcome(), m.GetStatus())
	if m.GetDelivered() && (op.GetRole() != tfiv1.Role_ROLE_CLIENT || op.GetPhase() != tfiv1.Phase_PHASE_RESP) {
		c.want(field(path, "delivered"), "needs ROLE_CLIENT and PHASE_RESP: only the caller's sidecar delivers an answer")
	}
}

// outcome checks an outcome, its status, and that they are asked of an answer.
func (c *checker) outcome(path, name, statusName, api string, p tfiv1.Phase, o tfiv1.Outcome, status uint32) {
	statusPath := field(path, statusName)
	switch o {
	case tfiv1.Outcome_OUTCOME_UNSPECIFIED, tfiv1.Outcome_OUTCOME_SUCCESS, tfiv1.Outcome_OUTCOME_FAILURE:
		if status != 0 {
			c.want(statusPath, "needs %s OUTCOME_STATUS", name)
		}
	case tfiv1.Outcome_OUTCOME_STATUS:
		switch {
		case grpcAPI(api):
			if status > 16 {
				c.want(statusPath, "must be a gRPC status from 0 to 16 (got %d)", status)
			}
		case status < 200 || status > 599:
			c.want(statusPath, "must be an HTTP status from 200 to 599 (got %d)", status)
		}
	default:
		c.want(field(path, name), "must be a known outcome (got %d)", o)
	}
	if o != tfiv1.Outcome_OUTCOME_UNSPECIFIED && p == tfiv1.Phase_PHASE_REQ {
		c.want(field(path, name), "needs PHASE_RESP: a request has no outcome")
	}
}

func (c *checker) identities(path string, list []*tfiv1.Identity) {
	if len(list) > maxIdentities {
		c.want(path, "must be at most %d (got %d)", maxIdentities, len(list))
	}
	for i, m := range list {
		c.identity(item(path, i), m)
	}
}

func (c *checker) identity(path string, m *tfiv1.Identity) {
	onPath := false
	switch s := m.GetSource().(type) {
	case *tfiv1.Identity_Path:
		onPath = true
		if !s.Path {
			c.want(field(path, "path"), "must be true, or be left out")
		}
	case *tfiv1.Identity_Query:
		if s.Query == "" || len(s.Query) > maxValue {
			c.want(field(path, "query"), "must name a query parameter")
		}
	case *tfiv1.Identity_Header:
		c.headerName(field(path, "header"), s.Header)
	default:
		c.want(path, "must have one of path, query and header")
	}
	switch v := m.GetMatch().(type) {
	case *tfiv1.Identity_Exact:
		c.identityValue(field(path, "exact"), v.Exact, onPath)
	case *tfiv1.Identity_Prefix:
		if v.Prefix == "" {
			c.want(field(path, "prefix"), "must not be empty: every value has the empty prefix")
			return
		}
		c.identityValue(field(path, "prefix"), v.Prefix, onPath)
	default:
		c.want(path, "must have one of exact and prefix")
	}
}

func (c *checker) identityValue(path, value string, onPath bool) {
	if onPath && (value == "" || value[0] != '/') {
		c.want(path, "must begin with \"/\" as paths do (got %q)", cut(value, 64))
	}
	if len(value) > maxValue {
		c.want(path, "must be at most %d bytes (got %d)", maxValue, len(value))
	}
}

func (c *checker) guard(path string, m *tfiv1.Guard) {
	nodes := 0
	deep := false
	c.guardNode(path, m, 1, &nodes, &deep)
	if deep {
		c.want(path, "must be at most %d levels deep", MaxGuardDepth)
	}
	if nodes > MaxGuardNodes {
		c.want(path, "must have at most %d nodes", MaxGuardNodes)
	}
}

// guardNode counts nodes as it goes and looks no further than the bounds, so
// that a hostile tree costs no more than a permitted one.
func (c *checker) guardNode(path string, m *tfiv1.Guard, depth int, nodes *int, deep *bool) {
	if *nodes++; *nodes > MaxGuardNodes {
		return
	}
	if depth > MaxGuardDepth {
		*deep = true
		return
	}
	switch e := m.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		c.atom(field(path, "atom"), e.Atom)
	case *tfiv1.Guard_AllOf:
		list := e.AllOf.GetGuards()
		at := field(path, "allOf.guards")
		if len(list) == 0 {
			c.want(at, "must have at least one guard: leave the guard out for one that is always true")
		}
		for i, g := range list {
			if *nodes > MaxGuardNodes {
				return
			}
			c.guardNode(item(at, i), g, depth+1, nodes, deep)
		}
	case *tfiv1.Guard_After:
		c.guardNode(field(path, "after"), e.After, depth+1, nodes, deep)
	default:
		c.want(path, "must have one of atom, allOf and after")
	}
}

func (c *checker) atom(path string, m *tfiv1.Atom) {
	c.predicate(field(path, "event"), m.GetEvent())
	if m.GetCount() == 0 {
		c.want(field(path, "count"), "must be at least 1")
	}
}
