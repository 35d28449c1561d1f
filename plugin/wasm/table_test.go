package wasm

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// memoryCells are cells as Envoy's shared data behaves: versions come from one
// counter, and 0 matches everything.
type memoryCells struct {
	mu      sync.Mutex
	last    uint32
	values  map[string][]byte
	version map[string]uint32
	misses  int
}

var _ cells = (*memoryCells)(nil)

func newMemoryCells() *memoryCells {
	return &memoryCells{values: map[string][]byte{}, version: map[string]uint32{}}
}

func (m *memoryCells) Get(name string) ([]byte, uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[name]
	if !ok {
		return nil, absentCell, nil
	}
	return append([]byte(nil), v...), m.version[name], nil
}

func (m *memoryCells) Swap(name string, value []byte, version uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.version[name]; ok && version != 0 && v != version {
		m.misses++
		return errSwapped
	}
	m.last++
	m.values[name], m.version[name] = append([]byte(nil), value...), m.last
	return nil
}

func policyOf(t *testing.T, keys ...tfi.Key) *tfi.Policy {
	t.Helper()
	var activations []*tfiv1.Activation
	for _, k := range keys {
		activations = append(activations, behaviour.Activation(k, 0))
	}
	b, err := proto.Marshal(behaviour.Policy("1", activations...))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tfi.ParsePolicy(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask sends a request of a trial through an engine; it returns its number.
func ask(t *testing.T, e *tfi.Engine, key tfi.Key, now time.Duration) (seq uint32, problem string) {
	t.Helper()
	var c tfi.Call
	e.Request(&c, &tfi.Request{
		Role: tfi.RoleClient, Cluster: behaviour.PeerHTTP1, Method: "GET", Path: "/items", Now: now,
		Headers: mapOf([2]string{"traceparent", "00-" + tfi.NewTraceID(key, 1).String() + "-00f067aa0ba902b7-01"}),
	})
	r := c.Record()
	if r == nil {
		return 0, ""
	}
	return r.Req.Seq, r.Problem
}

func engineOn(p *tfi.Policy, table *table) *tfi.Engine {
	var n uint64
	return tfi.NewEngine(p, table, tfi.Options{Rand: func() uint64 { n++; return n * 0x9e3779b97f4a7c15 }})
}

// TestTableIsSharedExactly lets workers, each with a table of its own over the
// same cells, count events of trials that meet in few cells.
func TestTableIsSharedExactly(t *testing.T) {
	const workers, rounds = 8, 200
	shared := newMemoryCells()
	keys := []tfi.Key{{1}, {2}, {3}, {4}, {5}}
	p := policyOf(t, keys...)
	seen := make([][]uint32, len(keys))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			e := engineOn(p, newTable(shared, 2, 8, func() time.Duration { return 0 }))
			for i := range rounds {
				k := i % len(keys)
				seq, problem := ask(t, e, keys[k], 1)
				mu.Lock()
				seen[k] = append(seen[k], seq)
				mu.Unlock()
				if problem != "" {
					t.Errorf("problem %s", problem)
				}
			}
		})
	}
	wg.Wait()
	for k, seqs := range seen {
		once := map[uint32]bool{}
		for _, s := range seqs {
			once[s] = true
		}
		if want := workers * rounds / len(keys); len(once) != want || !once[1] || !once[uint32(want)] {
			t.Errorf("trial %d: %d distinct numbers, want 1 to %d", k, len(once), want)
		}
	}
	if shared.misses == 0 {
		t.Log("workers never met")
	}
}

func TestTableFullAndReclaimed(t *testing.T) {
	a, b := tfi.Key{1}, tfi.Key{2}
	p := policyOf(t, a, b)
	table := newTable(newMemoryCells(), 1, 1, func() time.Duration { return 0 })
	e := engineOn(p, table)
	if seq, _ := ask(t, e, a, 1); seq != 1 {
		t.Fatalf("first trial: number %d", seq)
	}
	if _, problem := ask(t, e, b, 2); problem != tfi.ProblemTableFull {
		t.Fatalf("second trial: problem %q, want a full table", problem)
	}
	if err := table.Update(tfi.StateID{Key: b}, nothing{}); !errors.Is(err, tfi.ErrTableFull) {
		t.Fatalf("error %v, want ErrTableFull", err)
	}
	if seq, _ := ask(t, e, a, 3); seq != 2 {
		t.Errorf("first trial afterwards: number %d", seq)
	}
	// The first trial's activation ends after a minute; one made later lives on.
	later := tfi.NewEngine(p, table, tfi.Options{Rand: func() uint64 { return 9 }, Now: 2 * time.Minute})
	if seq, problem := ask(t, later, b, 2*time.Minute+1); seq != 1 || problem != "" {
		t.Errorf("the expired state is not reclaimed: number %d, problem %q", seq, problem)
	}
}

type nothing struct{}

func (nothing) Apply(*tfi.State) {}

func TestTakeHandsOutEachStateOnce(t *testing.T) {
	shared := newMemoryCells()
	var keys []tfi.Key
	for i := range 20 {
		keys = append(keys, tfi.Key{byte(i + 1)})
	}
	p := policyOf(t, keys...)
	tables := []*table{newTable(shared, 4, 16, func() time.Duration { return 2 }), newTable(shared, 4, 16, func() time.Duration { return 2 })}
	for i, k := range keys {
		for range i%3 + 1 {
			for _, tb := range tables {
				ask(t, engineOn(p, tb), k, 1)
			}
		}
	}
	over := func(k tfi.Key) bool { return k[0]%2 == 0 }
	got := map[tfi.Key]uint32{}
	for _, tb := range tables {
		if err := tb.take(over, func(s *tfi.State) {
			if _, twice := got[s.ID().Key]; twice {
				t.Errorf("%v twice", s.ID().Key)
			}
			got[s.ID().Key] = s.Events()
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range keys {
		want := uint32(0)
		if over(k) {
			want = 2 * uint32(i%3+1)
		}
		if got[k] != want {
			t.Errorf("%v: %d events, want %d", k, got[k], want)
		}
		seq, _ := ask(t, engineOn(p, tables[0]), k, 3)
		if goesOn := 2*uint32(i%3+1) + 1; !over(k) && seq != goesOn || over(k) && seq != 1 {
			t.Errorf("%v goes on with number %d", k, seq)
		}
	}
}

func TestDamagedCellStartsAnew(t *testing.T) {
	for _, damage := range [][]byte{{1}, {9, 0, 0, 0, 1}, {255, 255, 255, 255, 1, 2}, make([]byte, 60)} {
		shared := newMemoryCells()
		table := newTable(shared, 1, 2, func() time.Duration { return 0 })
		if err := shared.Swap(table.name(0), damage, 0); err != nil {
			t.Fatal(err)
		}
		if seq, problem := ask(t, engineOn(policyOf(t, tfi.Key{1}), table), tfi.Key{1}, 1); seq != 1 || problem != "" {
			t.Errorf("% x: number %d, problem %q", damage, seq, problem)
		}
	}
}

// alwaysSwapped are cells of a host whose compare-and-swap is broken.
type alwaysSwapped struct{ *memoryCells }

func (alwaysSwapped) Swap(string, []byte, uint32) error { return errSwapped }

func TestContendedForEver(t *testing.T) {
	table := newTable(alwaysSwapped{newMemoryCells()}, 1, 1, func() time.Duration { return 0 })
	if err := table.Update(tfi.StateID{Key: tfi.Key{1}}, nothing{}); !errors.Is(err, errContended) {
		t.Errorf("error %v", err)
	}
}

func TestFenceRecord(t *testing.T) {
	shared := newMemoryCells()
	a, b := tfi.Key{1}, tfi.Key{2}
	admit := func(now time.Duration, keys ...tfi.Key) *tfi.Fence {
		t.Helper()
		f, err := (&fenceRecord{cells: shared}).admit(policyOf(t, keys...), now)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	check := func(f *tfi.Fence, k tfi.Key, want time.Duration) {
		t.Helper()
		if d, ok := f.Deadline(k); !ok || d != want {
			t.Errorf("deadline %v %v, want %v", d, ok, want)
		}
	}
	check(admit(time.Second, a), a, time.Minute+time.Second)
	// Read again, by another VM, after a push or a reload: nothing is prolonged.
	f := admit(10*time.Second, a, b)
	check(f, a, time.Minute+time.Second)
	check(f, b, time.Minute+10*time.Second)
	if f := admit(20*time.Second, b); f.Len() != 1 {
		t.Errorf("%d activations, want 1", f.Len())
	}
	if _, err := (&fenceRecord{cells: alwaysSwapped{newMemoryCells()}}).admit(policyOf(t, a), 0); !errors.Is(err, errContended) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkTableUpdate(b *testing.B) {
	table := newTable(newMemoryCells(), DefaultBuckets, DefaultSlots, func() time.Duration { return 0 })
	id := tfi.StateID{Key: tfi.Key{1}}
	b.ReportAllocs()
	for b.Loop() {
		if err := table.Update(id, nothing{}); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleStatsTags() {
	for _, tag := range StatsTags() {
		fmt.Println(tag.Name)
	}
	// Output: fault
}
