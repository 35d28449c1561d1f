package tfi

// localOp is what an activation says of the calls of one op, phase aside, at the
// policy's own service. It is found once a call, where predicates and TFICs would
// each be compared by four strings.
type localOp struct {
	peer, api  string
	predicates []int
	tfics      []int
}

// findOps finds the ops that sidecars of service can observe.
func (a *Activation) findOps(service string) {
	for i := range a.Predicates {
		if op := &a.Predicates[i].Op; op.Observer == service {
			local := a.localOp(op.Role, op.Peer, op.API)
			local.predicates = append(local.predicates, i)
		}
	}
	for i, t := range a.TFICs {
		if t.Target.injector() != service {
			continue
		}
		role, peer := RoleClient, t.Target.Callee
		if t.Target.Placement == PlacementCallee {
			role, peer = RoleServer, t.Target.Caller
		}
		local := a.localOp(role, peer, t.Target.API)
		local.tfics = append(local.tfics, i)
	}
}

// localOp returns an op, which it adds if there is none. It is valid until the next call.
func (a *Activation) localOp(role Role, peer, api string) *localOp {
	ops := &a.ops[role]
	for i := range *ops {
		if op := &(*ops)[i]; op.peer == peer && op.api == api {
			return op
		}
	}
	*ops = append(*ops, localOp{peer: peer, api: api})
	return &(*ops)[len(*ops)-1]
}

// match finds the predicates and targets whose op and identities are those of
// the request: for its answer too, whose headers do not tell.
func (c *Call) match(a *Activation, r *Request) {
	ops := a.ops[r.Role]
	for i := range ops {
		op := &ops[i]
		if op.api != string(c.api) || op.peer != string(c.peer) {
			continue
		}
		for _, p := range op.predicates {
			if matchAll(a.Predicates[p].Identities, r) {
				c.predicates = append(c.predicates, p)
			}
		}
		for _, t := range op.tfics {
			if matchAll(a.TFICs[t].Target.Identities, r) {
				c.targets = append(c.targets, matched{tfic: t})
			}
		}
		return
	}
}
