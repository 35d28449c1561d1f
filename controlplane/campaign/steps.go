package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// request is a step that sent a request, and what it is known by.
type request struct {
	step  int
	trace string
	// parent is its trace and span where other steps have the same trace, as B3's; empty:
	// none have.
	parent string
}

func (r request) String() string {
	if r.parent == "" {
		return "trace " + r.trace
	}
	return "a request of span " + r.parent
}

// is says whether a call is the request, or one that was passed on with its trace context.
func (r request) is(c *trace.Call) bool {
	if r.parent == "" {
		return traceOf(c) == r.trace
	}
	return c.Parent == r.parent
}

// reported says whether a sidecar saw anything of it.
func (r request) reported(t *trace.Trial) bool {
	if r.parent == "" {
		return slices.Contains(t.TraceIDs, r.trace)
	}
	return slices.ContainsFunc(t.Calls, func(c trace.Call) bool { return r.is(&c) })
}

// unseen says of a request that no sidecar reported what can be done.
func (a *attempt) unseen(r request) string {
	stranger := func(c trace.Call) bool {
		_, known := a.marks.known(&c)
		return !known && c.ClientReq == trace.None && traceOf(&c) == r.trace
	}
	if r.parent != "" && slices.ContainsFunc(a.recording.trial.Calls, stranger) {
		return "no sidecar saw its request with the span that it was sent with, and by B3's trace id steps cannot be told apart; " +
			"if a proxy in front makes spans of its own, let the topology's propagation have w3c, or jaeger without B3, else send it to a sidecar's inbound address"
	}
	return "no sidecar saw its request; send it to a sidecar's inbound address instead of the application's"
}

// marks tell which step a call belongs to.
type marks struct {
	// of has the traces that only one step uses, and spans those that its requests name.
	of, spans map[string]int
	// starts has when each step began.
	starts []time.Time
}

// marksOf returns those of a run. A step that ran alone shares nothing.
func marksOf(r *workload.Result) marks {
	m := marks{of: make(map[string]int), spans: make(map[string]int), starts: r.Starts}
	for i, ids := range r.StepTraces {
		for _, id := range ids {
			if len(r.StepTraces) == 1 || !slices.Contains(r.Shared, id) {
				m.of[id.String()] = i
			}
		}
		if span := r.StepSpans[i]; span != (workload.SpanID{}) {
			m.spans[span.String()] = i
		}
	}
	return m
}

// known returns the step that a call's own trace or span names.
func (m marks) known(c *trace.Call) (int, bool) {
	if step, ok := m.of[traceOf(c)]; ok {
		return step, true
	}
	_, span, _ := strings.Cut(c.Parent, "/")
	step, ok := m.spans[span]
	return step, ok
}

// assign returns the step of each call, by index. Where neither trace nor span tells, a call
// belongs to the step of the one that its caller was serving then, by the count of the caller's
// own sidecar, or had served last; where that saw none, to the step whose entry came last. An
// entry belongs to the step which had begun by the sidecar's clock, or a later one whose calls have
// been seen. The text says of a call that it may belong to either of two steps; empty: of none.
func (m marks) assign(t *trace.Trial) (steps []int, unsure string) {
	steps = make([]int, len(t.Calls))
	seen := make([]bool, len(t.Calls))
	ends := answersOf(t)
	served := make(map[string][]int) // by instance, the requests that it got
	last := 0
	for i := range t.Events {
		e := &t.Events[i]
		c := &t.Calls[e.Call]
		if !seen[e.Call] {
			seen[e.Call] = true
			entry := c.ClientReq == trace.None
			step, known := m.known(c)
			switch {
			case known:
			case entry:
				step = m.byClock(last, e.Time)
			default:
				var other int
				if step, other, known = serving(t, served[e.Instance], ends, e.Seq, steps); !known {
					step = last
				} else if step != other && unsure == "" {
					unsure = fmt.Sprintf("%s called %s %s while it served two steps (%d and %d), and nothing tells of which that was a part",
						c.Caller, c.Callee, c.API, other+1, step+1)
				}
			}
			if entry {
				last = max(last, step)
			}
			steps[e.Call] = step
		}
		if e.Op.Role == tfiv1.Role_ROLE_SERVER && e.Op.Phase == tfiv1.Phase_PHASE_REQ {
			served[e.Instance] = append(served[e.Instance], i)
		}
	}
	return steps, unsure
}

// byClock returns the last step that had begun, but none before another.
func (m marks) byClock(step int, now time.Time) int {
	for step+1 < len(m.starts) && !now.Before(m.starts[step+1]) {
		step++
	}
	return step
}

// answersOf returns, by the event of a request that a callee got, the number of the answer at
// the same sidecar.
func answersOf(t *trace.Trial) map[int]uint64 {
	out := make(map[int]uint64)
	for i := range t.Events {
		e := &t.Events[i]
		if e.Op.Role == tfiv1.Role_ROLE_SERVER && e.Op.Phase == tfiv1.Phase_PHASE_RESP {
			out[e.Request] = e.Seq
		}
	}
	return out
}

// serving returns the step that a sidecar's service was at work for when the sidecar counted to
// seq: of requests not answered by then the last one's, and that of another; they are equal where
// all agree. If there is none it is the step of the last request. ok: there was any.
func serving(t *trace.Trial, requests []int, ends map[int]uint64, seq uint64, steps []int) (step, other int, ok bool) {
	open := slices.DeleteFunc(slices.Clone(requests), func(request int) bool {
		end, answered := ends[request]
		// One that a fault took the place of has reached nobody.
		return answered && end < seq || !answered && t.Events[request].Fired != ""
	})
	if len(open) == 0 {
		open = requests[max(0, len(requests)-1):]
	}
	if len(open) == 0 {
		return 0, 0, false
	}
	step = steps[t.Events[open[len(open)-1]].Call]
	for _, request := range open {
		if other = steps[t.Events[request].Call]; other != step {
			return step, other, true
		}
	}
	return step, step, true
}

// callsOf lists the answers that callees gave, for the oracle, one entry an attempt. The text
// says what cannot be told of their steps; empty: nothing.
func callsOf(t *trace.Trial, m marks) ([]oracle.Call, string) {
	steps, unsure := m.assign(t)
	var out []oracle.Call
	for i := range t.Events {
		e := &t.Events[i]
		c := &t.Calls[e.Call]
		if e.Op.Phase != tfiv1.Phase_PHASE_RESP || e.Delivered {
			continue
		}
		// The callee's own sidecar knows best; its caller's stands in for one that has none.
		if e.Op.Role == tfiv1.Role_ROLE_CLIENT && c.ServerResp != trace.None {
			continue
		}
		out = append(out, oracle.Call{
			Step:      steps[e.Call],
			Service:   c.Callee,
			API:       c.API,
			Entry:     c.ClientReq == trace.None && c.Caller == "",
			Succeeded: e.Outcome == tfiv1.Outcome_OUTCOME_SUCCESS,
			Broken:    c.Broken && e.Fired == "",
		})
	}
	return out, unsure
}

// traceOf returns the trace id of a call.
func traceOf(c *trace.Call) string {
	if len(c.Spans) == 0 {
		return ""
	}
	id, _, _ := strings.Cut(c.Spans[0], "/")
	return id
}
