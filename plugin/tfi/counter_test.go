package tfi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const testWidth = 5

func drawCounter(t *rapid.T) *Counter {
	c := NewCounter(testWidth)
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		c.Raise(Tag(rapid.IntRange(1, 4).Draw(t, "tag")), rapid.IntRange(0, testWidth-1).Draw(t, "index"), rapid.Uint32Range(1, 5).Draw(t, "count"))
	}
	return c
}

// merged returns the merge of cs in their order.
func merged(cs ...*Counter) *Counter {
	m := NewCounter(testWidth)
	for _, c := range cs {
		m.Merge(c)
	}
	return m
}

func same(t *rapid.T, what string, a, b *Counter) {
	t.Helper()
	if d := cmp.Diff(a.tags, b.tags) + cmp.Diff(a.cells, b.cells); d != "" {
		t.Fatalf("%s: %s", what, d)
	}
}

func TestMergeIsACRDT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawCounter(t), drawCounter(t), drawCounter(t)
		same(t, "idempotent", merged(a), merged(a, a))
		same(t, "commutative", merged(a, b), merged(b, a))
		same(t, "associative", merged(merged(a, b), c), merged(a, merged(b, c)))
		ab := merged(a, b)
		for i := range testWidth {
			if ab.Sum(i) < a.Sum(i) || ab.Sum(i) < b.Sum(i) {
				t.Fatalf("monotone: %d of index %d, of %d and %d", ab.Sum(i), i, a.Sum(i), b.Sum(i))
			}
		}
		same(t, "least", ab, merged(ab, a, b))
	})
}

func TestCountsNeverExceedWhatHappened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Every instance counts its own events and hears of others' in any order, as
		// often as the network likes.
		world := map[int]uint64{}
		instances := []*Counter{NewCounter(testWidth), NewCounter(testWidth), NewCounter(testWidth)}
		var air []*Counter
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			who := rapid.IntRange(0, len(instances)-1).Draw(t, "who")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				i := rapid.IntRange(0, testWidth-1).Draw(t, "index")
				instances[who].increment(Tag(who+1), i)
				world[i]++
			case 1:
				air = append(air, merged(instances[who]))
			case 2:
				if len(air) > 0 {
					instances[who].Merge(rapid.SampledFrom(air).Draw(t, "message"))
				}
			}
			for _, c := range instances {
				for i := range testWidth {
					if c.Sum(i) > world[i] {
						t.Fatalf("%d of index %d, and only %d happened", c.Sum(i), i, world[i])
					}
				}
			}
		}
		all := merged(instances...)
		for i := range testWidth {
			if all.Sum(i) != world[i] {
				t.Fatalf("together %d of index %d, and %d happened", all.Sum(i), i, world[i])
			}
		}
	})
}

func TestCounterAtItsEdges(t *testing.T) {
	c := NewCounter(2)
	c.Raise(1, 0, ^uint32(0))
	c.increment(1, 0)
	c.Raise(2, 0, 3)
	if got, want := c.Sum(0), uint64(^uint32(0))+3; got != want {
		t.Errorf("a full count: %d, want %d", got, want)
	}
	c.Raise(1, 2, 1)
	c.Raise(1, -1, 1)
	c.increment(1, 7)
	if c.Sum(2) != 0 || c.Sum(-1) != 0 || c.Of(1, 7) != 0 || c.Of(9, 0) != 0 {
		t.Error("an index or tag that is not there has a count")
	}
	c.Merge(drawnWidth3())
	if c.Sum(1) != 0 {
		t.Error("took over counts of another width")
	}
	none := NewCounter(0)
	none.row(5)
	none.row(3)
	if got := none.Tags(); len(got) != 2 || got[0] != 3 {
		t.Errorf("tags of a counter without indexes: %v", got)
	}
}

func drawnWidth3() *Counter {
	c := NewCounter(3)
	c.Raise(1, 1, 9)
	return c
}
