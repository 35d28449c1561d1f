package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/replay"
	"github.com/sequencefi/sequencefi/solver/trace"
)

func predicates(n int) []replay.Predicate {
	var out []replay.Predicate
	for i := range n {
		out = append(out, replay.Predicate{Op: trace.Op{
			Observer: fmt.Sprintf("s%d", i), Role: tfiv1.Role_ROLE_SERVER, Peer: "p", API: "GET /", Phase: tfiv1.Phase_PHASE_REQ,
		}})
	}
	return out
}

func points(known ...[]uint32) []Point {
	var out []Point
	for i, k := range known {
		out = append(out, Point{fmt.Sprintf("run %d", i+1), k})
	}
	return out
}

func TestSolve(t *testing.T) {
	ps := predicates(3)
	is := func(i int) func(replay.Predicate) bool {
		return func(p replay.Predicate) bool { return p == ps[i] }
	}
	for _, tt := range []struct {
		name string
		p    Problem
		want []Atom
		own  bool
		err  error
		text string // of the error
	}{
		{name: "no run", p: Problem{}, err: ErrNoTarget},
		{name: "nothing to tell apart", p: Problem{Targets: points([]uint32{1, 2, 3})}},
		{
			name: "smallest count that excludes",
			p:    Problem{Targets: points([]uint32{9, 0, 0}), Rivals: points([]uint32{2, 0, 0}, []uint32{4, 0, 0})},
			want: []Atom{{ps[0], 5}},
		},
		{
			name: "one atom for all beats one each",
			p:    Problem{Targets: points([]uint32{1, 1, 2}), Rivals: points([]uint32{0, 1, 1}, []uint32{1, 0, 1})},
			want: []Atom{{ps[2], 2}},
		},
		{
			name: "two where one does not do",
			p:    Problem{Targets: points([]uint32{1, 1, 2}), Rivals: points([]uint32{0, 1, 2}, []uint32{1, 0, 2})},
			want: []Atom{{ps[0], 1}, {ps[1], 1}},
		},
		{
			// The third excludes most, and two more would be needed beside it.
			name: "what excludes most need not be in the smallest set",
			p: Problem{Targets: points([]uint32{1, 1, 1}), Rivals: points(
				[]uint32{0, 1, 1}, []uint32{0, 1, 0}, []uint32{0, 1, 0}, []uint32{1, 0, 0}, []uint32{1, 0, 0}, []uint32{1, 0, 1},
			)},
			want: []Atom{{ps[0], 1}, {ps[1], 1}},
		},
		{
			name: "known in one run only is no candidate",
			p:    Problem{Targets: points([]uint32{1, 1, 0}, []uint32{0, 1, 0}), Rivals: points([]uint32{0, 0, 0})},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "the pattern's event is preferred",
			p:    Problem{Targets: points([]uint32{1, 1, 0}), Rivals: points([]uint32{0, 0, 0}), Fits: is(1)},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "then fewer hops",
			p: Problem{
				Targets: points([]uint32{1, 1, 0}), Rivals: points([]uint32{0, 0, 0}),
				Hops: func(p replay.Predicate) int { return 2 - slices.Index(ps, p) },
			},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "then smaller counts",
			p:    Problem{Targets: points([]uint32{7, 3, 0}), Rivals: points([]uint32{6, 2, 0})},
			want: []Atom{{ps[1], 3}},
		},
		{
			name: "own op only if need be",
			p:    Problem{Targets: points([]uint32{2, 1, 0}), Rivals: points([]uint32{1, 0, 0}), Own: is(0)},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "own op if nothing else does",
			p:    Problem{Targets: points([]uint32{2, 1, 0}), Rivals: points([]uint32{1, 1, 0}), Own: is(0)},
			want: []Atom{{ps[0], 2}}, own: true,
		},
		{
			name: "barred",
			p:    Problem{Targets: points([]uint32{1, 1, 0}), Rivals: points([]uint32{0, 0, 0}), Barred: is(0)},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "same knowledge cannot be told apart",
			p:    Problem{Targets: points([]uint32{1, 1, 1}), Rivals: points([]uint32{1, 1, 1})},
			err:  ErrInexpressible, text: "run 1",
		},
		{
			name: "obligatory, and it suffices",
			p: Problem{
				Targets: points([]uint32{1, 1, 0}), Rivals: points([]uint32{0, 0, 0}),
				Obligatory: []Atom{{ps[1], 1}},
			},
			want: []Atom{{ps[1], 1}},
		},
		{
			name: "obligatory and unknown",
			p:    Problem{Targets: points([]uint32{1, 1, 0}), Obligatory: []Atom{{ps[2], 1}}},
			err:  ErrObligatory, text: "at least 1; known in every run: 0",
		},
		{
			name: "obligatory and not known often enough",
			p:    Problem{Targets: points([]uint32{3, 0, 0}, []uint32{1, 0, 0}), Obligatory: []Atom{{ps[0], 2}}},
			err:  ErrObligatory, text: "at least 2; known in every run: 1",
		},
		{
			name: "obligatory and counted nowhere",
			p:    Problem{Targets: points([]uint32{1, 1, 1}), Obligatory: []Atom{{predicates(4)[3], 1}}},
			err:  ErrObligatory, text: "known in every run: 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Predicates = ps
			got, err := Solve(&tt.p)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tt.text) {
					t.Errorf("error %q does not say %q", err, tt.text)
				}
				return
			}
			if d := cmp.Diff(tt.want, got.Atoms); d != "" {
				t.Error(d)
			}
			if got.UsedOwn != tt.own || !got.Smallest {
				t.Errorf("UsedOwn %v, Smallest %v", got.UsedOwn, got.Smallest)
			}
			if e := got.Explain(&tt.p); !strings.Contains(e, "known at the target") || strings.Contains(e, "bound") {
				t.Errorf("explanation %q", e)
			}
		})
	}
}

// bruteForce tries every subset of A, straight from the definitions.
func bruteForce(p *Problem) (size int, best cost, ok bool) {
	type atom struct {
		i int
		n uint32
	}
	var a []atom
	for i := range p.Predicates {
		floor := p.Targets[0].Known[i]
		for _, t := range p.Targets {
			floor = min(floor, t.Known[i])
		}
		for n := uint32(1); n <= floor; n++ {
			a = append(a, atom{i, n})
		}
	}
	for mask := range 1 << len(a) {
		n, c, all := 0, cost{}, true
		for j := range a {
			if mask&(1<<j) != 0 {
				n++
				c = c.plus(cost{1, p.Hops(p.Predicates[a[j].i]), int(a[j].n)})
			}
		}
		for _, q := range p.Rivals {
			hit := false
			for j := range a {
				hit = hit || mask&(1<<j) != 0 && q.Known[a[j].i] < a[j].n
			}
			all = all && hit
		}
		if all && (!ok || n < size || (n == size && c.compare(best) < 0)) {
			size, best, ok = n, c, true
		}
	}
	return size, best, ok
}

func TestSolveAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "predicates")
		ps := predicates(n)
		known := rapid.SliceOfN(rapid.Uint32Range(0, 3), n, n)
		p := &Problem{
			Predicates: ps,
			Targets:    points(rapid.SliceOfN(known, 1, 3).Draw(t, "targets")...),
			Rivals:     points(rapid.SliceOfN(known, 0, 6).Draw(t, "rivals")...),
			Hops:       func(q replay.Predicate) int { return slices.Index(ps, q) % 3 },
		}
		size, best, ok := bruteForce(p)
		got, err := Solve(p)
		if !ok {
			if !errors.Is(err, ErrInexpressible) {
				t.Fatalf("error %v, want ErrInexpressible", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var c cost
		for _, a := range got.Chosen {
			c = c.plus(cost{1, p.Hops(a.Event), int(a.Count)})
		}
		if len(got.Chosen) != size || c != best || !got.Smallest {
			t.Fatalf("%v costs %v with %d atoms (smallest: %v); the best costs %v with %d", got.Chosen, c, len(got.Chosen), got.Smallest, best, size)
		}
		for _, q := range p.Targets {
			if !got.Holds(ps, q.Known) {
				t.Fatalf("false at target %s", q.Name)
			}
		}
		for _, q := range p.Rivals {
			if got.Holds(ps, q.Known) {
				t.Fatalf("true at rival %s", q.Name)
			}
		}
	})
}

func TestOrderOfRunsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.SliceOfN(rapid.Uint32Range(0, 3), 4, 4)
		targets := points(rapid.SliceOfN(known, 1, 4).Draw(t, "targets")...)
		rivals := points(rapid.SliceOfN(known, 1, 5).Draw(t, "rivals")...)
		a, errA := Solve(&Problem{Predicates: predicates(4), Targets: targets, Rivals: rivals})
		b, errB := Solve(&Problem{
			Predicates: predicates(4),
			Targets:    rapid.Permutation(targets).Draw(t, "t"), Rivals: rapid.Permutation(rivals).Draw(t, "r"),
		})
		if (errA == nil) != (errB == nil) {
			t.Fatalf("%v, %v", errA, errB)
		}
		if errA == nil {
			if d := cmp.Diff(a.Atoms, b.Atoms); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func TestSearchGivesUpAtItsBound(t *testing.T) {
	// Vertex cover: each edge of a graph of 100 events is one rival.
	const n = 100
	ps := predicates(n)
	ones := slices.Repeat([]uint32{1}, n)
	p := &Problem{Predicates: ps, Targets: points(ones)}
	for i := range n {
		for j := range i {
			if (i*i+j*31+i*j*7)%19 != 0 {
				continue
			}
			k := slices.Clone(ones)
			k[i], k[j] = 0, 0
			p.Rivals = append(p.Rivals, Point{fmt.Sprint(i, j), k})
		}
	}
	got, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range p.Rivals {
		if got.Holds(ps, q.Known) {
			t.Fatalf("true at %s", q.Name)
		}
	}
	if got.Smallest {
		t.Error("the bound was not reached")
	}
	if !strings.Contains(got.Explain(p), "bound") {
		t.Error("the explanation hides it")
	}
}

func TestProto(t *testing.T) {
	ps := predicates(2)
	if g := (&Result{}).Proto(); g != nil {
		t.Errorf("no atoms: %v, want nil, always true", g)
	}
	one := (&Result{Atoms: []Atom{{ps[0], 2}}}).Proto()
	if one.GetAfter().GetAtom().GetCount() != 2 {
		t.Errorf("one atom: %v", one)
	}
	two := (&Result{Atoms: []Atom{{ps[0], 2}, {ps[1], 1}}}).Proto()
	if len(two.GetAfter().GetAllOf().GetGuards()) != 2 {
		t.Errorf("two atoms: %v", two)
	}
}
