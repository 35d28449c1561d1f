package campaign

import (
	"testing"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// TestB3BesideJaeger: sidecars look at B3 first, so that its id is the one they report.
func TestB3BesideJaeger(t *testing.T) {
	for _, own := range []string{"", "x-trace"} {
		m := relayMesh(t)
		m.topology.Propagation, m.topology.TraceHeader = []string{topology.FormatJaeger, topology.FormatB3}, own
		m.forward = passing("b3", "uber-trace-id", "x-trace")
		if got := check(t, m); !got.OK() {
			t.Errorf("with header %q: incomplete %q, problems %q", own, got.Incomplete, got.Problems)
		}
	}
}
