package campaign

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
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

// TestDelayLongerThanTheCallerWaits: the callee never sees such a request. The run says
// something all the same, and nobody waits for a report of it.
func TestDelayLongerThanTheCallerWaits(t *testing.T) {
	const delay = 5 * time.Second
	m := relayMesh(t)
	m.patience = 20 * time.Millisecond
	s := spec(fetch("GET", m.url("front")))
	s.Faults = &campaignv1.FaultModel{
		Faults: []*campaignv1.NamedFault{{Name: "delay", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{
			Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(delay)},
		}}}}},
		Callees: []string{"back"}, Phases: []tfiv1.Phase{tfiv1.Phase_PHASE_REQ},
	}
	trials := candidates(runCampaign(t, m.config(s)))
	if len(trials) == 0 {
		t.Fatal("nothing was tried")
	}
	for _, trial := range trials {
		took := trial.GetDuration().AsDuration()
		if trial.GetVerdict() != campaignv1.Verdict_VERDICT_EFFECTIVE || len(trial.GetFired()) != 1 || trial.GetRepeats() != 0 || took > delay {
			t.Errorf("%s: %v (%s), fired %q, repeated %d times, judged after %v",
				ids(trial), trial.GetVerdict(), trial.GetReason(), trial.GetFired(), trial.GetRepeats(), took)
		}
	}
}
