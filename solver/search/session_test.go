package search

import (
	"context"
	"slices"
	"strings"
	"testing"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// start is a session that has seen five clean runs.
func start(t *testing.T, r *solverv1.StartSessionRequest) *Session {
	t.Helper()
	s, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	var runs []*solverv1.RecordedTrial
	for seed := range uint64(5) {
		runs = append(runs, tracetest.Dispatch(seed, nil).Recorded())
	}
	warnings, err := s.AddTraces(context.Background(), runs)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) > 0 {
		t.Fatalf("warnings about clean runs: %v", warnings)
	}
	return s
}

func next(t *testing.T, s *Session) []*solverv1.Candidate {
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
	var out []string
	for _, c := range cs {
		out = append(out, c.GetId())
	}
	slices.Sort(out)
	return out
}

func TestCandidatesOfDispatch(t *testing.T) {
	s := start(t, nil)
	got := next(t, s)
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
	if d := strings.Join(ids(got), "\n"); d != strings.Join(want, "\n") {
		t.Errorf("candidates\n%s\nwant\n%s", d, strings.Join(want, "\n"))
	}
}
