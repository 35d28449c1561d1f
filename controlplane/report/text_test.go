package report

import "testing"

func TestJoinLines(t *testing.T) {
	for in, want := range map[string]string{
		"":    "",
		"one": "one",
		"sidecars are not ready:\n  a: none\n  b: none\n": "sidecars are not ready: a: none; b: none",
	} {
		if got := joinLines(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
}
