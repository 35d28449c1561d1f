package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func TestTooLargeIsRefused(t *testing.T) {
	r := tracetest.New("large")
	root := r.Send("", "a", "GET /").Receive()
	for i := range 1800 {
		r.Send("a", fmt.Sprintf("b#%d", i), fmt.Sprintf("GET /%d/x", i)).Receive().Answer(200).Get()
	}
	root.Answer(200)
	s, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{r.Recorded()}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
}

// TestTracesAreAddedAllOrNone: a run that cannot be read leaves nothing behind.
func TestTracesAreAddedAllOrNone(t *testing.T) {
	s := begin(t, nil, dispatches(1)...)
	before, err := s.Statistics(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AddTraces(context.Background(), []*solverv1.RecordedTrial{
		tracetest.Dispatch(2, nil).Recorded(), {TracesData: []byte("\xff")},
	})
	after, _ := s.Statistics(context.Background())
	if !errors.Is(err, trace.ErrFormat) || after.GetTraces() != before.GetTraces() || after.GetEvents() != before.GetEvents() {
		t.Errorf("%v; %d traces and %d events, want %d and %d", err, after.GetTraces(), after.GetEvents(), before.GetTraces(), before.GetEvents())
	}
}

// TestSessionIsBounded: clean runs beyond a session's room are refused, and those
// of trials are not kept.
func TestSessionIsBounded(t *testing.T) {
	run := func(name string) *tracetest.Run {
		return inFront(name, func(r *tracetest.Run) { r.Send("a", "b", "GET /b").Done() })
	}
	s := begin(t, abortAnswers("b"), run("1"))
	used := maxSessionCells - s.room
	if used <= 0 {
		t.Fatalf("a run takes %d", used)
	}
	s.room = 2*used - 1
	if _, err := s.AddTraces(context.Background(), []*solverv1.RecordedTrial{run("2").Recorded(), run("3").Recorded()}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	if s.room != 2*used-1 || len(s.clean) != 1 {
		t.Errorf("room %d and %d runs after a refusal", s.room, len(s.clean))
	}
	for i, kept := range []int{1, 1} {
		id := next(t, s)[0].GetId()
		tell(t, s, result(id, missed, "", run(fmt.Sprint("missed ", i))))
		if len(s.idle) != kept {
			t.Errorf("%d runs are kept, want %d", len(s.idle), kept)
		}
	}
}

// TestDroppedRunsGiveTheirRoomBack: what a session does not keep takes none of its room.
func TestDroppedRunsGiveTheirRoomBack(t *testing.T) {
	read := func(name string) *trace.Trial {
		list, err := trace.Trials(tracetest.Dispatch(1, nil).Traces())
		if err != nil {
			t.Fatal(err)
		}
		list[0].ID = name
		return list[0]
	}
	s, err := New(&solverv1.StartSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	odd := read("odd")
	for i := range odd.Events {
		odd.Events[i].Instance = "00000000000a" // two sidecars that go by one tag
	}
	warnings, err := s.AddTrials([]*trace.Trial{read("sound"), odd})
	if err != nil || len(s.clean) != 1 || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "left out") }) {
		t.Fatalf("%d runs are kept: %v, %v", len(s.clean), err, warnings)
	}
	if used := maxSessionCells - s.room; used != cells(s.clean[0].trial) {
		t.Errorf("%d counts are taken, the run that is kept needs %d", used, cells(s.clean[0].trial))
	}
}
