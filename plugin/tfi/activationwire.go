package tfi

import "fmt"

func (d *policyDecoder) activation(path string, b []byte) *Activation {
	a := new(Activation)
	keyed := false
	named := make(map[string]struct{})
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
			if _, again := named[name]; again || name == "" {
				d.problem(fmt.Sprintf("%s.services[%d]", path, len(a.Services)), "must be a name, each once")
			}
			named[name] = struct{}{}
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
			if nodes > d.limits.GuardNodes {
				d.problem(join(path, "guard"), "must have at most %d nodes", d.limits.GuardNodes)
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
