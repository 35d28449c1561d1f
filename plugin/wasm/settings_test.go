package wasm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseSettings(t *testing.T) {
	usual := Settings{Buckets: DefaultBuckets, Slots: DefaultSlots, Hold: DefaultHold}
	with := func(change func(*Settings)) Settings {
		s := usual
		change(&s)
		return s
	}
	for _, c := range []struct {
		in   string
		want Settings
		bad  []string
	}{
		{"", usual, nil},
		{"gc=off", with(func(s *Settings) { s.GCPercent = -1 }), nil},
		{" gc=5  table=2x3\nhold=300ms ", Settings{GCPercent: 5, Buckets: 2, Slots: 3, Hold: 300 * time.Millisecond}, nil},
		{"gc=0 hold=5s", usual, []string{"gc=0"}},
		{"gc=-1", usual, []string{"gc=-1"}},
		{"table=0x3 hold=x what gc=7", with(func(s *Settings) { s.GCPercent = 7 }), []string{"table=0x3", "hold=x", "what"}},
		{"table=70000x8", usual, []string{"table=70000x8"}},
	} {
		got, err := ParseSettings([]byte(c.in))
		if got != c.want {
			t.Errorf("%q: %+v, want %+v", c.in, got, c.want)
		}
		if (err != nil) != (len(c.bad) > 0) || err != nil && !errors.Is(err, ErrSettings) {
			t.Errorf("%q: error %v", c.in, err)
		}
		for _, field := range c.bad {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%q: error %v does not name %s", c.in, err, field)
			}
		}
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add([]byte("gc=5 table=1x1 hold=1s"))
	f.Add([]byte("=== \x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, _ := ParseSettings(b); s.Buckets < 1 || s.Slots < 1 || s.Hold <= 0 || s.GCPercent < -1 {
			t.Errorf("%q: %+v", b, s)
		}
	})
}
