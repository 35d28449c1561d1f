package tfi

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func drawState(t *rapid.T) *State {
	s := new(State)
	id := StateID{Key: Key{1, 2, 3, 4, 5, 6, byte(rapid.IntRange(0, 255).Draw(t, "key"))}}
	if rapid.Bool().Draw(t, "per trace") {
		id.Trace = NewTraceID(id.Key, rapid.Uint64().Draw(t, "trace"))
	}
	s.begin(id, rapid.IntRange(0, 6).Draw(t, "width"), Tag(rapid.IntRange(1, 4).Draw(t, "tag")), TraceID{9})
	s.deadline = time.Duration(rapid.Int64().Draw(t, "deadline"))
	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			s.known.Raise(Tag(rapid.IntRange(1, 6).Draw(t, "tag")), rapid.IntRange(0, 5).Draw(t, "index"), rapid.Uint32().Draw(t, "count"))
		case 1:
			s.ranks.increment(rapid.Uint64Range(0, 5).Draw(t, "hash"), 3)
		case 2:
			s.requests.remember(rapid.Uint64().Draw(t, "hash"), rapid.Uint32().Draw(t, "k"), 3)
		case 3:
			s.next()
		}
	}
	return s
}

var stateEqual = cmp.Options{
	cmp.AllowUnexported(State{}, Counter{}, table{}, entry{}),
	cmpopts.EquateEmpty(),
}

func TestStateRoundTrip(t *testing.T) {
	// One state is decoded over and over: nothing of the one before may remain.
	var got State
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		b, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, &got, stateEqual); d != "" {
			t.Fatal(d)
		}
		id, deadline, ok := PeekState(b)
		if !ok || id != s.ID() || deadline != s.Deadline() {
			t.Fatalf("peeked %v %v %v", id, deadline, ok)
		}
		for n := range len(b) {
			if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, ErrState) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
			if got.Tag() != 0 || got.Known().Width() != 0 {
				t.Fatal("kept what was malformed")
			}
		}
	})
}

func TestPeekStateOfNoState(t *testing.T) {
	for _, b := range [][]byte{nil, {stateVersion}, make([]byte, 64)} {
		if _, _, ok := PeekState(b); ok {
			t.Errorf("%v passes for a state", b)
		}
	}
}

// TestStateOfAnotherVersion is read by two plugins that share one process's data.
func TestStateOfAnotherVersion(t *testing.T) {
	var s, got State
	s.begin(StateID{Key: Key{1, 2, 3}}, 3, 77, TraceID{5})
	b, _ := s.AppendBinary(nil)
	for _, v := range []byte{stateVersion - 1, stateVersion + 1} {
		b[0] = v
		if err := got.UnmarshalBinary(b); !errors.Is(err, ErrState) {
			t.Errorf("version %d: %v", v, err)
		}
		if _, _, ok := PeekState(b); ok {
			t.Errorf("version %d passes for a state of this one", v)
		}
	}
}

// TestWideState has more counts in a row than one byte can number.
func TestWideState(t *testing.T) {
	for _, width := range []int{127, 128, 300} {
		var s, got State
		s.begin(StateID{Key: Key{1}}, width, 77, TraceID{5})
		for i := range width {
			s.known.Raise(77, i, uint32(i)*1000+1)
		}
		b, _ := s.AppendBinary(nil)
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&s, &got, stateEqual); d != "" {
			t.Error(width, d)
		}
	}
}

func TestHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.ByteRange(0, 3), 0, 20)
		a, b := text.Draw(t, "peer"), text.Draw(t, "api")
		c, d := text.Draw(t, "other peer"), text.Draw(t, "other api")
		if same := string(a) == string(c) && string(b) == string(d); same != (opHash(RoleClient, a, b) == opHash(RoleClient, c, d)) {
			t.Fatalf("%q %q and %q %q", a, b, c, d)
		}
		if opHash(RoleClient, a, b) == opHash(RoleServer, a, b) {
			t.Fatal("both roles alike")
		}
	})
	seen := map[uint64]bool{}
	for from := range Tag(20) {
		for seq := range uint32(20) {
			for tfic := range 20 {
				seen[requestHash(from<<40, seq, tfic)] = true
			}
		}
	}
	for i := range 64 {
		seen[tficHash(i)] = true
	}
	if len(seen) != 20*20*20+64 {
		t.Errorf("%d hashes", len(seen))
	}
}

func TestStateStartsAnewWhereItDoesNotFit(t *testing.T) {
	var s State
	a, b := StateID{Key: Key{1}}, StateID{Key: Key{2}}
	s.begin(a, 2, 5, TraceID{1})
	s.next()
	s.known.increment(s.tag, 0)
	s.begin(a, 2, 6, TraceID{2})
	if s.Tag() != 5 || s.Events() != 1 || s.Trace() != (TraceID{1}) {
		t.Errorf("did not go on: %+v", &s)
	}
	s.begin(a, 3, 7, TraceID{2})
	if s.Tag() != 7 || s.Events() != 0 || s.Known().Sum(0) != 0 {
		t.Errorf("another width: %+v", &s)
	}
	s.begin(b, 3, 8, TraceID{2})
	if s.Tag() != 8 || s.ID() != b {
		t.Errorf("another trial: %+v", &s)
	}
}

func TestTable(t *testing.T) {
	var ranks table
	for i, want := range []uint32{1, 1, 0, 2} {
		if got := ranks.increment([]uint64{7, 8, 9, 7}[i], 2); got != want {
			t.Errorf("increment %d: %d, want %d", i, got, want)
		}
	}
	var requests table
	for h := range uint64(5) {
		requests.remember(h, uint32(h)+10, 3)
	}
	for h := range uint64(5) {
		n, ok := requests.find(h)
		if ok != (h >= 2) || ok && n != uint32(h)+10 {
			t.Errorf("request %d: %d %v", h, n, ok)
		}
	}
}

// FuzzState: whatever is accepted is the one encoding of a state.
func FuzzState(f *testing.F) {
	var s State
	s.begin(StateID{Key: Key{1, 2, 3}}, 3, 77, TraceID{5})
	b, _ := s.AppendBinary(nil)
	f.Add(b)
	s.known.Raise(5, 2, 9)
	s.ranks.increment(1, 9)
	s.requests.remember(4, 5, 1)
	s.requests.remember(6, 7, 1)
	b, _ = s.AppendBinary(nil)
	f.Add(b)
	f.Add([]byte{stateVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if s.UnmarshalBinary(b) != nil {
			return
		}
		if back, _ := s.AppendBinary(nil); string(back) != string(b) {
			t.Fatalf("%x came back as %x", b, back)
		}
		PeekState(b)
	})
}
