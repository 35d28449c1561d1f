package tfi

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// visit is an updater that counts one event of predicate 0.
type visit struct {
	id       StateID
	now, end time.Duration
}

func (v visit) Now() time.Duration { return v.now }

func (v visit) Apply(s *State) {
	s.begin(v.id, 1, 1, TraceID{})
	s.deadline = v.end
	s.next()
	s.known.increment(s.tag, 0)
}

func (v visit) to(m *Memory) error { return m.Update(v.id, v) }

func id(n int) StateID { return StateID{Key: Key{byte(n >> 8), byte(n)}} }

func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory(3)
	for i := range 3 {
		if err := (visit{id: id(i), now: 1, end: time.Duration(100 + i)}).to(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := (visit{id: id(9), now: 2, end: 500}).to(m); !errors.Is(err, ErrTableFull) {
		t.Errorf("a fourth trial: %v", err)
	}
	if err := (visit{id: id(1), now: 3, end: 101}).to(m); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	// Two have expired by now, and the message that finds the table full says so.
	later := visit{id: id(9), now: 101 + sweepEvery, end: time.Hour}
	if err := later.to(m); err != nil {
		t.Errorf("after others had expired: %v", err)
	}
	if m.Len() != 1 {
		t.Errorf("%d states, want 1", m.Len())
	}
	m.Sweep(2 * time.Hour)
	if m.Len() != 0 {
		t.Errorf("%d states after all have expired", m.Len())
	}
}

func TestMemoryReusesCleanStates(t *testing.T) {
	m := NewMemory(1)
	for i := range 5 {
		v := visit{id: id(i), now: time.Duration(i), end: time.Duration(i)}
		if err := v.to(m); err != nil {
			t.Fatal(err)
		}
		m.View(v.id, func(s *State) {
			if s.Events() != 1 || s.Known().Sum(0) != 1 {
				t.Errorf("trial %d begins with %d events", i, s.Events()-1)
			}
		})
		m.Sweep(v.end)
	}
}

// TestMemoryForgetsWhatIsOver has more trials end than a shard keeps states of: one that
// comes again begins anew, and is there for all to see.
func TestMemoryForgetsWhatIsOver(t *testing.T) {
	const trials = 1000
	m := NewMemory(0)
	for round := range 2 {
		for i := range trials {
			if round == 1 {
				i = trials - 1 - i // those that were used last come first
			}
			if err := (visit{id: id(i), end: 1}).to(m); err != nil {
				t.Fatal(err)
			}
		}
		if m.Len() != trials {
			t.Fatalf("%d states, want %d", m.Len(), trials)
		}
		for i := range trials {
			if !m.View(id(i), func(s *State) {
				if s.Events() != 1 {
					t.Errorf("trial %d has %d events, want 1", i, s.Events())
				}
			}) {
				t.Errorf("trial %d has no state", i)
			}
		}
		m.Sweep(1)
	}
}

func TestMemoryEndsTrials(t *testing.T) {
	m := NewMemory(0)
	for i := range 4 {
		for range i + 1 {
			if err := (visit{id: id(i), end: time.Hour}).to(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	final := map[Key]uint32{}
	m.End(func(k Key) bool { return k[1] < 2 }, func(s *State) {
		r := s.End()
		if r.Kind != KindTrialEnd || r.Instance != 1 {
			t.Errorf("record %+v", r)
		}
		final[r.Key] = r.Events
	})
	if len(final) != 2 || final[Key{0, 2}] != 3 || final[Key{0, 3}] != 4 {
		t.Errorf("final counts %v", final)
	}
	if m.Len() != 2 || m.View(id(3), func(*State) {}) {
		t.Error("kept what is over")
	}
	m.End(func(Key) bool { return false }, nil)
	if m.Len() != 0 {
		t.Error("kept what is over")
	}
}

func TestMemoryUnderManyWorkers(t *testing.T) {
	const workers, rounds, trials = 8, 500, 5
	m := NewMemory(trials)
	for i := range trials {
		if err := (visit{id: id(i), end: time.Hour}).to(m); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				if err := (visit{id: id(i % trials), now: time.Duration(i), end: time.Hour}).to(m); err != nil {
					t.Error(err)
				}
				// One too many: it must be refused or find room, and lock nobody out.
				_ = visit{id: id(100 + w), now: time.Duration(i), end: time.Duration(i)}.to(m)
				if i%100 == 0 {
					m.Sweep(time.Duration(i))
				}
			}
		})
	}
	wg.Wait()
	m.Sweep(time.Minute)
	for i := range trials {
		m.View(id(i), func(s *State) {
			if want := uint32(1 + workers*rounds/trials); s.Events() != want {
				t.Errorf("trial %d: %d events, want %d", i, s.Events(), want)
			}
		})
	}
	if m.Len() != trials {
		t.Errorf("%d states, want %d", m.Len(), trials)
	}
}
