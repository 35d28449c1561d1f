package tfi_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// The naive model says a second time what the engine computes. It has no
// counters, no codec and no merge: what a sidecar knows is a set of facts, a message
// carries a copy of its sender's set, and to count is to look at every fact. It takes
// the policy's messages as they are, and folds and parses nothing.

// fact is something that happened at some sidecar: an event, or a firing.
type fact struct {
	// Of an event.
	observer, role, peer, api, phase string
	status                           int
	broken, delivered                bool
	request                          *request
	// Of a firing; else "".
	fired string
}

// request is what a caller's application sends, with what is to be made of it.
type request struct {
	method, path string
	grpc         bool
	header       string // value of x-user; "" none

	api      string
	rawPath  string
	userText string // value of the query parameter user; "" none
}

var requests = []*request{
	{method: "GET", path: "/x", api: "GET /x", rawPath: "/x"},
	{method: "GET", path: "/items/7", api: "GET /items/{id}", rawPath: "/items/7", header: "alice"},
	{method: "GET", path: "/items/8?user=a%20b", api: "GET /items/{id}", rawPath: "/items/8", userText: "a b"},
	{method: "POST", path: "/p.S/Pay", grpc: true, api: "p.S/Pay", rawPath: "/p.S/Pay", header: "bob"},
}

// place is one instance's sidecar as the model sees it.
type place struct {
	service, name string
	known         map[*fact]bool
	seq           int
	ranks         map[string]int
	// received are the ranks of requests by sender and number, the call's under ""
	// and others under the TFIC's id.
	received map[string]map[string]int
}

// parcel is what travels with a message between two sidecars; nil: nothing.
type parcel struct {
	from  *place
	seq   int
	k     int
	known map[*fact]bool
}

// side is one end of a call.
type side struct {
	at       *place
	role     string
	peer     string
	request  *request
	k        int
	retry    bool
	ranks    map[string]int // by TFIC
	brought  *parcel        // with the request
	status   int
	broken   bool
	finished bool // a fault has made its answer
	judged   []string
	knew     string
}

type naive struct {
	tfics []*tfiv1.Tfic
}

// outcome of a step, as both sides of the comparison put it.
type outcome struct {
	action, tfic string
	text         string
	// out is what goes with the message.
	out *parcel
}

func newPlace(service, name string) *place {
	return &place{
		service: service, name: name,
		known:    map[*fact]bool{},
		ranks:    map[string]int{},
		received: map[string]map[string]int{},
	}
}

// arrive is the event of a request.
func (n *naive) arrive(s *side) outcome {
	p := s.at
	n.learn(p, s.brought)
	var again map[string]int
	mark := ""
	if s.role == "server" && s.brought != nil {
		mark = fmt.Sprint(s.brought.from.name, "/", s.brought.seq)
		again = p.received[mark]
	}
	s.retry = again != nil
	s.ranks = map[string]int{}
	switch {
	case s.retry:
		s.k = again[""]
	case mark != "":
		s.k = s.brought.k
	default:
		s.k = count(p.ranks, s.role+" "+s.peer+" "+s.request.api)
	}
	for _, t := range n.tfics {
		if n.here(t, s) && len(t.GetTarget().GetIdentities()) > 0 {
			if s.retry {
				s.ranks[t.GetId()] = again[t.GetId()]
			} else {
				s.ranks[t.GetId()] = count(p.ranks, t.GetId())
			}
		}
	}
	if mark != "" && !s.retry {
		ranks := maps.Clone(s.ranks)
		ranks[""] = s.k
		p.received[mark] = ranks
	}
	return n.happen(s, "req", s.brought, &fact{phase: "req"})
}

// answered is the event of an answer.
func (n *naive) answered(s *side, status int, broken bool, with *parcel) outcome {
	s.status, s.broken = status, broken
	n.learn(s.at, with)
	return n.happen(s, "resp", with, &fact{phase: "resp", status: status, broken: broken})
}

// delivered is the last event of a call at its caller's.
func (n *naive) delivered(s *side) outcome {
	return n.happen(s, "delivered", nil, &fact{phase: "resp", status: s.status, broken: s.broken, delivered: true})
}

func count(m map[string]int, key string) int {
	m[key]++
	return m[key]
}

func (n *naive) learn(p *place, with *parcel) {
	if with != nil {
		maps.Copy(p.known, with.known)
	}
}

// happen counts the event, judges it, and packs what goes along.
func (n *naive) happen(s *side, kind string, with *parcel, f *fact) outcome {
	p := s.at
	p.seq++
	f.observer, f.role, f.peer, f.api, f.request = p.service, s.role, s.peer, s.request.api, s.request
	p.known[f] = true

	o := outcome{action: "forward"}
	matched := false
	for _, t := range n.tfics {
		target := t.GetTarget()
		if kind == "delivered" || !n.here(t, s) || phaseName(target.GetPhase()) != kind {
			continue
		}
		if !matched {
			matched = true
			s.knew = n.summary(p)
		}
		switch reason := n.reason(t, s, f); {
		case reason != "":
			s.judged = append(s.judged, t.GetId()+"="+reason)
		case o.tfic != "":
			s.judged = append(s.judged, t.GetId()+"=other")
		default:
			o.tfic, o.action = t.GetId(), faultName(t.GetFault())
		}
	}
	if o.tfic != "" {
		p.known[&fact{observer: p.name, fired: o.tfic}] = true
		s.finished = o.action != "delay"
	}
	o.out = &parcel{from: p, seq: p.seq, k: s.k, known: maps.Clone(p.known)}
	from := ""
	if with != nil {
		from = fmt.Sprint(with.from.name, "/", with.seq)
	}
	o.text = verdictText(p.name, s.role, kind, s.peer, s.request.api, s.k, p.seq, from, s.retry, o.action, o.tfic, s.judged, s.knew)
	return o
}

func verdictText(at, role, kind, peer, api string, k, seq int, from string, retry bool, action, tfic string, judged []string, knew string) string {
	return fmt.Sprintf("%s %s/%s peer=%q %q k=%d seq=%d from=%s retry=%v %s %s judged=%v known=[%s]",
		at, role, kind, peer, api, k, seq, from, retry, action, tfic, judged, knew)
}

// here reports whether the static part of t names this end of the call.
func (n *naive) here(t *tfiv1.Tfic, s *side) bool {
	target := t.GetTarget()
	if target.GetApi() != s.request.api || !carries(target.GetIdentities(), s.request) {
		return false
	}
	if target.GetPlacement() == tfiv1.Placement_PLACEMENT_CALLEE {
		return s.role == "server" && s.at.service == target.GetCallee() && s.peer == target.GetCaller()
	}
	return s.role == "client" && s.at.service == target.GetCaller() && s.peer == target.GetCallee()
}

func (n *naive) reason(t *tfiv1.Tfic, s *side, f *fact) string {
	target := t.GetTarget()
	rank := s.k
	if len(target.GetIdentities()) > 0 {
		rank = s.ranks[t.GetId()]
	}
	here, everywhere := 0, 0
	for k := range s.at.known {
		if k.fired == t.GetId() {
			everywhere++
			if k.observer == s.at.name {
				here++
			}
		}
	}
	most := max(int(t.GetMaxInjections()), 1)
	switch {
	case f.phase == "resp" && !ended(f, target.GetWhen(), target.GetWhenStatus()):
		return "when"
	case target.GetEnforceK() && rank != int(target.GetK()):
		return "k"
	case t.GetGuard() != nil && !n.holds(t.GetGuard(), s.at):
		return "guard"
	case here >= most:
		return "spent"
	case everywhere >= most:
		return "instance"
	}
	return ""
}

func (n *naive) holds(g *tfiv1.Guard, p *place) bool {
	switch e := g.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		return n.count(e.Atom.GetEvent(), p) >= int(e.Atom.GetCount())
	case *tfiv1.Guard_AllOf:
		for _, g := range e.AllOf.GetGuards() {
			if !n.holds(g, p) {
				return false
			}
		}
		return true
	case *tfiv1.Guard_After:
		return n.holds(e.After, p)
	}
	panic("unknown guard")
}

func (n *naive) count(e *tfiv1.EventPredicate, p *place) int {
	c := 0
	op := e.GetOp()
	for f := range p.known {
		if f.fired == "" && f.observer == op.GetObserver() && f.role == roleName(op.GetRole()) &&
			f.peer == op.GetPeer() && f.api == op.GetApi() && f.phase == phaseName(op.GetPhase()) &&
			f.delivered == e.GetDelivered() && ended(f, e.GetOutcome(), e.GetStatus()) && carries(e.GetIdentities(), f.request) {
			c++
		}
	}
	return c
}

// predicates of all guards, each once, in order of appearance.
func (n *naive) predicates() []*tfiv1.EventPredicate {
	var all []*tfiv1.EventPredicate
	var walk func(g *tfiv1.Guard)
	walk = func(g *tfiv1.Guard) {
		switch e := g.GetExpr().(type) {
		case *tfiv1.Guard_Atom:
			same := func(q *tfiv1.EventPredicate) bool { return q.String() == e.Atom.GetEvent().String() }
			if !slices.ContainsFunc(all, same) {
				all = append(all, e.Atom.GetEvent())
			}
		case *tfiv1.Guard_AllOf:
			for _, g := range e.AllOf.GetGuards() {
				walk(g)
			}
		case *tfiv1.Guard_After:
			walk(e.After)
		}
	}
	for _, t := range n.tfics {
		if t.GetGuard() != nil {
			walk(t.GetGuard())
		}
	}
	return all
}

// summary lists the counts that p knows.
func (n *naive) summary(p *place) string {
	var b []string
	i := 0
	add := func(c int) {
		if c > 0 {
			b = append(b, fmt.Sprint(i, ":", c))
		}
		i++
	}
	for _, e := range n.predicates() {
		add(n.count(e, p))
	}
	for _, t := range n.tfics {
		c := 0
		for f := range p.known {
			if f.fired == t.GetId() {
				c++
			}
		}
		add(c)
	}
	return strings.Join(b, " ")
}

func ended(f *fact, want tfiv1.Outcome, status uint32) bool {
	success := !f.broken && f.status < 400
	if f.request.grpc {
		success = !f.broken && f.status == 0
	}
	switch want {
	case tfiv1.Outcome_OUTCOME_SUCCESS:
		return success
	case tfiv1.Outcome_OUTCOME_FAILURE:
		return !success
	case tfiv1.Outcome_OUTCOME_STATUS:
		return !f.broken && f.status == int(status)
	}
	return true
}

func carries(ids []*tfiv1.Identity, r *request) bool {
	for _, id := range ids {
		var have string
		switch id.GetSource().(type) {
		case *tfiv1.Identity_Path:
			have = r.rawPath
		case *tfiv1.Identity_Query:
			have = r.userText
		case *tfiv1.Identity_Header:
			have = r.header
		}
		switch m := id.GetMatch().(type) {
		case *tfiv1.Identity_Exact:
			if have != m.Exact {
				return false
			}
		case *tfiv1.Identity_Prefix:
			if !strings.HasPrefix(have, m.Prefix) {
				return false
			}
		}
	}
	return true
}

func roleName(r tfiv1.Role) string {
	return strings.ToLower(strings.TrimPrefix(r.String(), "ROLE_"))
}

func phaseName(p tfiv1.Phase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "PHASE_"))
}

func faultName(f *tfiv1.Fault) string {
	switch f.GetKind().(type) {
	case *tfiv1.Fault_Delay:
		return "delay"
	case *tfiv1.Fault_Error:
		return "error"
	case *tfiv1.Fault_Abort:
		return "abort"
	case *tfiv1.Fault_Drop:
		return "drop"
	}
	panic("unknown fault")
}
