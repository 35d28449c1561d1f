package wasm

import (
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// readCounter counts what is read of cells.
type readCounter struct {
	*memoryCells
	reads int
}

func (c *readCounter) Get(name string) ([]byte, uint32, error) {
	c.reads++
	return c.memoryCells.Get(name)
}

// TestOneWorkerNeedNotRead shows that a worker that is alone reads a cell once.
func TestOneWorkerNeedNotRead(t *testing.T) {
	shared := &readCounter{memoryCells: newMemoryCells()}
	table := newTable(shared, 64, 8, func() time.Duration { return 0 })
	e := engineOn(policyOf(t, tfi.Key{1}, tfi.Key{2}), table)
	for i := range 100 {
		for _, k := range []tfi.Key{{1}, {2}} {
			if seq, problem := ask(t, e, k, 1); seq != uint32(i+1) || problem != "" {
				t.Fatalf("number %d, problem %q, want %d", seq, problem, i+1)
			}
		}
	}
	if shared.reads > 12 {
		t.Errorf("read %d times in 200 steps", shared.reads)
	}
}

// TestGuessIsNeverAhead shows what the guess's safety rests on.
func TestGuessIsNeverAhead(t *testing.T) {
	shared := newMemoryCells()
	var g versionGuess
	for i := range 1000 {
		if i%7 == 0 { // another worker
			if err := shared.Swap("other", nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := shared.Swap("own", nil, 0); err != nil {
			t.Fatal(err)
		}
		if guess, given := g.wrote(), shared.version["own"]; guess > given {
			t.Fatalf("guess %d, but the host gave %d", guess, given)
		}
		if i%50 == 0 {
			_, v, _ := shared.Get("own")
			g.saw(v)
			if shared.Swap("own", nil, v) != nil {
				t.Fatal("alone, and swapped")
			}
			if guess, given := g.wrote(), shared.version["own"]; guess != given {
				t.Fatalf("guess %d right after a reading, the host gave %d", guess, given)
			}
		}
	}
}
