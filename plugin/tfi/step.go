package tfi

import "time"

// step is a call in the middle of an event: merge, count, number, judge and
// snapshot, as one atomic change of the trial's state. It may be applied several
// times, to fresh states, and leaves behind only what the last time found.
type step Call

var (
	_ Updater = (*step)(nil)
	_ Timed   = (*step)(nil)
)

// Now returns the instant of the event.
func (st *step) Now() time.Duration { return st.now }

// Apply takes the call's event to s.
func (st *step) Apply(s *State) {
	c := (*Call)(st)
	a := c.act
	c.judgements = c.judgements[:c.judged]
	c.fired, c.matches, c.noRoom, c.cut, c.lost = nil, 0, false, false, false

	if c.event != eventReq && s.tag != c.record.Instance {
		// The numbers of a state that began meanwhile do not go with the request's.
		c.lost = true
		return
	}
	s.begin(c.id, c.width, c.fresh, c.record.Trace)
	s.deadline = c.deadline

	// Observe.
	if c.incoming.tag != 0 {
		c.noRoom = !c.incoming.mergeInto(&s.known, s.tag, c.limits.Instances)
	}
	if c.event == eventReq {
		c.rank(s)
	}
	e := EventRecord{Seq: s.next(), From: c.incoming.tag, FromSeq: c.incoming.seq, At: c.now}
	switch c.event {
	case eventReq:
		c.record.Req = e
	case eventResp:
		c.record.Resp = e
	case eventDelivered:
		c.record.Delivered = e
	}
	c.record.Instance = s.tag
	if len(c.predicates) > 0 {
		own := s.known.row(s.tag)
		for _, i := range c.predicates {
			if n := &own[i]; c.counts(&a.Predicates[i]) && *n != ^uint32(0) {
				*n++
			}
		}
	}

	// Judge.
	if c.event != eventDelivered {
		c.judge(s)
	}

	// What goes along with the message that is sent on.
	if c.sends() {
		from := sender{tag: s.tag, seq: e.Seq, k: c.record.K, service: a.self}
		var whole bool
		c.raw, whole = appendEvidence(c.raw[:0], from, &s.known, evidenceRoom(c.limits.EvidenceBytes))
		c.cut = !whole
	}
}

// sends reports whether evidence goes out with what follows the event: with a
// client's request, and with an answer to one that brought some. A fault at the
// callee's side may answer a request; what it has fired must be known then, too.
func (c *Call) sends() bool {
	if c.record.Role == RoleClient {
		return c.carries && c.event == eventReq
	}
	return c.carries && (c.event == eventResp || c.fired != nil)
}

// rank gives the call its rank: the one that the caller's sidecar has stamped on
// it, or the next of its op here. A request that the mesh sends again gets those it had.
func (c *Call) rank(s *State) {
	stamped := c.record.Role == RoleServer && c.incoming.tag != 0
	c.record.Retry = false
	if !stamped {
		c.record.K = s.ranks.increment(opHash(c.record.Role, c.peer, c.api), c.limits.Ops)
	} else {
		c.record.K = c.incoming.k
		h := requestHash(c.incoming.tag, c.incoming.seq, 0)
		if k, again := s.requests.find(h); again {
			c.record.Retry, c.record.K = true, k
		} else {
			s.requests.remember(h, c.record.K, c.limits.Requests)
		}
	}
	for i := range c.targets {
		m := &c.targets[i]
		m.rank = c.record.K
		if len(c.act.TFICs[m.tfic].Target.Identities) == 0 {
			continue
		}
		h := requestHash(c.incoming.tag, c.incoming.seq, m.tfic+1)
		if c.record.Retry {
			if n, known := s.requests.find(h); known {
				m.rank = n
				continue
			}
		}
		m.rank = s.ranks.increment(tficHash(m.tfic), c.limits.Ops)
		if stamped {
			s.requests.remember(h, m.rank, c.limits.Requests)
		}
	}
}

// counts reports whether p, whose op matches but for the phase, counts the event.
func (c *Call) counts(p *Predicate) bool {
	switch c.event {
	case eventReq:
		return p.Op.Phase == PhaseReq
	case eventResp:
		return p.Op.Phase == PhaseResp && !p.Delivered && c.answer.meets(p.Outcome, p.Status)
	case eventDelivered:
		return p.Delivered && c.answer.meets(p.Outcome, p.Status)
	}
	return false
}

// judge finds the first TFIC that fires at the event, and counts it as fired.
func (c *Call) judge(s *State) {
	phase := PhaseReq
	if c.event == eventResp {
		phase = PhaseResp
	}
	for _, m := range c.targets {
		t := c.act.TFICs[m.tfic]
		if t.Target.Phase != phase {
			continue
		}
		c.matches++
		if c.matches == 1 {
			// A step that is applied again finds the same targets.
			c.know(&s.known)
		}
		reason := c.refuse(s, t, m.rank)
		if reason == 0 && c.fired != nil {
			reason = ReasonOther
		}
		if reason != 0 {
			c.judgements = append(c.judgements, Judgement{TFIC: t, Phase: phase, Reason: reason})
			continue
		}
		c.fired = t
		s.known.increment(s.tag, c.act.FiredIndex(m.tfic))
	}
}

// refuse returns why t does not fire; 0: it does.
func (c *Call) refuse(s *State, t *TFIC, rank uint32) Reason {
	fired := c.act.FiredIndex(t.Index)
	switch {
	case t.Target.Phase == PhaseResp && !c.answer.meets(t.Target.When, t.Target.WhenStatus):
		return ReasonWhen
	case t.Target.EnforceK && rank != t.Target.K:
		return ReasonK
	case !t.guard.holds(&s.known):
		return ReasonGuard
	case s.known.Sum(fired) < uint64(t.Max):
		return 0
	case s.known.Of(s.tag, fired) >= t.Max:
		return ReasonSpent
	}
	return ReasonInstance
}

// know takes note of all that is known, before anything fires.
func (c *Call) know(known *Counter) {
	c.known = c.known[:0]
	for i := range known.Width() {
		if n := known.Sum(i); n != 0 {
			c.known = append(c.known, Known{Index: i, Count: n})
		}
	}
}
