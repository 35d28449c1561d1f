package search

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func TestFaultModelNarrowsTheSpace(t *testing.T) {
	delay := &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{}}}
	for _, tt := range []struct {
		name   string
		model  *campaignv1.FaultModel
		want   int
		only   string
		placed tfiv1.Placement
	}{
		{"default", nil, 20, "", tfiv1.Placement_PLACEMENT_CALLER},
		{"one callee", &campaignv1.FaultModel{Callees: []string{"driver"}}, 4, "-driver-", tfiv1.Placement_PLACEMENT_CALLER},
		{"one phase", &campaignv1.FaultModel{Phases: []tfiv1.Phase{tfiv1.Phase_PHASE_RESP}}, 10, "-resp-", tfiv1.Placement_PLACEMENT_CALLER},
		{"one fault", &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{{Name: "lost", Fault: delay}}}, 10, "-lost", tfiv1.Placement_PLACEMENT_CALLER},
		{"at the callee", &campaignv1.FaultModel{Placement: tfiv1.Placement_PLACEMENT_CALLEE}, 20, "", tfiv1.Placement_PLACEMENT_CALLEE},
		{"nobody", &campaignv1.FaultModel{Callees: []string{"nobody"}}, 0, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := next(t, begin(t, &solverv1.StartSessionRequest{Faults: tt.model}, dispatches(2)...))
			if len(got) != tt.want {
				t.Errorf("%d candidates, want %d: %v", len(got), tt.want, ids(got))
			}
			for _, c := range got {
				if !strings.Contains(c.GetId(), tt.only) || c.GetTfics()[0].GetTarget().GetPlacement() != tt.placed {
					t.Errorf("%s at the %v", c.GetId(), c.GetTfics()[0].GetTarget().GetPlacement())
				}
			}
		})
	}
}

func TestLeavesAndOutsiders(t *testing.T) {
	run := func(name string) *tracetest.Run {
		r := tracetest.New(name)
		r.Leaf("leaf")
		root := r.Send("", "a", "GET /").Receive()
		r.Send("a", "leaf", "GET /l").Receive().Answer(200).Get().Deliver()
		root.Answer(200)
		return r.End()
	}
	request := &solverv1.StartSessionRequest{Leaves: []string{"leaf"}, Faults: &campaignv1.FaultModel{Placement: tfiv1.Placement_PLACEMENT_CALLEE}}
	s := begin(t, request, run("1"), run("2"))
	got := next(t, s)
	if len(got) != 4 {
		t.Fatalf("candidates %v", ids(got))
	}
	for _, c := range got {
		sigma := c.GetTfics()[0].GetTarget()
		if sigma.GetCaller() != "a" || sigma.GetPlacement() != tfiv1.Placement_PLACEMENT_CALLER {
			t.Errorf("%s: %v; only a's sidecar can do it", c.GetId(), sigma)
		}
		// The leaf cannot say that it has succeeded, its answer can.
		if sigma.GetPhase() == tfiv1.Phase_PHASE_RESP && (c.GetTfics()[0].GetGuard() != nil || sigma.GetWhen() != tfiv1.Outcome_OUTCOME_SUCCESS) {
			t.Errorf("%s: %s", c.GetId(), candidateText(c))
		}
	}
	_, warnings := beginOddly(t, nil, run("1"))
	if !strings.Contains(strings.Join(warnings, "\n"), "declared a leaf") {
		t.Errorf("nothing is said of a service without sidecar: %v", warnings)
	}
}

func TestCallsAfterTheAnswerAreNoTargets(t *testing.T) {
	r := tracetest.New("late")
	root := r.Send("", "a", "GET /").Receive()
	r.Send("a", "b", "GET /before").Done()
	root.Answer(200)
	r.Send("a", "b", "GET /after").Done()
	got := next(t, begin(t, nil, r.End()))
	for _, c := range got {
		if c.GetTfics()[0].GetTarget().GetApi() != "GET /before" {
			t.Errorf("%s cannot change an answer that has left", c.GetId())
		}
	}
	if len(got) != 4 {
		t.Errorf("candidates %v", ids(got))
	}
}

// TestRunWithoutAnAnswer: without the client's answer no call is known to be too late.
func TestRunWithoutAnAnswer(t *testing.T) {
	r := tracetest.New("unanswered")
	r.Send("", "a", "GET /").Receive()
	r.Send("a", "b", "GET /b").Done()
	s, warnings := beginOddly(t, nil, r.End())
	if got := next(t, s); len(got) != 4 {
		t.Errorf("candidates %v", ids(got))
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "no answer to the client") {
		t.Errorf("warnings %v", warnings)
	}
}

func TestAnswersThatFailAsARule(t *testing.T) {
	s := begin(t, abortAnswers("b"), inFront("404", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /b").Receive().Answer(404).Get().Deliver()
	}))
	got := next(t, s)
	if len(got) != 1 || got[0].GetPattern() != PatternUnguarded || got[0].GetTfics()[0].GetTarget().GetWhen() != tfiv1.Outcome_OUTCOME_UNSPECIFIED {
		t.Errorf("%v", got)
	}
}

func TestAnswerKind(t *testing.T) {
	json := trace.Answer{Seen: true, Bytes: 100, Chunks: 1, ContentType: "application/json", Length: true}
	with := func(change func(a *trace.Answer)) trace.Answer {
		a := json
		change(&a)
		return a
	}
	for _, tt := range []struct {
		name    string
		grpc    bool
		answers []trace.Answer
		want    tfiv1.AnswerKind
	}{
		{"not seen", false, []trace.Answer{{}}, tfiv1.AnswerKind_ANSWER_KIND_UNSPECIFIED},
		{"gRPC", true, []trace.Answer{json}, tfiv1.AnswerKind_ANSWER_KIND_UNSPECIFIED},
		{"length announced", false, []trace.Answer{json, {}}, tfiv1.AnswerKind_ANSWER_KIND_UNARY},
		{"small and chunked", false, []trace.Answer{with(func(a *trace.Answer) { a.Length, a.Chunks = false, 3 })}, tfiv1.AnswerKind_ANSWER_KIND_UNARY},
		{"large", false, []trace.Answer{json, with(func(a *trace.Answer) { a.Bytes = maxUnaryBytes + 1 })}, tfiv1.AnswerKind_ANSWER_KIND_STREAMING},
		{"events", false, []trace.Answer{with(func(a *trace.Answer) { a.ContentType = " Text/Event-Stream; charset=utf-8" })}, tfiv1.AnswerKind_ANSWER_KIND_STREAMING},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := answerKind(tt.grpc, tt.answers); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	long := "GET /" + strings.Repeat("very-long-segment/", 10)
	s := begin(t, nil, inFront("names", func(r *tracetest.Run) {
		r.Send("a", "b", "GET /x/y").Done()
		r.Send("a", "b", "GET /x-y").Done()
		r.Send("a", "b", long+"1").Done()
		r.Send("a", "b", long+"2").Done()
		r.Send("ä", "b", "GET /ü").Done()
	}))
	seen := map[string]bool{}
	for _, c := range next(t, s) { // which checks every id
		if seen[c.GetId()] {
			t.Errorf("%s twice", c.GetId())
		}
		seen[c.GetId()] = true
		if len(c.GetId()) > maxID-revisionRoom {
			t.Errorf("%s leaves no room for a revision", c.GetId())
		}
	}
	if c := coverage(t, s); len(seen) != 16 || c.GetUnreached()[reasonNames] != 4 {
		t.Errorf("%d ids, coverage %v", len(seen), c.GetUnreached())
	}
	again := begin(t, nil, inFront("names", func(r *tracetest.Run) { r.Send("a", "b", long+"1").Done() }))
	for _, c := range next(t, again) {
		if !seen[c.GetId()] {
			t.Errorf("%s was called otherwise before", c.GetId())
		}
	}
}

// Two instances of a service rank their calls apart.
func TestSeveralInstances(t *testing.T) {
	run := func(name string, atOnce bool) *tracetest.Run {
		return inFront(name, func(r *tracetest.Run) {
			one := r.Send("a", "m#1", "GET /m").Receive()
			r.Send("m#1", "b", "GET /b").Done()
			if !atOnce {
				one.Answer(200).Get().Deliver()
			}
			two := r.Send("a", "m#2", "GET /m").Receive()
			r.Send("m#2", "b", "GET /b").Done()
			two.Answer(200).Get().Deliver()
			if atOnce {
				one.Answer(200).Get().Deliver()
			}
		})
	}
	for _, tt := range []struct {
		name       string
		atOnce     bool
		candidates int
	}{
		// What has fired is known to the second, so that it holds back.
		{"one after the other", false, 1},
		// Neither knows of the other.
		{"at once", true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, warnings := beginOddly(t, abortAnswers("b"), run("1", tt.atOnce), run("2", tt.atOnce))
			if !strings.Contains(strings.Join(warnings, "\n"), "several instances of m") {
				t.Errorf("warnings %v", warnings)
			}
			if got := next(t, s); len(got) != tt.candidates {
				t.Errorf("candidates %v, want %d", ids(got), tt.candidates)
			}
			if c := coverage(t, s); int(c.GetUnreached()[reasonInexpressible]) != 1-tt.candidates {
				t.Errorf("coverage %v", c)
			}
		})
	}
}

func TestRunsOfDifferentWorkloads(t *testing.T) {
	other := tracetest.New("other")
	root := other.Send("", "a", "GET /other").Receive()
	other.Send("a", "c", "GET /c").Done()
	root.Answer(200)
	s, warnings := beginOddly(t, nil, inFront("this", func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() }), other)
	if !strings.Contains(strings.Join(warnings, "\n"), "different workloads") {
		t.Errorf("warnings %v", warnings)
	}
	if got := next(t, s); len(got) > 0 {
		t.Errorf("candidates %v", ids(got))
	}
	if c := coverage(t, s); c.GetExhausted() || !strings.HasPrefix(c.GetStatement(), "incomplete(8, ") {
		t.Errorf("statement %q", c.GetStatement())
	}
}

func TestCoverageRows(t *testing.T) {
	s := begin(t, nil, dispatches(3)...)
	for _, c := range next(t, s) {
		switch {
		case strings.Contains(c.GetId(), "-driver-"):
			r := result(c.GetId(), invalid, "", nil)
			r.Repeats = 3
			tell(t, s, r)
		case strings.Contains(c.GetId(), "-customer-"): // the budget is spent before
		default:
			tell(t, s, result(c.GetId(), effective, "null", nil))
		}
	}
	var text strings.Builder
	c := coverage(t, s)
	for _, r := range c.GetRows() {
		fmt.Fprintf(&text, "%s -> %s %s %s %s: %d calls, %d reached, %d represented, unreached %q\n", r.GetCaller(), r.GetCallee(), r.GetApi(),
			short(r.GetPhase()), r.GetFault(), r.GetCalls(), r.GetReached(), r.GetRepresented(), r.GetUnreached())
	}
	text.WriteString(c.GetStatement() + "\n")
	golden(t, "coverage.txt", text.String())
}

func TestGroupVotes(t *testing.T) {
	variable := func(i int) *attempt {
		a := &attempt{plans: []*plan{{}}}
		a.plans[0].variable.Occurrence.K = uint32(i + 1)
		return a
	}
	for _, tt := range []struct {
		name                   string
		n                      int
		states                 map[int]string // "e": effective, "t": tolerated, "x": given up
		try, represented, reps []int
	}{
		{"one", 1, nil, []int{0}, nil, []int{0}},
		{"two", 2, nil, []int{0, 1}, nil, []int{0, 1}},
		{"three", 3, nil, []int{0, 1, 2}, nil, []int{0, 1, 2}},
		{"many", 7, nil, []int{0, 3, 6}, nil, []int{0, 3, 6}},
		{"some judged", 7, map[int]string{0: "e"}, []int{3, 6}, nil, []int{0, 3, 6}},
		{"all agree", 7, map[int]string{0: "e", 3: "e", 6: "e"}, nil, []int{1, 2, 4, 5}, []int{0, 3, 6}},
		{"few disagree", 4, map[int]string{0: "e", 1: "t"}, []int{0, 1, 2, 3}, nil, []int{0, 1, 3}},
		{"two disagree already", 7, map[int]string{0: "e", 3: "t"}, []int{6, 2}, nil, []int{0, 3, 6}},
		{"many more disagree", 20, map[int]string{0: "t", 9: "e", 19: "e"}, []int{5}, nil, []int{0, 9, 19}},
		{"and are halved", 20, map[int]string{0: "t", 5: "e", 9: "e", 19: "e"}, []int{3}, nil, []int{0, 9, 19}},
		{"around those that were lost", 20, map[int]string{0: "t", 2: "x", 3: "e", 9: "e", 19: "e"}, []int{1}, nil, []int{0, 9, 19}},
		{
			"until the border is known", 20,
			map[int]string{0: "t", 1: "t", 2: "e", 9: "e", 19: "e"},
			nil,
			[]int{3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18},
			[]int{0, 9, 19},
		},
		{"one lost", 7, map[int]string{0: "e", 3: "x", 6: "e"}, []int{2}, nil, []int{0, 3, 6}},
		{"its substitute agrees", 7, map[int]string{0: "e", 2: "e", 3: "x", 6: "e"}, nil, []int{1, 4, 5}, []int{0, 3, 6}},
		{"all lost", 3, map[int]string{0: "x", 1: "x", 2: "x"}, nil, nil, []int{0, 1, 2}},
		{"as many substitutes as representatives", 9, map[int]string{0: "x", 4: "x", 8: "x", 1: "x", 3: "x"}, []int{7}, nil, []int{0, 4, 8}},
		{"lost again and again", 9, map[int]string{0: "x", 4: "x", 8: "x", 1: "x", 3: "x", 7: "x"}, nil, nil, []int{0, 4, 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var members []*attempt
			for i := range tt.n {
				a := variable(i)
				switch tt.states[i] {
				case "e":
					a.state, a.verdict = judged, effective
				case "t":
					a.state, a.verdict = judged, tolerated
				case "x":
					a.giveUp(reasonInvalid)
				}
				members = append(members, a)
			}
			g := newGroup(members)
			index := func(list []*attempt) []int {
				var out []int
				for _, a := range list {
					out = append(out, int(a.plans[0].variable.Occurrence.K)-1)
				}
				return out
			}
			try, represented := g.status()
			if d := cmp.Diff([][]int{tt.try, tt.represented, tt.reps}, [][]int{index(try), index(represented), g.reps}); d != "" {
				t.Error(d)
			}
			sum := len(g.reps)
			for _, i := range g.reps {
				sum += int(g.represents(g.members[i]))
			}
			if sum != tt.n {
				t.Errorf("representatives stand for %d of %d", sum, tt.n)
			}
		})
	}
}
