package wasm

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimers compares the heap with a sorted list.
func TestTimers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers
		var all []*timer
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				timer := &timer{due: time.Duration(rapid.IntRange(0, 50).Draw(t, "due"))}
				h.add(timer)
				all = append(all, timer)
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				h.remove(all[i])
				h.remove(all[i]) // again: nothing
				all = slices.Delete(all, i, i+1)
			},
			"next": func(t *rapid.T) {
				now := time.Duration(rapid.IntRange(0, 50).Draw(t, "now"))
				got := h.next(now)
				slices.SortStableFunc(all, func(a, b *timer) int { return int(a.due - b.due) })
				if len(all) == 0 || all[0].due > now {
					if got != nil {
						t.Fatalf("%v is not due at %v", got.due, now)
					}
					return
				}
				if got == nil || got.due != all[0].due || got.at != 0 {
					t.Fatalf("got %+v, want one due at %v", got, all[0].due)
				}
				all = slices.DeleteFunc(all, func(x *timer) bool { return x == got })
			},
			"": func(t *rapid.T) {
				if len(h) != len(all) {
					t.Fatalf("%d timers, want %d", len(h), len(all))
				}
				for i, x := range h {
					if x.at != i+1 {
						t.Fatalf("timer at %d says %d", i, x.at-1)
					}
				}
			},
		})
	})
}
