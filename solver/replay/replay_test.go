package replay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// all predicates that some event of t is counted by.
func all(t *trace.Trial) []Predicate {
	set := map[Predicate]bool{}
	for i := range t.Events {
		e := &t.Events[i]
		set[Predicate{Op: e.Op, Delivered: e.Delivered}] = true
		if e.Op.Phase == tfiv1.Phase_PHASE_RESP && !e.Delivered {
			set[Predicate{Op: e.Op, Outcome: e.Outcome}] = true
		}
	}
	var out []Predicate
	for p := range set {
		out = append(out, p)
	}
	slices.SortFunc(out, Compare)
	return out
}

func mustBuild(t interface{ Fatal(...any) }, r *tracetest.Run) *trace.Trial {
	x, err := trace.Build(r.Key(), r.Traces())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// story draws a run: services call each other in any interleaving, some answers
// fail, some reports are lost, some services have no sidecar.
func story(t *rapid.T) *tracetest.Run {
	r := tracetest.New("story")
	services := []string{"a", "b", "c", "d"}
	if rapid.Bool().Draw(t, "leaf") {
		r.Leaf("d")
	}
	type flight struct {
		c    *tracetest.Call
		to   string
		step int
	}
	root := &flight{c: r.Send("", "a", "GET /"), to: "a"}
	flying := []*flight{root}
	for n := rapid.IntRange(0, 40).Draw(t, "steps"); n > 0 && len(flying) > 0; n-- {
		f := flying[rapid.IntRange(0, len(flying)-1).Draw(t, "which")]
		// While a callee works it may call others.
		if f.step == 1 && f.to != "d" && rapid.Bool().Draw(t, "call") {
			to := rapid.SampledFrom(services).Draw(t, "to")
			api := rapid.SampledFrom([]string{"GET /x", "GET /y/{id}", "p.S/M"}).Draw(t, "api")
			c := r.Send(f.to, to, api)
			c.DropClient = rapid.IntRange(0, 9).Draw(t, "lose") == 0
			c.DropServer = rapid.IntRange(0, 9).Draw(t, "lose") == 0
			flying = append(flying, &flight{c: c, to: to})
			continue
		}
		switch f.step {
		case 0:
			f.c.Receive()
		case 1:
			switch rapid.IntRange(0, 7).Draw(t, "answer") {
			case 0:
				f.c.Refuse(500)
			case 1, 2:
				f.c.Answer(500)
			default:
				f.c.Answer(f.c.OK())
			}
		case 2:
			f.c.Get()
		case 3:
			f.c.Deliver()
			flying = slices.DeleteFunc(flying, func(g *flight) bool { return g == f })
		}
		f.step++
	}
	return r
}

// The engine exchanges evidence; the definition looks at the past. They must agree.
func TestEngineAgreesWithDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := mustBuild(t, story(t))
		predicates := all(x)
		got, err := Replay(x, predicates)
		if err != nil {
			t.Fatal(err)
		}
		want := causal(x, predicates)
		for i := range x.Events {
			// Of a sender that did not report the engine learns that it sent: more than
			// the events that are there tell.
			if len(x.UnmatchedReceives) == 0 {
				if d := cmp.Diff(want.At(i), got.At(i)); d != "" {
					t.Fatalf("event %d (%s): %s", i, x.Events[i].Op, d)
				}
				continue
			}
			for j, n := range want.At(i) {
				if got.At(i)[j] < n {
					t.Fatalf("event %d (%s): %s is known %d times, want at least %d", i, x.Events[i].Op, predicates[j], got.At(i)[j], n)
				}
			}
		}
	})
}

func TestDispatchKnowledge(t *testing.T) {
	x := mustBuild(t, tracetest.Dispatch(1, nil))
	predicates := all(x)
	k, err := Replay(x, predicates)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(causal(x, predicates), k, cmp.AllowUnexported(Knowledge{})); d != "" {
		t.Error(d)
	}
	answered := Predicate{Op: trace.Op{
		Observer: "customer", Role: tfiv1.Role_ROLE_SERVER, Peer: tracetest.Front, API: tracetest.CustomerAPI, Phase: tfiv1.Phase_PHASE_RESP,
	}, Outcome: tfiv1.Outcome_OUTCOME_SUCCESS}
	at := slices.Index(predicates, answered)
	for i := range x.Calls {
		c := &x.Calls[i]
		if c.Callee != "driver" {
			continue
		}
		// The front end's sidecar has heard of it, and takes the news along.
		for _, e := range []int{c.ClientReq, c.ServerReq, c.ClientResp} {
			if k.At(e)[at] != 1 {
				t.Errorf("%s at event %d: %d", answered, e, k.At(e)[at])
			}
		}
	}
}

// A service that works while its answer is under way knows what the caller cannot.
func TestEarlierIsNotKnown(t *testing.T) {
	r := tracetest.New("unknowable")
	r.Send("", "a", "GET /").Receive()
	first := r.Send("a", "b", "GET /b").Receive().Answer(200)
	second := r.Send("a", "c", "GET /c").Receive().Answer(200).Get()
	first.Get()
	x := mustBuild(t, r)
	p := Predicate{Op: trace.Op{Observer: "b", Role: tfiv1.Role_ROLE_SERVER, Peer: "a", API: "GET /b", Phase: tfiv1.Phase_PHASE_RESP}}
	k, err := Replay(x, []Predicate{p})
	if err != nil {
		t.Fatal(err)
	}
	_ = second
	for i := range x.Calls {
		c := &x.Calls[i]
		switch c.Callee {
		case "c":
			if n := k.At(c.ClientResp)[0]; n != 0 {
				t.Errorf("b's answer came earlier on the clock and is known %d times at a", n)
			}
		case "b":
			if n := k.At(c.ClientResp)[0]; n != 1 {
				t.Errorf("b's answer is known %d times where it arrives", n)
			}
		}
	}
}

func TestContextLostIsACut(t *testing.T) {
	r := tracetest.New("cut")
	r.Leaf("m")
	r.Send("", "a", "GET /").Receive()
	c := r.Send("a", "m", "GET /m").Receive()
	inner := r.Send("", "b", "GET /b").Receive().Answer(200) // m calls b, and nobody sees that
	c.Answer(200).Get()
	_ = inner
	x := mustBuild(t, r)
	predicates := all(x)
	k, err := Replay(x, predicates)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Events {
		for j, p := range predicates {
			if p.Op.Observer != x.Events[i].Op.Observer && k.At(i)[j] > 0 {
				t.Errorf("%s is known at %s", p, x.Events[i].Op)
			}
		}
	}
}

func TestManyPredicates(t *testing.T) {
	x := mustBuild(t, tracetest.Dispatch(1, nil))
	predicates := all(x)
	for i := range 500 {
		predicates = append(predicates, Predicate{Op: trace.Op{
			Observer: "elsewhere", Role: tfiv1.Role_ROLE_CLIENT, Peer: "x", API: fmt.Sprintf("GET /%d", i), Phase: tfiv1.Phase_PHASE_REQ,
		}})
	}
	k, err := Replay(x, predicates)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(causal(x, predicates), k, cmp.AllowUnexported(Knowledge{})); d != "" {
		t.Error(d)
	}
}

func BenchmarkReplay(b *testing.B) {
	r := tracetest.New("long")
	for range 300 {
		root := r.Send("", "a", "GET /").Receive()
		r.Send("a", "b", "GET /b").Receive()
		r.Send("b", "c", "GET /c").Done()
		root.Answer(200)
	}
	x := mustBuild(b, r)
	predicates := all(x)
	b.ReportMetric(float64(len(x.Events)), "events")
	for b.Loop() {
		if _, err := Replay(x, predicates); err != nil {
			b.Fatal(err)
		}
	}
}
