package search

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	effective = campaignv1.Verdict_VERDICT_EFFECTIVE
	tolerated = campaignv1.Verdict_VERDICT_TOLERATED
	missed    = campaignv1.Verdict_VERDICT_MISSED
	premature = campaignv1.Verdict_VERDICT_PREMATURE
	multiple  = campaignv1.Verdict_VERDICT_MULTIPLE
	invalid   = campaignv1.Verdict_VERDICT_INVALID
)

// begin is a session that has seen runs, none of which is odd.
func begin(t testing.TB, r *solverv1.StartSessionRequest, runs ...*tracetest.Run) *Session {
	t.Helper()
	s, warnings := beginOddly(t, r, runs...)
	if len(warnings) > 0 {
		t.Fatalf("warnings about clean runs: %v", warnings)
	}
	return s
}

func beginOddly(t testing.TB, r *solverv1.StartSessionRequest, runs ...*tracetest.Run) (*Session, []string) {
	t.Helper()
	s, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []*solverv1.RecordedTrial
	for _, run := range runs {
		recorded = append(recorded, run.Recorded())
	}
	warnings, err := s.AddTraces(context.Background(), recorded)
	if err != nil {
		t.Fatal(err)
	}
	return s, warnings
}

func dispatches(n uint64) []*tracetest.Run {
	var out []*tracetest.Run
	for seed := range n {
		out = append(out, tracetest.Dispatch(seed, nil))
	}
	return out
}

func next(t testing.TB, s *Session) []*solverv1.Candidate {
	t.Helper()
	out, err := s.Next(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out {
		if err := valid.Error(valid.Candidate(c)); err != nil {
			t.Errorf("%s: %v", c.GetId(), err)
		}
	}
	return out
}

func ids(cs []*solverv1.Candidate) []string {
	out := []string{}
	for _, c := range cs {
		out = append(out, c.GetId())
	}
	slices.Sort(out)
	return out
}

func result(id string, v campaignv1.Verdict, signature string, run *tracetest.Run) *solverv1.Result {
	r := &solverv1.Result{Candidate: id, Verdict: v, Signature: signature}
	if run != nil {
		r.Recorded = run.Recorded()
	}
	return r
}

func tell(t testing.TB, s *Session, results ...*solverv1.Result) {
	t.Helper()
	if err := s.AddResults(context.Background(), results); err != nil {
		t.Fatal(err)
	}
}

// TestAddTrials: runs that were read before give what their spans give.
func TestAddTrials(t *testing.T) {
	runs := dispatches(3)
	var trials []*trace.Trial
	for _, run := range runs {
		read, err := trace.Trials(run.Traces())
		if err != nil {
			t.Fatal(err)
		}
		trials = append(trials, read...)
	}
	s, err := New(&solverv1.StartSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if warnings, err := s.AddTrials(trials); err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	want := next(t, begin(t, &solverv1.StartSessionRequest{}, runs...))
	if diff := cmp.Diff(want, next(t, s), protocmp.Transform()); diff != "" {
		t.Errorf("-spans +trials:\n%s", diff)
	}
	huge := &trace.Trial{}
	for i := range 6000 {
		name := fmt.Sprint(i)
		huge.Events = append(huge.Events, trace.Event{Op: trace.Op{API: name}, Instance: name})
	}
	if _, err := s.AddTrials([]*trace.Trial{huge}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many events: %v", err)
	}
}

func coverage(t testing.TB, s *Session) *campaignv1.Coverage {
	t.Helper()
	st, err := s.Statistics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c := st.GetCoverage()
	sum := c.GetReached() + c.GetRepresented()
	for _, n := range c.GetUnreached() {
		sum += n
	}
	if sum != c.GetSpace() {
		t.Errorf("reached, represented and unreached are %d together; the space is %d", sum, c.GetSpace())
	}
	return c
}

// guardText writes a guard in a line.
func guardText(g *tfiv1.Guard) string {
	switch e := g.GetExpr().(type) {
	case *tfiv1.Guard_After:
		return "After(" + guardText(e.After) + ")"
	case *tfiv1.Guard_AllOf:
		var parts []string
		for _, g := range e.AllOf.GetGuards() {
			parts = append(parts, guardText(g))
		}
		return strings.Join(parts, " and ")
	case *tfiv1.Guard_Atom:
		op := e.Atom.GetEvent().GetOp()
		s := fmt.Sprintf("%s/%s %s %s %s", op.GetObserver(), short(op.GetRole()), op.GetPeer(), op.GetApi(), short(op.GetPhase()))
		if o := e.Atom.GetEvent().GetOutcome(); o != 0 {
			s += " " + short(o)
		}
		return fmt.Sprintf("%s ≥ %d", s, e.Atom.GetCount())
	}
	return "always"
}

func short(enum fmt.Stringer) string {
	s := enum.String()
	return strings.ToLower(s[strings.LastIndexByte(s, '_')+1:])
}

func candidateText(c *solverv1.Candidate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s, %s, stands for %d more\n", c.GetId(), c.GetPattern(), c.GetFault(), c.GetRepresents())
	for _, t := range c.GetTfics() {
		sigma := t.GetTarget()
		fmt.Fprintf(&b, "  %s -> %s %s %s k=%d", sigma.GetCaller(), sigma.GetCallee(), sigma.GetApi(), short(sigma.GetPhase()), sigma.GetK())
		if sigma.GetEnforceK() {
			b.WriteString(" enforced")
		}
		fmt.Fprintf(&b, ", at the %s", short(sigma.GetPlacement()))
		if sigma.GetWhen() != 0 {
			fmt.Fprintf(&b, ", when %s", short(sigma.GetWhen()))
		}
		if t.GetAnswerKind() != 0 {
			fmt.Fprintf(&b, ", %s", short(t.GetAnswerKind()))
		}
		fmt.Fprintf(&b, "\n  %s\n", guardText(t.GetGuard()))
	}
	fmt.Fprintf(&b, "  %s\n", c.GetExplain())
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s: %s", name, d)
	}
}

func TestCandidatesOfDispatch(t *testing.T) {
	got := next(t, begin(t, nil, dispatches(5)...))
	var want []string
	for _, call := range []string{
		"frontend-customer-GET-customer-k1", "frontend-driver-DriverService-FindNearest-k1",
		"frontend-route-GET-route-k1", "frontend-route-GET-route-k5", "frontend-route-GET-route-k10",
	} {
		for _, p := range []string{"req", "resp"} {
			for _, f := range []string{"error", "abort"} {
				want = append(want, strings.Join([]string{call, p, f}, "-"))
			}
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, ids(got)); d != "" {
		t.Error(d)
	}
	var text strings.Builder
	for _, c := range got {
		text.WriteString(candidateText(c))
	}
	golden(t, "dispatch.txt", text.String())
}

// Neither clocks nor the order in which runs arrive may change a candidate.
func TestCandidatesDependOnCausalityOnly(t *testing.T) {
	want := next(t, begin(t, nil, dispatches(5)...))
	skewed := func(by time.Duration) []*tracetest.Run {
		var out []*tracetest.Run
		for seed := range uint64(5) {
			r := tracetest.New(fmt.Sprintf("dispatch %d", seed))
			r.Skew("route", by)
			r.Skew("driver", -3*by)
			out = append(out, tracetest.DispatchOf(r, seed, nil))
		}
		return out
	}
	backwards := dispatches(5)
	slices.Reverse(backwards)
	for name, runs := range map[string][]*tracetest.Run{
		"a clock that is late": skewed(-time.Hour), "a clock that is early": skewed(time.Minute), "another order": backwards,
	} {
		t.Run(name, func(t *testing.T) {
			got := next(t, begin(t, nil, runs...))
			for i := range want {
				if d := cmp.Diff(candidateText(want[i]), candidateText(got[i])); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestRepresentativesAgree(t *testing.T) {
	s := begin(t, nil, dispatches(5)...)
	for _, c := range next(t, s) {
		tell(t, s, result(c.GetId(), effective, "null", nil))
	}
	if rest := next(t, s); len(rest) > 0 {
		t.Errorf("more candidates: %v", ids(rest))
	}
	c := coverage(t, s)
	if c.GetSpace() != 48 || c.GetReached() != 20 || c.GetRepresented() != 28 || !c.GetExhausted() {
		t.Errorf("coverage %v", c)
	}
	want := "exhausted(size ≤ 1, faults: error abort, variants: unguarded, post-effect, k-of-n, equivalences: calls of one op by representatives that agree)"
	if c.GetStatement() != want {
		t.Errorf("statement %q", c.GetStatement())
	}
}

func TestRepresentativesDisagree(t *testing.T) {
	s := begin(t, nil, dispatches(5)...)
	for _, c := range next(t, s) {
		v := effective
		if c.GetId() == "frontend-route-GET-route-k5-req-abort" {
			v = tolerated
		}
		tell(t, s, result(c.GetId(), v, "null", nil))
	}
	for _, want := range [][]int{{3, 8}, {4, 7}, {6}} {
		var asked []string
		for _, k := range want {
			asked = append(asked, fmt.Sprintf("frontend-route-GET-route-k%d-req-abort", k))
		}
		if c := coverage(t, s); c.GetExhausted() {
			t.Errorf("exhausted before %v: %q", want, c.GetStatement())
		}
		got := next(t, s)
		if d := cmp.Diff(asked, ids(got)); d != "" {
			t.Fatal(d)
		}
		for _, c := range got {
			tell(t, s, result(c.GetId(), effective, "null", nil))
		}
	}
	if rest := next(t, s); len(rest) != 0 {
		t.Errorf("more candidates: %v", ids(rest))
	}
	if c := coverage(t, s); !c.GetExhausted() || c.GetReached() != 25 || c.GetRepresented() != 23 {
		t.Errorf("coverage %v", c)
	}
}

func TestInvalidTrialsAreRepeated(t *testing.T) {
	s := begin(t, &solverv1.StartSessionRequest{Faults: &campaignv1.FaultModel{Callees: []string{"customer"}}}, dispatches(2)...)
	all := ids(next(t, s))
	if len(all) != 4 {
		t.Fatalf("candidates %v", all)
	}
	for range 3 {
		for _, id := range all[1:] {
			tell(t, s, result(id, effective, "", nil)) // ignored from the second time on
		}
		tell(t, s, result(all[0], invalid, "", nil))
		if d := cmp.Diff(all[:1], ids(next(t, s))); d != "" {
			t.Fatal(d)
		}
	}
	tell(t, s, result(all[0], invalid, "", nil))
	if more := next(t, s); len(more) > 0 {
		t.Errorf("given a fifth time: %v", ids(more))
	}
	if c := coverage(t, s); c.GetUnreached()[reasonInvalid] != 1 || c.GetStatement() != "incomplete(1, 1 invalid)" {
		t.Errorf("coverage %v", c)
	}
}

func TestRepeatsOfTheControllerCount(t *testing.T) {
	s := begin(t, &solverv1.StartSessionRequest{Faults: &campaignv1.FaultModel{Callees: []string{"customer"}}}, dispatches(2)...)
	for _, id := range ids(next(t, s)) {
		r := result(id, invalid, "", nil)
		r.Repeats = 3
		tell(t, s, r)
	}
	if more := next(t, s); len(more) > 0 {
		t.Errorf("given again: %v", ids(more))
	}
}

func TestLostRepresentativeIsReplaced(t *testing.T) {
	s := begin(t, &solverv1.StartSessionRequest{Faults: &campaignv1.FaultModel{
		Callees: []string{"route"}, Phases: []tfiv1.Phase{tfiv1.Phase_PHASE_REQ},
		Faults: []*campaignv1.NamedFault{{Name: "abort", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}}},
	}}, dispatches(2)...)
	for _, id := range ids(next(t, s)) {
		r := result(id, effective, "null", nil)
		if strings.Contains(id, "-k5-") {
			r.Verdict, r.Repeats = invalid, 3
		}
		tell(t, s, r)
	}
	if d := cmp.Diff([]string{"frontend-route-GET-route-k4-req-abort"}, ids(next(t, s))); d != "" {
		t.Error(d)
	}
	tell(t, s, result("frontend-route-GET-route-k4-req-abort", effective, "null", nil))
	if c := coverage(t, s); c.GetReached() != 3 || c.GetRepresented() != 6 || c.GetUnreached()[reasonInvalid] != 1 {
		t.Errorf("coverage %v", c)
	}
}

func TestLimitAndWithdraw(t *testing.T) {
	s := begin(t, nil, dispatches(2)...)
	first, err := s.Next(context.Background(), 3)
	if err != nil || len(first) != 3 {
		t.Fatalf("%d candidates, %v", len(first), err)
	}
	s.Withdraw(first[1:])
	if rest := next(t, s); len(rest) != 19 {
		t.Errorf("%d candidates, want 19", len(rest))
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	s.Withdraw(first)
	if _, err := s.Next(canceled, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestMistakes(t *testing.T) {
	s, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(context.Background(), 0); !errors.Is(err, ErrNoTraces) {
		t.Errorf("no traces: %v", err)
	}
	if c := coverage(t, s); c.GetExhausted() {
		t.Error("exhausted before it began")
	}
	if _, err := New(&solverv1.StartSessionRequest{MaxFaults: 99}); !errors.Is(err, valid.ErrInvalid) {
		t.Errorf("request: %v", err)
	}
	if _, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{{TracesData: []byte("\xff")}}); !errors.Is(err, trace.ErrFormat) {
		t.Errorf("bytes: %v", err)
	}
	s = begin(t, nil, dispatches(2)...)
	known := next(t, s)[0].GetId()
	err = s.AddResults(context.Background(), []*solverv1.Result{
		result(known, effective, "x", nil), result("nobody", effective, "x", nil),
		{Candidate: known},
		{Candidate: known, Verdict: missed, Recorded: &solverv1.RecordedTrial{TracesData: []byte("\xff")}},
	})
	for _, want := range []error{ErrUnknownCandidate, valid.ErrInvalid, trace.ErrFormat} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not in %v", want, err)
		}
	}
	if c := coverage(t, s); c.GetReached() != 0 {
		t.Error("half of a batch was taken")
	}
}

func TestManyAskers(t *testing.T) {
	s := begin(t, nil, dispatches(2)...)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				list, err := s.Next(context.Background(), 1)
				if err != nil || len(list) == 0 {
					return
				}
				mu.Lock()
				seen[list[0].GetId()]++
				mu.Unlock()
				_, _ = s.Statistics(context.Background())
				if err := s.AddResults(context.Background(), []*solverv1.Result{result(list[0].GetId(), effective, "x", nil)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != 20 {
		t.Errorf("%d candidates, want 20", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was given %d times", id, n)
		}
	}
}

// Traces that an application recorded by itself serve too.
func TestAssumedCandidates(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "trace", "testdata", "dispatch.otlp"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{{TracesData: b}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(warnings, "\n"), "assumed") {
		t.Errorf("warnings %v", warnings)
	}
	got := next(t, s)
	if len(got) != 20 {
		t.Errorf("%d candidates, want 20", len(got))
	}
	for _, c := range got {
		if !c.GetAssumed() {
			t.Errorf("%s is not marked", c.GetId())
		}
	}
}

// TestRunsThatComeLater: what later clean runs tell may change how a call's fault
// is tried. It remains one point of the space, and the search still ends.
func TestRunsThatComeLater(t *testing.T) {
	calls := func(name string, n int) *tracetest.Run {
		return inFront(name, func(r *tracetest.Run) {
			for range n {
				r.Send("a", "b", "GET /b").Done()
			}
		})
	}
	for _, tt := range []struct {
		name  string
		first bool // judged before the second run came
	}{{"before", false}, {"after", true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := begin(t, abortAnswers("b"), calls("1", 1))
			judge := func() (tried []string) {
				for {
					list := next(t, s)
					if len(list) == 0 {
						return tried
					}
					for _, c := range list {
						tried = append(tried, c.GetId())
						tell(t, s, result(c.GetId(), effective, "null", nil))
					}
				}
			}
			if tt.first {
				judge()
			}
			if _, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{calls("2", 2).Recorded()}); err != nil {
				t.Fatal(err)
			}
			tried := judge()
			c := coverage(t, s)
			if c.GetSpace() != 2 || c.GetReached() != 1 || !c.GetExhausted() {
				t.Errorf("tried %v; coverage %v", tried, c)
			}
		})
	}
}
