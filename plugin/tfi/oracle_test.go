package tfi_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// conditions are all that the verdicts must not depend on.
type conditions struct {
	seed uint64
	// start of the clock.
	start time.Duration
	// engines of each sidecar, used in turn: workers, and policies pushed meanwhile.
	engines int
	// fickle stores lose the race for a state before they win it.
	fickle bool
	// noise draws a number of unrelated messages before each step; nil: none.
	noise func() int
}

// fickle is a store that keeps bytes, and first lets every step lose: on the
// state as it was before the last step, and on an empty one.
type fickle struct {
	states map[tfi.StateID][]byte
	before map[tfi.StateID][]byte
}

func (f *fickle) Update(id tfi.StateID, u tfi.Updater) error {
	for _, old := range [][]byte{nil, f.before[id]} {
		var s tfi.State
		if old != nil {
			if err := s.UnmarshalBinary(old); err != nil {
				return err
			}
		}
		u.Apply(&s)
	}
	var s tfi.State
	if b := f.states[id]; b != nil {
		if err := s.UnmarshalBinary(b); err != nil {
			return err
		}
	}
	u.Apply(&s)
	f.before[id] = f.states[id]
	b, err := s.AppendBinary(nil)
	f.states[id] = b
	return err
}

// world plays an execution on real engines.
type world struct {
	x       *execution
	cond    conditions
	now     time.Duration
	engines map[string][]*tfi.Engine
	view    map[string]func(look func(*tfi.State))
	turn    int
	calls   map[[2]int]*tfi.Call
	// sent is what left each step that has been played, by its index.
	sent  map[int]string
	names map[tfi.Tag]string
}

var otherKey = tfi.Key{9, 9, 9, 9, 9, 9, 9}

func newWorld(t rapid.TB, x *execution, cond conditions) *world {
	w := &world{
		x: x, cond: cond, now: cond.start,
		engines: map[string][]*tfi.Engine{},
		view:    map[string]func(func(*tfi.State)){},
		calls:   map[[2]int]*tfi.Call{},
		sent:    map[int]string{},
		names:   map[tfi.Tag]string{},
	}
	rand := func() uint64 {
		cond.seed = cond.seed*6364136223846793005 + 1442695040888963407
		return cond.seed
	}
	act := &tfiv1.Activation{Key: testKey[:], Tfics: x.tfics, Remaining: durationpb.New(time.Minute), Services: serviceNames}
	other := &tfiv1.Activation{Key: otherKey[:], Tfics: x.tfics, Remaining: durationpb.New(time.Minute), Services: serviceNames}
	for _, name := range x.places {
		var store tfi.Store
		id := tfi.StateID{Key: testKey}
		if cond.fickle {
			f := &fickle{states: map[tfi.StateID][]byte{}, before: map[tfi.StateID][]byte{}}
			store = f
			w.view[name] = func(look func(*tfi.State)) {
				var s tfi.State
				if b := f.states[id]; b != nil && s.UnmarshalBinary(b) == nil {
					look(&s)
				}
			}
		} else {
			m := tfi.NewMemory(0)
			store = m
			w.view[name] = func(look func(*tfi.State)) { m.View(id, look) }
		}
		for i := range cond.engines {
			p := &tfiv1.Policy{Service: name[:1], Version: fmt.Sprint(i), Activations: []*tfiv1.Activation{act}}
			if i%2 == 1 || cond.noise != nil {
				p.Activations = append(p.Activations, other)
			}
			for _, s := range serviceNames {
				p.Peers = append(p.Peers, &tfiv1.Peer{Service: s, Clusters: []string{"to-" + s}})
			}
			p.Peers = append(p.Peers, &tfiv1.Peer{Service: "leaf", Clusters: []string{"to-leaf"}, Leaf: true})
			w.engines[name] = append(w.engines[name], tfi.NewEngine(parse(t, p), store, tfi.Options{Rand: rand, Now: cond.start}))
		}
	}
	return w
}

func (w *world) engine(place string) *tfi.Engine {
	w.turn++
	es := w.engines[place]
	return es[w.turn%len(es)]
}

// play takes one step and says what came of it.
func (w *world) play(index int) string {
	s := &w.x.steps[index]
	if w.cond.noise != nil {
		for range w.cond.noise() {
			w.disturb(s.place)
		}
	}
	w.now += time.Microsecond
	e := w.engine(s.place)
	c := w.calls[[2]int{s.call, s.attempt}]
	if c == nil {
		c = new(tfi.Call)
		w.calls[[2]int{s.call, s.attempt}] = c
	}
	h := headers{}
	if s.source >= 0 && w.sent[s.source] != "" {
		h[tfi.EvidenceHeader] = w.sent[s.source]
	}
	var d tfi.Decision
	switch s.kind {
	case "req":
		h["traceparent"] = traceparent(testKey)
		if s.request.header != "" {
			h["x-user"] = s.request.header
		}
		r := &tfi.Request{Role: tfi.RoleServer, Method: s.request.method, Path: s.request.path, GRPC: s.request.grpc, Headers: h, Now: w.now}
		if s.attempt < 0 {
			r.Role, r.Cluster = tfi.RoleClient, "to-"+s.peer
		}
		d = e.Request(c, r)
	case "resp":
		d = e.Response(c, &tfi.Response{Status: s.status, Broken: s.broken, Made: s.made, Headers: h, Now: w.now})
	case "delivered":
		e.Delivered(c, w.now)
	}
	if d.Action != tfi.ActionAbort && d.Action != tfi.ActionDrop {
		w.sent[index] = string(d.Evidence)
	}
	return w.describe(s, c, d)
}

// disturb sends messages that have nothing to do with the trial.
func (w *world) disturb(place string) {
	for i, h := range []headers{
		{"traceparent": traceparent(otherKey)},
		{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"traceparent": traceparent(tfi.Key{7})},
		{},
	} {
		r := requests[i%len(requests)]
		var c tfi.Call
		w.engine(place).Request(&c, &tfi.Request{
			Role: tfi.Role(1 + i%2), Cluster: "to-a", Method: r.method, Path: r.path, GRPC: r.grpc, Headers: h, Now: w.now,
		})
		w.engine(place).Response(&c, &tfi.Response{Status: 200, Headers: h, Now: w.now})
	}
}

func (w *world) describe(s *step, c *tfi.Call, d tfi.Decision) string {
	r := c.Record()
	if !c.Active() || r == nil {
		return "not active"
	}
	w.names[r.Instance] = s.place
	e := map[string]tfi.EventRecord{"req": r.Req, "resp": r.Resp, "delivered": r.Delivered}[s.kind]
	from := ""
	if e.From != 0 {
		from = fmt.Sprint(w.names[e.From], "/", e.FromSeq)
	}
	action := [...]string{"forward", "delay", "error", "abort", "drop"}[d.Action]
	tfic := ""
	if d.TFIC != nil {
		tfic = d.TFIC.ID
	}
	var judged []string
	for _, j := range r.Judged {
		judged = append(judged, j.TFIC.ID+"="+j.Reason.String())
	}
	peer := strings.TrimPrefix(string(r.Peer), "to-")
	return verdictText(s.place, r.Role.String(), s.kind, peer, string(r.API), int(r.K), int(e.Seq), from, r.Retry,
		action, tfic, judged, knownText(r.Known))
}

func knownText(known []tfi.Known) string {
	var b []string
	for _, k := range known {
		b = append(b, fmt.Sprint(k.Index, ":", k.Count))
	}
	return strings.Join(b, " ")
}

// playAll takes all steps in the given order and compares.
func (w *world) playAll(t *rapid.T, order []int) {
	for _, i := range order {
		if got, want := w.play(i), w.x.steps[i].want; got != want {
			t.Fatalf("step %d of %v:\n got %s\nwant %s\n%s", i, order, got, want, w.x)
		}
	}
	for _, name := range w.x.places {
		got := ""
		w.view[name](func(s *tfi.State) {
			var known []tfi.Known
			for i := range s.Known().Width() {
				if n := s.Known().Sum(i); n > 0 {
					known = append(known, tfi.Known{Index: i, Count: n})
				}
			}
			got = knownText(known)
		})
		if got != w.x.known[name] {
			t.Fatalf("%s knows [%s] in the end, want [%s]\n%s", name, got, w.x.known[name], w.x)
		}
	}
}

func (x *execution) String() string {
	var b bytes.Buffer
	for _, t := range x.tfics {
		fmt.Fprintln(&b, t)
	}
	for i, s := range x.steps {
		fmt.Fprintf(&b, "%3d call %d from %d: %s\n", i, s.call, s.source, s.want)
	}
	return b.String()
}

func (x *execution) inOrder() []int {
	order := make([]int, len(x.steps))
	for i := range order {
		order[i] = i
	}
	return order
}

// reordered draws another order of the steps in which each sidecar still sees its
// own in the same order, and no message arrives before it was sent.
func (x *execution) reordered(t *rapid.T) []int {
	var order []int
	left := x.inOrder()
	for len(left) > 0 {
		var ready []int
		seen := map[string]bool{}
		for _, i := range left {
			s := x.steps[i]
			call := fmt.Sprint(s.call, "/", s.attempt)
			if !seen[s.place] && !seen[call] && !slices.Contains(left, s.source) {
				ready = append(ready, i)
			}
			seen[s.place], seen[call] = true, true
		}
		next := rapid.SampledFrom(ready).Draw(t, "next")
		order = append(order, next)
		left = slices.DeleteFunc(left, func(i int) bool { return i == next })
	}
	return order
}

func TestEngineAgreesWithNaiveModel(t *testing.T) {
	fired, judged, retries := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		x := drawExecution(t)
		newWorld(t, x, conditions{seed: 1, engines: 1}).playAll(t, x.inOrder())
		for _, s := range x.steps {
			if !strings.Contains(s.want, " forward ") {
				fired++
			}
			if strings.Contains(s.want, "=guard") {
				judged++
			}
			if strings.Contains(s.want, "retry=true") {
				retries++
			}
		}
	})
	// An oracle that never sees a fault would agree with anything.
	if fired == 0 || judged == 0 || retries == 0 {
		t.Errorf("%d firings, %d guarded, %d retries: the executions are too tame", fired, judged, retries)
	}
}

func TestVerdictDependsOnNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawExecution(t)
		cond := conditions{
			seed:    rapid.Uint64().Draw(t, "seed"),
			start:   time.Duration(rapid.Int64Range(0, 1<<50).Draw(t, "start")),
			engines: rapid.IntRange(1, 3).Draw(t, "engines"),
			fickle:  rapid.Bool().Draw(t, "fickle"),
			noise:   func() int { return rapid.IntRange(0, 1).Draw(t, "noise") },
		}
		newWorld(t, x, cond).playAll(t, x.reordered(t))
	})
}
