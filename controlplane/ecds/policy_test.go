package ecds

import (
	"testing"
	"time"
)

func TestVersionsGrowAsStrings(t *testing.T) {
	p := policies{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := ""
	for i := range 1000 {
		v := p.nextVersion(now)
		p.last = p.next(now)
		if v <= last || len(v) != 11 {
			t.Fatalf("version %d is %q after %q", i, v, last)
		}
		last = v
	}
	// Another plane, later, and much later.
	for _, at := range []time.Time{now.Add(time.Second), now.AddDate(100, 0, 0)} {
		if v := (&policies{}).nextVersion(at); v <= last || len(v) != 11 {
			t.Errorf("version %q after %q", v, last)
		}
	}
}

func TestDeadlinesAreForgotten(t *testing.T) {
	p := policies{deadlines: map[string]time.Time{}}
	now := time.Now()
	p.deadlines["old"], p.deadlines["new"] = now.Add(-3*time.Hour), now.Add(-time.Hour)
	p.forget(now)
	if len(p.deadlines) != 1 || p.deadlines["new"].IsZero() {
		t.Errorf("%v", p.deadlines)
	}
}
