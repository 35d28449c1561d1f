package tfi

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func lifetimes(of map[Key]time.Duration) *Policy {
	p := &Policy{}
	for k, d := range of {
		p.Activations = append(p.Activations, &Activation{Key: k, Remaining: d})
	}
	return p
}

func TestFenceNeverProlongs(t *testing.T) {
	var f Fence
	if !f.Admit(lifetimes(map[Key]time.Duration{keyA: 10, keyB: 20}), 100) {
		t.Error("the first reading changed nothing")
	}
	// The plane sends the same again, with what it thinks remains.
	if f.Admit(lifetimes(map[Key]time.Duration{keyA: 10, keyB: 18}), 105) {
		t.Error("a second reading changed something")
	}
	for k, want := range map[Key]time.Duration{keyA: 110, keyB: 120} {
		if got, ok := f.Deadline(k); !ok || got != want {
			t.Errorf("%v ends at %v %v, want %v", k, got, ok, want)
		}
	}
	// A shorter lifetime counts, and what the policy has no more is forgotten.
	f.Admit(lifetimes(map[Key]time.Duration{keyB: 5}), 106)
	if got, _ := f.Deadline(keyB); got != 111 {
		t.Errorf("ends at %v, want 111", got)
	}
	if _, ok := f.Deadline(keyA); ok || f.Len() != 1 {
		t.Error("remembers an activation that is gone")
	}
}

func TestFenceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := map[Key]time.Duration{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			of[Key{byte(rapid.IntRange(0, 255).Draw(t, "key"))}] = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "remaining"))
		}
		var f, g Fence
		f.Admit(lifetimes(of), 7)
		b, _ := f.AppendBinary(nil)
		if err := g.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if g.Len() != len(of) {
			t.Fatalf("%d of %d", g.Len(), len(of))
		}
		for k, d := range of {
			if got, ok := g.Deadline(k); !ok || got != d+7 {
				t.Fatalf("%v: %v", k, got)
			}
		}
		if len(b) > 1 {
			if err := g.UnmarshalBinary(b[:len(b)-1]); !errors.Is(err, ErrFence) || g.Len() != 0 {
				t.Fatalf("cut: %v", err)
			}
		}
	})
}

// FuzzFence: whatever is accepted is the one encoding of a fence.
func FuzzFence(f *testing.F) {
	var fence Fence
	fence.Admit(lifetimes(map[Key]time.Duration{keyA: 10, keyB: 20}), 100)
	b, _ := fence.AppendBinary(nil)
	f.Add(b)
	f.Add(append(b, b[1:]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var fence Fence
		if fence.UnmarshalBinary(b) != nil {
			return
		}
		if back, _ := fence.AppendBinary(nil); string(back) != string(b) {
			t.Fatalf("%x came back as %x", b, back)
		}
	})
}
