package tfi

import "time"

// Call is one call at one sidecar. The adapter keeps it beside its stream; the
// zero value is ready, and Reset makes it so again. It is not safe for concurrent use
// and must not be copied.
type Call struct {
	record Record
	callState
	callBuffers
}

// callState is what a call begins without.
type callState struct {
	// used: there is something to reset.
	used bool
	// active: the call belongs to a live trial. marked: it bears the mark of some
	// trial, so that it may carry evidence that must come off.
	active, marked bool
	// reported: record holds something, of an active call or of a problem.
	reported bool
	id       StateID
	width    int
	// act is the activation as of the latest step, whose policy may be an earlier one.
	act *Activation

	// carries: evidence goes out with the request (client), or came in with it and
	// so goes out with the answer (server).
	carries bool
	// answered: the answer's event has happened. made: a fault made the answer,
	// which is then no event here.
	answered, made bool

	// The step under way; see step.
	now      time.Duration
	event    eventKind
	answer   answer
	incoming evidence // rows point into inbuf
	fresh    Tag
	deadline time.Duration
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
}

// callBuffers outlast a call, empty.
type callBuffers struct {
	// predicates of the activation whose op and identities match, phase aside.
	predicates []int
	// targets whose op and identities match, phase aside.
	targets []matched

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
	if !c.used {
		return
	}
	// In place: a composite literal would be made elsewhere and copied.
	contentType := c.record.ContentType[:0]
	c.record = Record{}
	c.record.ContentType = contentType
	c.callState = callState{}
	b := &c.callBuffers
	b.reset()
}

func (b *callBuffers) reset() {
	b.predicates = b.predicates[:0]
	b.targets = b.targets[:0]
	b.inbuf = b.inbuf[:0]
	b.raw = b.raw[:0]
	b.out = b.out[:0]
	b.trace = b.trace[:0]
	b.peer = b.peer[:0]
	b.api = b.api[:0]
	b.path = b.path[:0]
	b.judgements = b.judgements[:0]
	b.known = b.known[:0]
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
