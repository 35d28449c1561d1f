//go:build !wasm

package wasm_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// What the host does to policies and streams in an unusual order.

func fault(id, api string, phase tfiv1.Phase, f *tfiv1.Fault) *tfiv1.Tfic {
	return &tfiv1.Tfic{
		Id: id, Fault: f, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: api, Phase: phase},
	}
}

func delay(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(d)}}}}
}

func drop(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(d)}}}
}

var failure = &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 500}}}

// until lets the filter's clock run until something holds.
func (h *countingHost) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 5 s; done %q", what, h.acts)
		}
		if h.periods[1] == 0 {
			t.Fatalf("%s: the clock stands; done %q", what, h.acts)
		}
		h.enter(t, "proxy_on_tick", 1)
	}
}

func (h *countingHost) has(act string) func() bool {
	return func() bool { return slices.Contains(h.acts, act) }
}

// quiet lets the filter do what it has still to do.
func (h *countingHost) quiet(t *testing.T) {
	t.Helper()
	h.until(t, "quiet", func() bool {
		h.answerReports(t, "200")
		if h.periods[1] != 0 {
			h.enter(t, "proxy_on_tick", 1)
		}
		return h.periods[1] == 0
	})
}

// TestRetiredPolicyTakesItsClockAlong: Envoy keeps the timer of a root context that is
// gone, and rings it for ever.
func TestRetiredPolicyTakesItsClockAlong(t *testing.T) {
	h, trace := startedHost(t, "")
	h.request(t, 10, trace)
	if h.periods[1] == 0 {
		t.Fatal("no clock runs, although there is something to report")
	}
	h.push(t, 2, marshal(t, behaviour.Policy("2")))
	h.enter(t, "proxy_on_done", 1)
	if h.periods[1] != 0 {
		t.Error("the clock of a policy that is gone runs on")
	}
	if h.periods[2] == 0 {
		t.Error("the clock does not run for what the old policy has left")
	}
}

// TestLastReportsLeave: whichever policy goes last takes the reports along.
func TestLastReportsLeave(t *testing.T) {
	h, trace := startedHost(t, "")
	h.begin(t, 10, 1, "/items", trace)
	h.push(t, 2, marshal(t, behaviour.Policy("2")))
	h.enter(t, "proxy_on_done", 2)
	h.enter(t, "proxy_on_response_headers", 10, 2, 1)
	h.enter(t, "proxy_on_done", 10)
	h.enter(t, "proxy_on_done", 1)
	if h.sent == 0 {
		t.Error("the report of the last stream was not sent")
	}
}

// TestCancelledReportsHoldNobodyUp: Envoy cancels the calls of a root that goes, and no
// answer comes to any of them.
func TestCancelledReportsHoldNobodyUp(t *testing.T) {
	h, trace := startedHost(t, "")
	policy := h.policy
	for root := uint64(1); root <= 20; root++ {
		if root > 1 {
			h.push(t, root, policy)
			h.enter(t, "proxy_on_done", root-1)
			delete(h.reports, uint32(root-1))
		}
		h.begin(t, 100+root, root, "/items", trace)
		h.enter(t, "proxy_on_done", 100+root)
		for end := time.Now().Add(time.Second); len(h.reports[uint32(root)]) == 0; h.enter(t, "proxy_on_tick", root) {
			if time.Now().After(end) {
				t.Fatalf("no report after %d whose calls were cancelled", root-1)
			}
		}
	}
	h.push(t, 21, policy)
	h.enter(t, "proxy_on_done", 20)
	if n := h.counted("export_errors"); n != 20 {
		t.Errorf("%d calls are counted as without answer, want 20", n)
	}
}

// TestAnswerWhileRequestWaits: the host itself may answer a call whose request is still
// delayed, and that answer may be faulted, too.
func TestAnswerWhileRequestWaits(t *testing.T) {
	h, trace := startedHost(t, "",
		fault("req", "GET /items", tfiv1.Phase_PHASE_REQ, delay(time.Minute)),
		fault("resp", "GET /items", tfiv1.Phase_PHASE_RESP, delay(20*time.Millisecond)))
	if a := h.begin(t, 10, 1, "/items", trace); a != 4 {
		t.Fatalf("request: action %d, want it stopped", a)
	}
	if a := h.enter(t, "proxy_on_response_headers", 10, 2, 1); a != 4 {
		t.Fatalf("answer: action %d, want it stopped", a)
	}
	h.until(t, "the answer goes on", h.has("continue answer 10"))
	h.enter(t, "proxy_on_done", 10)
	h.quiet(t)
	if n := h.counted("paused_streams"); n != 0 {
		t.Errorf("%d streams are paused, want none", n)
	}
	if d := cmp.Diff([]string{"continue answer 10"}, h.acts); d != "" {
		t.Error("done to the stream:", d)
	}
}

// TestLateAnswersAreCounted: an answer to a report may come when no clock runs.
func TestLateAnswersAreCounted(t *testing.T) {
	for status, want := range map[string]int64{"200": 0, "503": 1, "": 1} {
		h, trace := startedHost(t, "")
		h.request(t, 10, trace)
		h.until(t, "reported", func() bool { return len(h.reports) > 0 })
		h.until(t, "the clock stands", func() bool { h.enter(t, "proxy_on_tick", 1); return h.periods[1] == 0 })
		h.answerReports(t, status)
		if n := h.counted("export_errors"); n != want {
			t.Errorf("status %q: %d errors are counted, want %d", status, n, want)
		}
	}
}

// TestPanicsLeaveNothingBehind: what a callback that fails had stopped goes on, once;
// where something of it has been thrown away nothing but a reset is left.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	const stop = 1
	large := uint64(60 << 10) // more than is kept
	for _, c := range []struct {
		name, path string
		phase      tfiv1.Phase
		fault      *tfiv1.Fault
		settings   string
		body       []uint64 // pieces of the answer
		action     uint64   // of the callback that fails
		act        string
	}{
		{"request that was just delayed", "/crash/paused", tfiv1.Phase_PHASE_REQ, delay(time.Minute), "", nil, 0, ""},
		{"request that was just dropped", "/crash/paused", tfiv1.Phase_PHASE_REQ, drop(time.Minute), "", nil, 0, ""},
		{"delayed request", "/crash/timer", tfiv1.Phase_PHASE_REQ, delay(time.Millisecond), "", nil, 4, "continue request 10"},
		{"dropped request", "/crash/timer", tfiv1.Phase_PHASE_REQ, drop(time.Millisecond), "", nil, 4, "continue request 10"},
		{"answer that was just held", "/crash/paused", tfiv1.Phase_PHASE_RESP, failure, "", nil, 0, ""},
		{"held answer", "/crash/timer", tfiv1.Phase_PHASE_RESP, failure, "hold=1ms", []uint64{1}, 2, "continue answer 10"},
		{"held answer that was thrown away", "/crash/timer", tfiv1.Phase_PHASE_RESP, failure, "hold=1ms", []uint64{large}, 3, "reset 10"},
		{"held answer being thrown away", "/crash/discarding", tfiv1.Phase_PHASE_RESP, failure, "", []uint64{large, 1}, stop, "reset 10"},
		{"dropped answer", "/crash/swallowed", tfiv1.Phase_PHASE_RESP, drop(time.Minute), "", []uint64{1}, stop, "reset 10"},
		{"delayed answer", "/crash/timer", tfiv1.Phase_PHASE_RESP, delay(time.Millisecond), "", nil, 4, "continue answer 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, trace := startedHostOf(t, "crashtest", c.settings, fault("f", "GET "+c.path, c.phase, c.fault))
			a := h.begin(t, 10, 1, c.path, trace)
			if c.phase == tfiv1.Phase_PHASE_RESP {
				if a != 0 {
					t.Fatalf("request: action %d", a)
				}
				a = h.enter(t, "proxy_on_response_headers", 10, 2, 0)
			}
			for _, n := range c.body {
				a = h.enter(t, "proxy_on_response_body", 10, n, 0)
			}
			if a != c.action {
				t.Errorf("action %d, want %d", a, c.action)
			}
			if c.act != "" {
				h.until(t, c.act, h.has(c.act))
			}
			h.enter(t, "proxy_on_done", 10)
			h.quiet(t)
			want := []string{c.act}
			if c.act == "" {
				want = nil
			}
			if d := cmp.Diff(want, h.acts); d != "" {
				t.Error("done to the stream:", d)
			}
			if n := h.counted("internal_errors"); n != 1 {
				t.Errorf("%d internal errors are counted, want 1", n)
			}
			if n := h.counted("paused_streams"); n != 0 {
				t.Errorf("%d streams are paused, want none", n)
			}
		})
	}
}

// TestFaultThatIsNotMade: a stream that ends before its answer does is not faulted.
func TestFaultThatIsNotMade(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   tfiv1.AnswerKind
		pieces []uint64
	}{
		{"held", tfiv1.AnswerKind_ANSWER_KIND_UNARY, []uint64{1}},
		{"thrown away", tfiv1.AnswerKind_ANSWER_KIND_UNARY, []uint64{60 << 10}},
		{"to be reset", tfiv1.AnswerKind_ANSWER_KIND_STREAMING, []uint64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fault("f", "GET /items", tfiv1.Phase_PHASE_RESP, failure)
			f.AnswerKind = c.kind
			h, trace := startedHost(t, "", f)
			h.headers[uint32(host.ResponseHeaders)] = host.AppendPairs(nil, [][2]string{{":status", "200"}})
			h.begin(t, 10, 1, "/items", trace)
			h.enter(t, "proxy_on_response_headers", 10, 1, 0)
			for _, n := range c.pieces {
				h.enter(t, "proxy_on_response_body", 10, n, 0)
			}
			h.enter(t, "proxy_on_done", 10)
			h.quiet(t)
			if n := h.counted("injections_let_go"); n != 1 || h.acts != nil {
				t.Errorf("%d faults are let go, done %q; want one and nothing", n, h.acts)
			}
		})
	}
}

// TestHostRefusesToAnswer: what was to be replaced goes on if it is whole.
func TestHostRefusesToAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		phase  tfiv1.Phase
		piece  uint64 // of the answer, before its end
		action uint64 // of the callback that was to answer
		acts   []string
	}{
		{"request", tfiv1.Phase_PHASE_REQ, 0, 0, nil},
		{"answer", tfiv1.Phase_PHASE_RESP, 1, 0, nil},
		{"answer that was thrown away", tfiv1.Phase_PHASE_RESP, 60 << 10, 1, []string{"reset 10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, trace := startedHost(t, "", fault("f", "GET /items", c.phase, failure))
			h.mute = true
			a := h.begin(t, 10, 1, "/items", trace)
			if c.piece > 0 {
				h.enter(t, "proxy_on_response_headers", 10, 1, 0)
				h.enter(t, "proxy_on_response_body", 10, c.piece, 0)
				a = h.enter(t, "proxy_on_response_body", 10, 0, 1)
			}
			if d := cmp.Diff(c.acts, h.acts); d != "" || a != c.action {
				t.Errorf("action %d, want %d; done: %s", a, c.action, d)
			}
			h.enter(t, "proxy_on_done", 10)
			h.quiet(t)
			if n := h.counted("injections_let_go"); n != 1 || h.counted("internal_errors") != 1 {
				t.Errorf("%d faults are let go, %d internal errors, want one of each", n, h.counted("internal_errors"))
			}
		})
	}
}

// TestMemoryThatIsFull: an answer of nothing asks for no memory.
func TestMemoryThatIsFull(t *testing.T) {
	h, trace := startedHost(t, "")
	allocate := h.export("proxy_on_memory_allocate")
	for _, size := range []uint64{64 << 10, 0, 1, 1 << 20} {
		if r, err := allocate.Call(h.ctx, size); err != nil || r[0] == 0 {
			t.Errorf("%d bytes: %v, %v", size, r, err)
		}
	}
	// Header maps larger than the memory that is kept for them.
	h.headers[uint32(host.ResponseHeaders)] = host.AppendPairs(nil, [][2]string{{"x-large", string(make([]byte, 100<<10))}, {":status", "200"}})
	for id := range uint64(20) {
		h.request(t, 10+id, trace)
	}
	h.quiet(t)
	if n := h.counted("internal_errors"); n != 0 {
		t.Errorf("%d internal errors", n)
	}
	if n := h.counted("events"); n != 60 {
		t.Errorf("%d events, want 60", n)
	}
}
