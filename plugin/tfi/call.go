package tfi

import "time"

// Call is one call at one sidecar. The adapter keeps it beside its stream; the
// zero value is ready, and Reset makes it so again. It is not safe for concurrent use
// and must not be copied.
type Call struct {
	record Record

	// active: the call belongs to a live trial. marked: it bears the mark of some
	// trial, so that it may carry evidence that must come off.
	active, marked bool
	// reported: record holds something, of an active call or of a problem.
	reported bool
	id       StateID
	width    int

	// carries: evidence goes out with the request (client), or came in with it and
	// so goes out with the answer (server).
	carries bool
	// answered: the answer's event has happened. made: a fault made the answer,
	// which is then no event here.
	answered, made bool

	// predicates of the activation whose op and identities match, phase aside.
	predicates []int
	// targets whose op and identities match, phase aside.
	targets []matched

	// The step under way; see step.
	now      time.Duration
	event    eventKind
	answer   answer
	incoming evidence // rows point into inbuf
	fresh    Tag
	deadline time.Duration
	act      *Activation
	limits   *Limits
	// What the step has found.
	fired   *TFIC
	judged  int // judgements of earlier steps
	matches int
	// noRoom: the state had no room for some of the evidence that came. cut: the
	// header had none for some that should go.
	noRoom, cut bool
	// lost: the state that the request was counted in is gone.
	lost bool

	inbuf, raw, out, trace []byte
	peer, api, path        []byte
	judgements             []Judgement
	known                  []Known
}

// matched is a target that matches the call, and the call's rank among those
// that match its identities; 0 where it has none.
type matched struct {
	tfic int
	rank uint32
}

type eventKind uint8

const (
	eventReq eventKind = iota + 1
	eventResp
	eventDelivered
)

// Active reports whether the call belongs to a live trial.
func (c *Call) Active() bool { return c.active }

// Reset makes c ready for another call and keeps its buffers.
func (c *Call) Reset() {
	*c = Call{
		predicates: c.predicates[:0],
		targets:    c.targets[:0],
		inbuf:      c.inbuf[:0],
		raw:        c.raw[:0],
		out:        c.out[:0],
		trace:      c.trace[:0],
		peer:       c.peer[:0],
		api:        c.api[:0],
		path:       c.path[:0],
		judgements: c.judgements[:0],
		known:      c.known[:0],
		record:     Record{ContentType: c.record.ContentType[:0]},
	}
}

// Record returns what was observed of the call so far, for reporting, and nil for
// a call of no trial. If the trial could not be activated here it is a KindProblem,
// although the call is not active. It is valid until the next engine call with c.
//
// The adapter writes the fields that it fills in; ContentType by appending, so that
// its buffer is used again.
func (c *Call) Record() *Record {
	if !c.reported {
		return nil
	}
	return &c.record
}
