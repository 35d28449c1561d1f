package trace

import (
	"fmt"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// moment is one event as its observer reported it; seq 0: it did not happen.
type moment struct {
	seq  uint64
	nano int64
	// Tag and number that came with the message; zero where it carried none.
	from eventName
}

// eventName names an event across sidecars.
type eventName struct {
	instance string
	seq      uint64
}

// observation is one call as one end reported it. Both kinds of spans become
// observations, and all that follows treats them alike.
type observation struct {
	span              string
	service, instance string
	role              tfiv1.Role
	peer, api         string
	k                 uint32
	grpc              bool
	path, policy      string
	// parent is the span that the request's trace header named, as "trace id/span id".
	parent string

	req, resp, delivered moment

	retry        bool
	unsent       bool // the request was delayed, and its caller left before it was sent on
	status       uint32
	outcome      tfiv1.Outcome
	made, broken bool

	// What fired at the request and at the answer. A span tells of the last firing
	// only; that of a request that was merely delayed is in the early decision.
	firedReq, firedResp firing

	letGo  bool
	judged []string
	answer Answer
	// whole: from a span of the finished call, not from an early decision.
	whole bool
}

// firing is a TFIC that fired; no id: none did.
type firing struct{ id, fault string }

// fired returns the firing of a phase.
func (o *observation) fired(p tfiv1.Phase) *firing {
	if p == tfiv1.Phase_PHASE_RESP {
		return &o.firedResp
	}
	return &o.firedReq
}

// spanRef names a span in an error or a warning.
func spanRef(s *tracev1.Span) string {
	return fmt.Sprintf("%x/%x", s.GetTraceId(), s.GetSpanId())
}

// absorb adds what p tells beyond what is known of the same call: a sidecar
// reports a decision early and the whole call later, and exporters repeat
// batches.
func (o *observation) absorb(p *observation) {
	if p.whole && !o.whole {
		keep := *o
		*o = *p
		p = &keep
	}
	if o.resp.seq == 0 {
		o.resp, o.status, o.outcome, o.made, o.broken = p.resp, p.status, p.outcome, p.made, p.broken
	}
	if o.delivered.seq == 0 {
		o.delivered = p.delivered
	}
	if o.firedReq.id == "" {
		o.firedReq = p.firedReq
	}
	if o.firedResp.id == "" {
		o.firedResp = p.firedResp
	}
	if len(o.judged) == 0 {
		o.judged = p.judged
	}
	if !o.answer.Seen {
		o.answer = p.answer
	}
	if o.k == 0 {
		o.k = p.k
	}
	if o.parent == "" {
		o.parent = p.parent
	}
	o.letGo = o.letGo || p.letGo
	o.retry = o.retry || p.retry
	o.unsent = o.unsent || p.unsent
}
