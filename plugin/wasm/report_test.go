package wasm

import (
	"testing"
	"time"
)

// TestReportsLeave holds when a batch is sent: few reports soon, many together.
func TestReportsLeave(t *testing.T) {
	for _, c := range []struct {
		name         string
		spans, bytes int
		after        time.Duration
		want         bool
	}{
		{"none", 0, 0, time.Hour, false},
		{"first", 1, 300, 0, false},
		{"few, early", reportFew, 300, reportAfter - 1, false},
		{"few", reportFew, 300, reportAfter, true},
		{"many, early", reportFew + 1, 300, reportLate - 1, false},
		{"many", reportFew + 1, 300, reportLate, true},
		{"large", reportFew + 1, reportBytes, 0, true},
	} {
		const since = 7 * time.Second
		r := reporter{spans: c.spans, batch: make([]byte, c.bytes), since: since}
		if got := r.due(since + c.after); got != c.want {
			t.Errorf("%s: due %t, want %t", c.name, got, c.want)
		}
	}
}
