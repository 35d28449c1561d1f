package lineage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func variable(occurrence, fault int) Variable {
	return Variable{
		Occurrence: Occurrence{Caller: "a", Callee: "b", API: "GET /", K: uint32(occurrence)},
		Phase:      tfiv1.Phase_PHASE_REQ, Fault: fmt.Sprint(fault), Variant: "unguarded",
	}
}

func collect(f *Formula, upTo int) [][]Variable {
	var out [][]Variable
	for size := 1; size <= upTo; size++ {
		steps := 1_000_000
		out = slices.AppendSeq(out, f.Minimal(size, &steps))
	}
	return out
}

func TestMinimal(t *testing.T) {
	v := func(i int) Variable { return variable(i, 0) }
	for _, tt := range []struct {
		name    string
		clauses [][]Variable
		want    [][]Variable
	}{
		{"no clause", nil, nil},
		{"one clause", [][]Variable{{v(2), v(1)}}, [][]Variable{{v(1)}, {v(2)}}},
		{"a common one and a pair", [][]Variable{{v(1), v(2)}, {v(1), v(3)}}, [][]Variable{{v(1)}, {v(2), v(3)}}},
		{"a clause that cannot be hit", [][]Variable{{v(1)}, {}}, nil},
		{"an implied clause", [][]Variable{{v(1)}, {v(1), v(2)}}, [][]Variable{{v(1)}}},
		{"retry: first and second attempt together", [][]Variable{{v(1)}, {v(2)}}, [][]Variable{{v(1), v(2)}}},
		{
			"one variable an occurrence",
			[][]Variable{{variable(1, 0)}, {variable(1, 1), v(2)}},
			[][]Variable{{variable(1, 0), v(2)}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Formula
			for _, c := range tt.clauses {
				f.Add(c)
			}
			if d := cmp.Diff(tt.want, collect(&f, 3)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAddSaysWhetherItIsNew(t *testing.T) {
	var f Formula
	a, b := variable(1, 0), variable(2, 0)
	for i, want := range []bool{true, false, true, false} {
		clause := [][]Variable{{a, b}, {b, a}, {a}, {a, b}}[i]
		if got := f.Add(clause); got != want {
			t.Errorf("clause %d: new = %v, want %v", i, got, want)
		}
	}
	if f.Clauses() != 1 {
		t.Errorf("%d clauses are kept, want 1", f.Clauses())
	}
}

// bruteForce tries all subsets: the definition, and nothing else.
func bruteForce(vars []Variable, clauses [][]Variable, upTo int) [][]Variable {
	hits := func(mask int) bool {
		for _, c := range clauses {
			if !slices.ContainsFunc(c, func(v Variable) bool { return mask&(1<<slices.Index(vars, v)) != 0 }) {
				return false
			}
		}
		return true
	}
	var out [][]Variable
	for size := 1; size <= upTo; size++ {
		for mask := 1; mask < 1<<len(vars); mask++ {
			var chosen []Variable
			minimal, occurrences := true, map[Occurrence]int{}
			for i, v := range vars {
				if mask&(1<<i) != 0 {
					chosen = append(chosen, v)
					occurrences[v.Occurrence]++
					minimal = minimal && !hits(mask&^(1<<i))
				}
			}
			if len(chosen) == size && len(occurrences) == size && minimal && hits(mask) {
				out = append(out, chosen)
			}
		}
	}
	return out
}

func TestMinimalAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var vars []Variable
		for o := 1; o <= rapid.IntRange(1, 4).Draw(t, "occurrences"); o++ {
			for k := range rapid.IntRange(1, 2).Draw(t, "faults") {
				vars = append(vars, variable(o, k))
			}
		}
		var clauses [][]Variable
		var f Formula
		for range rapid.IntRange(1, 6).Draw(t, "clauses") {
			c := rapid.SliceOfNDistinct(rapid.SampledFrom(vars), 1, len(vars), rapid.ID[Variable]).Draw(t, "clause")
			clauses = append(clauses, c)
			f.Add(c)
		}
		order := func(sets [][]Variable) [][]Variable {
			slices.SortFunc(sets, func(a, b []Variable) int {
				if len(a) != len(b) {
					return len(a) - len(b)
				}
				return slices.CompareFunc(a, b, Compare)
			})
			return sets
		}
		slices.SortFunc(vars, Compare)
		want, got := order(bruteForce(vars, clauses, 4)), order(collect(&f, 4))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("clauses %v:\n%s", clauses, d)
		}
	})
}

func TestMinimalCanBeStopped(t *testing.T) {
	var f Formula
	f.Add([]Variable{variable(1, 0), variable(2, 0), variable(3, 0)})
	n := 0
	steps := 100
	for range f.Minimal(1, &steps) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d sets, want 2", n)
	}
}

// TestMinimalEndsAtItsBound: thirty pairs need thirty faults, and there are
// exponentially many ways to choose eight of them in vain.
func TestMinimalEndsAtItsBound(t *testing.T) {
	var f Formula
	for i := range 30 {
		f.Add([]Variable{variable(2*i, 0), variable(2*i+1, 0)})
	}
	for _, tt := range []struct{ size, steps, left int }{{1, 100, 97}, {25, 1000, -1}} {
		steps := tt.steps
		for vs := range f.Minimal(tt.size, &steps) {
			t.Fatalf("%v hits all", vs)
		}
		if (steps < 0) != (tt.left < 0) {
			t.Errorf("sets of %d: %d of %d steps are left", tt.size, steps, tt.steps)
		}
	}
}

func BenchmarkMinimalPairs(b *testing.B) {
	var f Formula
	for c := range 50 {
		var clause []Variable
		for i := range 400 {
			if i%50 != c {
				clause = append(clause, variable(i, 0))
			}
		}
		f.Add(clause)
	}
	for b.Loop() {
		n, steps := 0, 1<<30
		for range f.Minimal(2, &steps) {
			n++
		}
	}
}
