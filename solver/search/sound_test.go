package search

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func program(t *rapid.T, depth int) tracetest.Program {
	var p tracetest.Program
	for range rapid.IntRange(0, 2).Draw(t, "groups") {
		var group []tracetest.Branch
		for range rapid.IntRange(1, 3-min(depth, 1)).Draw(t, "branches") {
			b := tracetest.Branch{
				Callee: rapid.SampledFrom([]string{"b", "c", "d"}).Draw(t, "callee"),
				API:    rapid.SampledFrom([]string{"GET /x", "POST /y/{id}", "p.S/M"}).Draw(t, "api"),
			}
			if depth > 0 {
				b.Body = program(t, depth-1)
			}
			group = append(group, b)
		}
		p = append(p, group)
	}
	return p
}

// Whatever a system does, each fault gets a candidate, and the engine strikes in
// every known run where the candidate says: offering checks that.
func TestCandidatesAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := program(t, rapid.IntRange(0, 2).Draw(t, "depth"))
		s, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var runs []*solverv1.RecordedTrial
		for range rapid.IntRange(1, 3).Draw(t, "runs") {
			runs = append(runs, p.Run("sound", "a", rapid.Uint64().Draw(t, "seed")).Recorded())
		}
		if warnings, err := s.AddTraces(context.Background(), runs); err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		got, err := s.Next(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got {
			if err := valid.Error(valid.Candidate(c)); err != nil {
				t.Fatal(err)
			}
		}
		c := s.coverage()
		for reason, n := range c.GetUnreached() {
			if reason != NotTried {
				t.Fatalf("%d points: %s", n, reason)
			}
		}
		for _, g := range s.groups {
			if try, _ := g.status(); len(try) == 0 {
				t.Fatal("a group without candidates")
			}
		}
	})
}

// A mesh of a few hundred calls must be solved in seconds.
func TestLargeTrace(t *testing.T) {
	s := begin(t, nil, large().Run("large", "a", 1), large().Run("large", "a", 2), large().Run("large", "a", 3))
	start := time.Now()
	got := next(t, s)
	t.Logf("%d candidates of %d points in %v", len(got), s.coverage().GetSpace(), time.Since(start))
	if len(got) == 0 || len(got) == int(s.coverage().GetSpace()) {
		t.Errorf("%d candidates of %d points", len(got), s.coverage().GetSpace())
	}
}

func large() tracetest.Program {
	leaf := tracetest.Program{{{Callee: "store", API: "GET /items/{id}"}, {Callee: "store", API: "GET /items/{id}"}, {Callee: "cache", API: "cache.Cache/Get"}}}
	var group []tracetest.Branch
	for _, callee := range []string{"b", "c", "d", "e", "f"} {
		for range 5 {
			group = append(group, tracetest.Branch{Callee: callee, API: "GET /part", Body: leaf})
		}
	}
	return tracetest.Program{group, group, group}
}

func BenchmarkSolveLarge(b *testing.B) {
	runs := []*tracetest.Run{large().Run("large", "a", 1), large().Run("large", "a", 2), large().Run("large", "a", 3)}
	for b.Loop() {
		s := begin(b, nil, runs...)
		got := next(b, s)
		b.ReportMetric(float64(len(got)), "candidates")
	}
}
