package campaign

import (
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/solver/trace"
)

// TestMissing: whatever a trial's reports lack is said.
func TestMissing(t *testing.T) {
	run := &trace.Trial{
		Events:            []trace.Event{{Op: trace.Op{Observer: "pay"}}},
		Gaps:              []trace.Gap{{Service: "shop", First: 3, Last: 4}},
		UnmatchedReceives: []trace.Receive{{Event: 0, Instance: "x", Seq: 2}},
	}
	lacks, _ := (&watching{}).missing(run)
	for _, want := range []string{"shop has not reported its events 3 to 4", "pay received a message whose sender did not report it"} {
		if !strings.Contains(lacks, want) {
			t.Errorf("%q does not say %q", lacks, want)
		}
	}
}

// TestSidecarProblemsMakeInvalid: a sidecar that could not do its part says so.
func TestSidecarProblemsMakeInvalid(t *testing.T) {
	run := &trace.Trial{Problems: []trace.Problem{{Service: "pay", What: "table_full"}}}
	why := (&env{}).whyInvalid(&attempt{recording: &recording{trial: run}}, &activation{})
	if !strings.Contains(why, "pay") || !strings.Contains(why, "table_full") {
		t.Errorf("it is taken for valid: %q", why)
	}
}
