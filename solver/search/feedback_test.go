package search

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// abortAnswers asks for one fault only: an aborted answer of the callee.
func abortAnswers(callee string) *solverv1.StartSessionRequest {
	return &solverv1.StartSessionRequest{Faults: &campaignv1.FaultModel{
		Faults:  []*campaignv1.NamedFault{{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}}},
		Phases:  []tfiv1.Phase{tfiv1.Phase_PHASE_RESP},
		Callees: []string{callee},
	}}
}

// inFront wraps steps into a call from outside to a.
func inFront(name string, steps func(r *tracetest.Run)) *tracetest.Run {
	r := tracetest.New(name)
	root := r.Send("", "a", "GET /").Receive()
	steps(r)
	root.Answer(200)
	return r.End()
}

func find(t *testing.T, cs []*solverv1.Candidate, id string) *solverv1.Candidate {
	t.Helper()
	for _, c := range cs {
		if c.GetId() == id {
			return c
		}
	}
	t.Fatalf("no candidate %s among %v", id, ids(cs))
	return nil
}

func TestMissedWeakensTheGuard(t *testing.T) {
	// One after the other: at the second answer, b is known to have answered twice.
	s := begin(t, abortAnswers("b"), inFront("clean", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Done()
		r.Send("a", "b", "GET /b").Done()
	}))
	second := find(t, next(t, s), "a-b-GET-b-k2-resp-abort")
	if g := guardText(second.GetTfics()[0].GetGuard()); !strings.Contains(g, "b/server a GET /b resp success ≥ 2") {
		t.Fatalf("guard %s", g)
	}
	// This time both are under way at once, and the second answer comes first.
	both := inFront("both", func(r *tracetest.Run) {
		one, two := r.Send("a", "b", "GET /b"), r.Send("a", "b", "GET /b")
		two.Done()
		one.Done()
	})
	tell(t, s, result(second.GetId(), missed, "", both))
	again := find(t, next(t, s), "a-b-GET-b-k2-resp-abort-r2")
	if g := guardText(again.GetTfics()[0].GetGuard()); !strings.Contains(g, "b/server a GET /b resp success ≥ 1") {
		t.Errorf("the guard is still %s", g)
	}
	if again.GetTfics()[0].GetId() != again.GetId() {
		t.Errorf("the TFIC is called %s", again.GetTfics()[0].GetId())
	}
	// A late result of the first revision says nothing of the second.
	tell(t, s, result(second.GetId(), effective, "x", nil))
	for range 3 {
		tell(t, s, result(again.GetId(), missed, "", nil))
		if more := next(t, s); len(more) > 0 {
			again = more[0]
		}
	}
	if more := next(t, s); len(more) > 0 {
		t.Errorf("given up on never: %v", ids(more))
	}
	if c := coverage(t, s); c.GetUnreached()[reasonMissed] != 1 {
		t.Errorf("coverage %v", c)
	}
}

func TestPrematureAddsARival(t *testing.T) {
	clean := inFront("clean", func(r *tracetest.Run) {
		r.Send("a", "c", "GET /c").Done()
		r.Send("a", "b", "GET /b").Done()
	})
	s := begin(t, abortAnswers("b"), clean)
	first := find(t, next(t, s), "a-b-GET-b-k1-resp-abort")
	if g := guardText(first.GetTfics()[0].GetGuard()); strings.Contains(g, "GET /c") {
		t.Fatalf("guard %s", g)
	}
	// b is called before c, which clean runs never showed, and the fault strikes there.
	early := inFront("early", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(first.GetId(), "abort")
		r.Send("a", "c", "GET /c").Done()
		r.Send("a", "b", "GET /b").Done()
	})
	tell(t, s, result(first.GetId(), premature, "", early))
	again := find(t, next(t, s), "a-b-GET-b-k1-resp-abort-r2")
	g := guardText(again.GetTfics()[0].GetGuard())
	if !strings.Contains(g, "a/client c GET /c req ≥ 1") {
		t.Errorf("the guard does not wait for c: %s", g)
	}
	if again.GetTfics()[0].GetTarget().GetEnforceK() {
		t.Error("the rank is enforced, though a guard will do")
	}
	// Without a trace to learn from, the rank has to do.
	tell(t, s, result(again.GetId(), premature, "", nil))
	third := find(t, next(t, s), "a-b-GET-b-k1-resp-abort-r3")
	if !third.GetTfics()[0].GetTarget().GetEnforceK() {
		t.Error("the rank is not enforced")
	}
}

func TestInexpressibleFallsBackToTheRank(t *testing.T) {
	clean := inFront("clean", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() })
	s := begin(t, abortAnswers("b"), clean)
	first := next(t, s)[0]
	// Struck at a moment that looks like the target in every respect.
	same := inFront("same", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(first.GetId(), "abort")
	})
	tell(t, s, result(first.GetId(), premature, "", same))
	more := next(t, s)
	if len(more) > 0 {
		t.Errorf("candidates %v: neither guard nor rank can tell the two apart", ids(more))
	}
	if c := coverage(t, s); c.GetUnreached()[reasonInexpressible] != 1 {
		t.Errorf("coverage %v", c)
	}
}

func TestMultipleIsNarrowed(t *testing.T) {
	clean := inFront("clean", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() })
	s := begin(t, abortAnswers("b"), clean)
	var seen []string
	for c := next(t, s); len(c) == 1; c = next(t, s) {
		sigma := c[0].GetTfics()[0].GetTarget()
		seen = append(seen, fmt.Sprintf("%s enforced %v at the %s", c[0].GetId(), sigma.GetEnforceK(), short(sigma.GetPlacement())))
		tell(t, s, result(c[0].GetId(), multiple, "", nil))
	}
	want := []string{
		"a-b-GET-b-k1-resp-abort enforced false at the caller",
		"a-b-GET-b-k1-resp-abort-r2 enforced true at the caller",
		"a-b-GET-b-k1-resp-abort-r3 enforced true at the callee",
	}
	if d := cmp.Diff(want, seen); d != "" {
		t.Error(d)
	}
	if c := coverage(t, s); c.GetUnreached()[reasonMultiple] != 1 {
		t.Errorf("coverage %v", c)
	}
}

func pairs(r *solverv1.StartSessionRequest) *solverv1.StartSessionRequest {
	r.MaxFaults = 2
	return r
}

// A retry survives one fault; only both attempts together break it.
func TestRetryNeedsTwoFaults(t *testing.T) {
	clean := inFront("clean", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() })
	s := begin(t, pairs(abortAnswers("b")), clean)
	one := next(t, s)[0]
	tell(t, s, result(one.GetId(), tolerated, "", inFront("retried", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(one.GetId(), "abort")
		r.Send("a", "b", "GET /b").Done()
	})))
	list := next(t, s)
	if len(list) != 1 || len(list[0].GetTfics()) != 2 {
		t.Fatalf("candidates %v, want one of two faults", ids(list))
	}
	golden(t, "retry.txt", candidateText(list[0]))
	both := list[0]
	// Only the first struck: the pair has not been seen.
	half := inFront("half", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(both.GetTfics()[0].GetId(), "abort")
		r.Send("a", "b", "GET /b").Done()
	})
	tell(t, s, result(both.GetId(), tolerated, "", half))
	again := next(t, s)
	if len(again) != 1 || again[0].GetId() != both.GetId()+"-r2" {
		t.Fatalf("candidates %v", ids(again))
	}
	tell(t, s, result(again[0].GetId(), effective, "500", inFront("down", func(r *tracetest.Run) {
		for _, f := range again[0].GetTfics() {
			r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(f.GetId(), "abort")
		}
	})))
	if more := next(t, s); len(more) > 0 {
		t.Errorf("more candidates %v", ids(more))
	}
	if c := coverage(t, s); !c.GetExhausted() || !strings.HasPrefix(c.GetStatement(), "exhausted(size ≤ 2") {
		t.Errorf("statement %q", c.GetStatement())
	}
}

// TestSetsThatWereNotLookedFor: what the search did not get to is not exhausted.
func TestSetsThatWereNotLookedFor(t *testing.T) {
	r := abortAnswers("b")
	r.Faults.Callees = nil
	s := begin(t, pairs(r), inFront("clean", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Done()
		r.Send("a", "c", "GET /c").Done()
	}))
	for _, one := range next(t, s) {
		tell(t, s, result(one.GetId(), tolerated, "", inFront(one.GetId(), func(r *tracetest.Run) {
			for _, callee := range []string{"b", "c"} {
				c := r.Send("a", callee, "GET /"+callee).Receive().Answer(200)
				if callee == one.GetTfics()[0].GetTarget().GetCallee() {
					c.FailAnswer(one.GetId(), "abort")
				} else {
					c.Get().Deliver()
				}
			}
		})))
	}
	s.steps = 1
	if got := next(t, s); len(got) != 0 {
		t.Errorf("candidates %v after one step", ids(got))
	}
	if c := coverage(t, s); c.GetExhausted() || c.GetStatement() != "incomplete(1, 1 the search stopped at its bound: sets of 2)" {
		t.Errorf("statement %q", c.GetStatement())
	}
	s.steps = maxSteps
	if got := next(t, s); len(got) != 1 {
		t.Errorf("candidates %v", ids(got))
	}
}

// What breaks the outcome alone is combined only with faults of its own run.
func TestEffectiveSetsGrowForOtherOutcomes(t *testing.T) {
	r := abortAnswers("b")
	r.Faults.Callees = nil
	clean := inFront("clean", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Done()
		r.Send("a", "c", "GET /c").Done()
		r.Send("a", "d", "GET /d").Done()
	})
	s := begin(t, pairs(r), clean)
	for _, c := range next(t, s) {
		switch c.GetTfics()[0].GetTarget().GetCallee() {
		case "b": // the run ends there
			tell(t, s, result(c.GetId(), effective, "500", inFront("b down", func(r *tracetest.Run) {
				r.Send("a", "b", "GET /b").Receive().Answer(200).FailAnswer(c.GetId(), "abort")
			})))
		case "c": // a fallback is asked, and a part is missing
			tell(t, s, result(c.GetId(), effective, "partial", inFront("c down", func(r *tracetest.Run) {
				r.Send("a", "b", "GET /b").Done()
				r.Send("a", "c", "GET /c").Receive().Answer(200).FailAnswer(c.GetId(), "abort")
				r.Send("a", "f", "GET /fallback").Done()
				r.Send("a", "d", "GET /d").Done()
			})))
		case "d":
			tell(t, s, result(c.GetId(), tolerated, "", inFront("d down", func(r *tracetest.Run) {
				r.Send("a", "b", "GET /b").Done()
				r.Send("a", "c", "GET /c").Done()
				r.Send("a", "d", "GET /d").Receive().Answer(200).FailAnswer(c.GetId(), "abort")
			})))
		}
	}
	var got []string
	for _, c := range next(t, s) {
		var callees []string
		for _, f := range c.GetTfics() {
			callees = append(callees, f.GetTarget().GetCallee())
		}
		got = append(got, strings.Join(callees, "+"))
	}
	if d := cmp.Diff([]string{"b+c", "c+d", "c+f"}, got); d != "" {
		t.Error(d)
	}
}

func TestContaminatedIsRepeated(t *testing.T) {
	s := begin(t, abortAnswers("b"), inFront("clean", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() }))
	id := next(t, s)[0].GetId()
	tell(t, s, result(id, campaignv1.Verdict_VERDICT_CONTAMINATED, "", nil))
	if d := cmp.Diff([]string{id}, ids(next(t, s))); d != "" {
		t.Error(d)
	}
}

func TestMoreCleanRunsLater(t *testing.T) {
	two := func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Done()
		r.Send("a", "b", "GET /b").Done()
	}
	s := begin(t, abortAnswers("b"), inFront("one", two))
	if n := len(next(t, s)); n != 2 {
		t.Fatalf("%d candidates", n)
	}
	// The second call turns out to be there only sometimes.
	if _, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{
		inFront("two", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() }).Recorded(),
	}); err != nil {
		t.Fatal(err)
	}
	tell(t, s, result("a-b-GET-b-k1-resp-abort", effective, "x", nil), result("a-b-GET-b-k2-resp-abort", missed, "", nil))
	if more := next(t, s); len(more) != 0 {
		t.Errorf("candidates %v", ids(more))
	}
	if c := coverage(t, s); c.GetUnreached()[reasonVaries] != 1 || !c.GetExhausted() || !strings.HasSuffix(c.GetStatement(), ", beside 1 not in every clean run") {
		t.Errorf("coverage %v", c)
	}
}
