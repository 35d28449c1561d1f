package processtest

import (
	"errors"
	"testing"
)

// outcome notes what a test came to.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (*outcome) Helper()        {}
func (o *outcome) Skip(...any)  { o.skipped = true }
func (o *outcome) Fatal(...any) { o.failed = true }

func TestBinary(t *testing.T) {
	for _, tc := range []struct {
		name, ci        string
		err             error
		skipped, failed bool
	}{
		{name: "there", ci: "true"},
		{name: "missing", err: errors.New("build it"), skipped: true},
		{name: "missing in CI", ci: "true", err: errors.New("build it"), failed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			got := &outcome{TB: t}
			path := Binary(got, func() (string, error) { return "/bin/tool", tc.err })
			if got.failed != tc.failed || tc.err == nil && (got.skipped || path != "/bin/tool") || tc.skipped && !got.skipped {
				t.Errorf("skipped %v, failed %v, path %q", got.skipped, got.failed, path)
			}
		})
	}
}
