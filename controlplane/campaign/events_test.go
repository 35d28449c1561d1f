package campaign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// TestStepsOfSharedTraces: a call whose trace id no step has for itself, as B3's of 64 bits,
// belongs to the step whose request set it off.
func TestStepsOfSharedTraces(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	steps := stepTimes{of: map[string]int{"first": 0, "third": 2}, starts: []time.Time{at(0), at(10), at(20), at(30)}}
	type seen struct {
		entry bool
		trace string
		at    int
		want  int
	}
	for name, calls := range map[string][]seen{
		"the entries' traces are their own": {
			{true, "first", 1, 0}, {false, "shared", 1, 0}, {true, "third", 21, 2}, {false, "shared", 21, 2}, {false, "first", 22, 0},
		},
		"a clock that is wrong": {
			{true, "first", 500, 0}, {false, "shared", 500, 0}, {true, "third", -500, 2}, {false, "shared", -500, 2}, {true, "shared", -400, 2},
		},
		"all traces are shared": {
			{true, "shared", 1, 0}, {false, "shared", 9, 0}, {true, "shared", 10, 1}, {false, "shared", 25, 1}, {true, "shared", 99, 3},
		},
	} {
		trial := &trace.Trial{}
		var got, want []int
		for i, c := range calls {
			one := trace.Call{ClientReq: i, ServerReq: trace.None, Spans: []string{c.trace + "/1"}}
			role := tfiv1.Role_ROLE_CLIENT
			if c.entry {
				one.ClientReq, one.ServerReq, role = trace.None, i, tfiv1.Role_ROLE_SERVER
			}
			trial.Calls = append(trial.Calls, one)
			trial.Events = append(trial.Events, trace.Event{Op: trace.Op{Role: role}, Call: i, Request: i, Time: at(c.at)})
			want = append(want, c.want)
		}
		got = steps.stepsOf(trial)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
