package tfi_test

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// execution is a run of a few services in one trial, as the naive model had it:
// who got which message when, and what should have come of it.
type execution struct {
	tfics []*tfiv1.Tfic
	// places are names of instances, as "b2"; the letter is the service.
	places []string
	steps  []step
	// known is what each place knows in the end.
	known map[string]string
}

// step is one message at one sidecar, or a delivery.
type step struct {
	place string
	call  int
	// attempt counts the arrivals of a call at callees, from 0; -1: at the caller.
	attempt int
	kind    string // "req", "resp" or "delivered"
	peer    string // cluster's service; callers only
	request *request
	status  int
	broken  bool
	made    bool
	// source is the step whose message this is; -1: it comes from outside.
	source int
	want   string
}

// flight is a call under way.
type flight struct {
	id       int
	request  *request
	caller   *side // nil: outside
	callee   string
	last     int     // step of the caller's request
	sent     *parcel // with the request
	attempts []*attempt
	state    string // "asked", "answered", "done"
	mute     bool   // the callee has no sidecar
}

type attempt struct {
	side  *side
	last  int
	state string // "arrived", "answered", "gone"
	// What goes back to the caller.
	status int
	broken bool
	out    *parcel
}

var (
	serviceNames = []string{"a", "b", "c"}
	calleeNames  = []string{"a", "b", "c", "leaf", "stranger"}
)

// lane is who calls whom for what. An execution has a few that nearly all of its
// calls, targets and predicates keep to, so that they meet.
type lane struct {
	caller, callee string // caller "": outside
	request        *request
}

func drawLane(t *rapid.T) lane {
	return lane{
		caller:  rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "caller"),
		callee:  rapid.SampledFrom(calleeNames[:4]).Draw(t, "callee"),
		request: rapid.SampledFrom(requests).Draw(t, "request"),
	}
}

// drawNear draws one of the lanes, or now and then another.
func drawNear(t *rapid.T, lanes []lane) lane {
	if rapid.IntRange(0, 9).Draw(t, "stray") == 0 {
		return drawLane(t)
	}
	return rapid.SampledFrom(lanes).Draw(t, "lane")
}

func drawIdentities(t *rapid.T, r *request) []*tfiv1.Identity {
	if rapid.IntRange(0, 2).Draw(t, "identified") > 0 {
		return nil
	}
	own := &tfiv1.Identity{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Exact{Exact: r.rawPath}}
	return []*tfiv1.Identity{rapid.SampledFrom([]*tfiv1.Identity{
		own,
		own,
		{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Prefix{Prefix: "/items/"}},
		{Source: &tfiv1.Identity_Query{Query: "user"}, Match: &tfiv1.Identity_Exact{Exact: "a b"}},
		{Source: &tfiv1.Identity_Header{Header: "x-user"}, Match: &tfiv1.Identity_Prefix{Prefix: "al"}},
	}).Draw(t, "identity")}
}

func drawPredicate(t *rapid.T, lanes []lane) *tfiv1.EventPredicate {
	l := drawNear(t, lanes)
	e := &tfiv1.EventPredicate{
		Op: &tfiv1.Op{
			Observer: l.caller,
			Role:     tfiv1.Role_ROLE_CLIENT,
			Peer:     l.callee,
			Api:      l.request.api,
			Phase:    rapid.SampledFrom([]tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP}).Draw(t, "phase"),
		},
		Identities: drawIdentities(t, l.request),
	}
	if l.caller == "" || l.callee != "leaf" && rapid.Bool().Draw(t, "server") {
		e.Op.Observer, e.Op.Role, e.Op.Peer = l.callee, tfiv1.Role_ROLE_SERVER, l.caller
	}
	if e.Op.Phase == tfiv1.Phase_PHASE_RESP {
		e.Outcome = tfiv1.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))
		if e.Outcome == tfiv1.Outcome_OUTCOME_STATUS {
			e.Status = 200
		}
		e.Delivered = e.Op.Role == tfiv1.Role_ROLE_CLIENT && rapid.Bool().Draw(t, "delivered")
	}
	return e
}

func drawTFIC(t *rapid.T, id string, lanes []lane) *tfiv1.Tfic {
	l := drawNear(t, lanes)
	target := &tfiv1.StaticConfiguration{
		Caller:     l.caller,
		Callee:     l.callee,
		Api:        l.request.api,
		Phase:      rapid.SampledFrom([]tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP}).Draw(t, "phase"),
		Placement:  tfiv1.Placement(rapid.IntRange(0, 2).Draw(t, "placement")),
		Identities: drawIdentities(t, l.request),
	}
	if l.caller == "" {
		target.Placement = tfiv1.Placement_PLACEMENT_CALLEE
	}
	if rapid.Bool().Draw(t, "enforce") {
		target.K, target.EnforceK = uint32(rapid.IntRange(1, 3).Draw(t, "k")), true
	}
	if target.Phase == tfiv1.Phase_PHASE_RESP {
		target.When = tfiv1.Outcome(rapid.IntRange(0, 3).Draw(t, "when"))
		if target.When == tfiv1.Outcome_OUTCOME_STATUS {
			target.WhenStatus = 200
		}
	}
	tfic := &tfiv1.Tfic{Id: id, Target: target, MaxInjections: uint32(rapid.IntRange(0, 2).Draw(t, "max"))}
	if n := rapid.IntRange(0, 2).Draw(t, "atoms"); n > 0 {
		var atoms []*tfiv1.Guard
		for range n {
			atoms = append(atoms, atom(drawPredicate(t, lanes), uint32(rapid.IntRange(1, 2).Draw(t, "count"))))
		}
		tfic.Guard = after(atoms...)
	}
	tfic.Fault = rapid.SampledFrom([]*tfiv1.Fault{
		{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(1000)}}}},
		{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{}}},
		{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
		{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{}}},
	}).Draw(t, "fault")
	return tfic
}

// drawExecution lets the naive model run.
func drawExecution(t *rapid.T) *execution {
	x := &execution{known: map[string]string{}}
	lanes := []lane{drawLane(t), drawLane(t)}
	for i := range rapid.IntRange(1, 4).Draw(t, "tfics") {
		x.tfics = append(x.tfics, drawTFIC(t, fmt.Sprint("t", i), lanes))
	}
	model := &naive{tfics: x.tfics}
	places := map[string]*place{}
	for _, s := range serviceNames {
		for i := range rapid.IntRange(1, 2).Draw(t, "instances") {
			name := fmt.Sprint(s, i+1)
			places[name] = newPlace(s, name)
			x.places = append(x.places, name)
		}
	}
	instances := func(service string) []string {
		return slices.DeleteFunc(slices.Clone(x.places), func(p string) bool { return p[:1] != service })
	}
	// happened takes down a step, and returns its index.
	happened := func(s step, o outcome) int {
		s.want = o.text
		x.steps = append(x.steps, s)
		return len(x.steps) - 1
	}
	var flights []*flight

	begin := func() {
		l := drawNear(t, lanes)
		f := &flight{id: len(flights), request: l.request, callee: l.callee, last: -1, state: "asked"}
		if rapid.IntRange(0, 19).Draw(t, "stranger") == 0 {
			f.callee = "stranger"
		}
		f.mute = len(f.callee) > 1
		flights = append(flights, f)
		if l.caller == "" && !f.mute {
			return
		}
		p := places[rapid.SampledFrom(x.places).Draw(t, "from")]
		if l.caller != "" {
			p = places[rapid.SampledFrom(instances(l.caller)).Draw(t, "from instance")]
		}
		f.caller = &side{at: p, role: "client", peer: f.callee, request: f.request}
		o := model.arrive(f.caller)
		f.last = happened(step{place: p.name, call: f.id, attempt: -1, kind: "req", peer: f.callee, request: f.request, source: -1}, o)
		if !f.mute {
			f.sent = o.out
		}
		if f.caller.finished {
			f.state = "done"
		}
	}
	arrive := func(f *flight) {
		p := places[rapid.SampledFrom(instances(f.callee)).Draw(t, "instance")]
		a := &attempt{state: "arrived"}
		a.side = &side{at: p, role: "server", request: f.request, brought: f.sent}
		if f.caller != nil {
			a.side.peer = f.caller.at.service
		}
		o := model.arrive(a.side)
		a.last = happened(step{place: p.name, call: f.id, attempt: len(f.attempts), kind: "req", request: f.request, source: f.last}, o)
		f.attempts = append(f.attempts, a)
		a.pass(o, f.request)
	}
	status := func(f *flight) int {
		if f.request.grpc {
			return rapid.SampledFrom([]int{0, 0, 14}).Draw(t, "grpc status")
		}
		return rapid.SampledFrom([]int{200, 200, 302, 503}).Draw(t, "status")
	}
	answer := func(f *flight, i int) {
		a := f.attempts[i]
		a.status = status(f)
		o := model.answered(a.side, a.status, false, nil)
		a.last = happened(step{place: a.side.at.name, call: f.id, attempt: i, kind: "resp", request: f.request, status: a.status, source: -1}, o)
		a.state, a.out = "answered", o.out
		if f.sent == nil {
			a.out = nil
		}
		a.pass(o, f.request)
	}
	// back is the answer at the caller: from attempt i, or from nobody we see.
	back := func(f *flight, i int) {
		s := step{place: f.caller.at.name, call: f.id, attempt: -1, kind: "resp", request: f.request, source: -1}
		var out *parcel
		if i >= 0 {
			a := f.attempts[i]
			s.status, s.broken, s.source, out = a.status, a.broken, a.last, a.out
			a.state = "gone"
		} else {
			s.status, s.made = status(f), true
		}
		o := model.answered(f.caller, s.status, s.broken, out)
		f.last = happened(s, o)
		f.state = "answered"
		if f.caller.finished || s.broken {
			f.state = "done"
		}
	}
	deliver := func(f *flight) {
		o := model.delivered(f.caller)
		happened(step{place: f.caller.at.name, call: f.id, attempt: -1, kind: "delivered", request: f.request, source: -1}, o)
		f.state = "done"
	}

	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		choices := []func(){begin}
		for _, f := range flights {
			open := 0
			for i, a := range f.attempts {
				if a.state == "arrived" {
					choices = append(choices, func() { answer(f, i) })
				}
				if a.state != "gone" {
					open++
				}
				if a.state == "answered" && f.caller != nil && f.state == "asked" {
					choices = append(choices, func() { back(f, i) })
				}
			}
			switch {
			case f.state == "asked" && !f.mute && (f.caller != nil && len(f.attempts) < 2 || len(f.attempts) == 0):
				choices = append(choices, func() { arrive(f) })
			case f.state == "asked" && f.caller != nil && open == 0:
				choices = append(choices, func() { back(f, -1) })
			case f.state == "answered":
				choices = append(choices, func() { deliver(f) })
			}
		}
		choices[rapid.IntRange(0, len(choices)-1).Draw(t, "choice")]()
	}
	for name, p := range places {
		x.known[name] = model.summary(p)
	}
	return x
}

// pass turns what the callee's sidecar decided into what the caller will get.
func (a *attempt) pass(o outcome, r *request) {
	switch o.action {
	case "error":
		a.state, a.status = "answered", 503
		if r.grpc {
			a.status = 14
		}
		a.out = o.out
		if a.side.brought == nil {
			a.out = nil
		}
	case "abort", "drop":
		a.state, a.status, a.broken, a.out = "answered", 0, true, nil
	}
}
