package tfiproxy

import (
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// trial is one call of a trial under way, whatever the protocol.
type trial struct {
	proxy *Proxy
	call  tfi.Call
	trialState

	// The heads of HTTP/1 messages, and what is sent in place of one.
	head headView
	out  []byte
	// trailers of an HTTP/1 answer, with the last chunk before them.
	trailers []byte
	// contentType is reported of the answer.
	contentType []byte
}

// trialState is what a call begins without.
type trialState struct {
	engine *tfi.Engine
	// active: the call is judged and reported. Otherwise only its request's
	// evidence comes off.
	active bool
	fault  *tfi.TFIC // what fired; nil: nothing
	// decided is what the engine said last.
	decided tfi.Decision
	// held bytes of an answer's body so far; lost: they are not all there any more.
	held int
	lost bool
	// at is the instant of what is under way, where it is that of more than this call; nil,
	// or 0 there: the clock is to be read.
	at *time.Duration

	// What is reported of the answer.
	bytes, chunks int64
	length        bool
}

// fate is what becomes of an answer that is passed on.
type fate uint8

const (
	fateForward fate = iota
	fateHeld         // kept back until its end, which decides
	fateDoomed       // streams on, and is reset at its end
	fateOver         // nothing more to do
)

// now is the instant of what is under way.
func (t *trial) now() time.Duration {
	if t.at != nil && *t.at != 0 {
		return *t.at
	}
	return t.proxy.now()
}

// begin judges a request.
func (t *trial) begin(g *gate, r *tfi.Request) tfi.Decision {
	t.engine = g.engine
	r.Now = t.now()
	d := t.engine.Request(&t.call, r)
	t.active = t.call.Active()
	if !t.active {
		if record := t.call.Record(); record != nil {
			t.proxy.policies.refuse(record)
		}
	}
	t.fired(&d)
	return d
}

// fired takes note of a fault, and reports it at once: the call may take long.
func (t *trial) fired(d *tfi.Decision) {
	if d.TFIC == nil {
		return
	}
	t.fault = d.TFIC
	r := *t.call.Record()
	r.Kind = tfi.KindDecision
	t.proxy.report.add(&r, t.now())
}

// respond judges an answer.
func (t *trial) respond(r *tfi.Response) tfi.Decision {
	r.Now = t.now()
	d := t.engine.Response(&t.call, r)
	t.fired(&d)
	return d
}

// count takes note of a piece of the answer's body.
func (t *trial) count(n int) {
	if n > 0 {
		t.bytes += int64(n)
		t.chunks++
	}
}

// delivered tells the engine that the whole answer has been passed on.
func (t *trial) delivered() {
	if t.active {
		t.engine.Delivered(&t.call, t.now())
	}
}

// unsent notes that the request has been delayed and will not be sent on: its client
// has left.
func (t *trial) unsent() {
	if r := t.call.Record(); r != nil {
		r.Unsent = true
	}
}

// end reports the call and gives t back.
func (t *trial) end() {
	t.close()
	t.proxy.trials.Put(t)
}

// close reports the call and makes t ready for another, which may be another client's: the
// call and its buffers are all that stays. They are large, so the rest is reset in place.
func (t *trial) close() {
	if t.active {
		if r := t.call.Record(); r != nil {
			r.Bytes, r.Chunks, r.Length = t.bytes, t.chunks, t.length
			r.ContentType = append(r.ContentType[:0], t.contentType...)
			t.proxy.report.add(r, t.now())
		}
	}
	t.call.Reset()
	t.trialState = trialState{}
	t.head.head, t.head.fields = nil, t.head.fields[:0]
	t.trailers, t.contentType = t.trailers[:0], t.contentType[:0]
	if t.out = t.out[:0]; cap(t.out) > largeBuffer {
		t.out = nil
	}
}

// mayHold tells whether an answer may be kept back until the callee has finished.
// What streams is never: its reader lives from what comes meanwhile.
func (t *trial) mayHold() bool {
	return t.fault.AnswerKind == tfi.AnswerUnary && !strings.HasPrefix(view(t.contentType), "text/event-stream")
}

// appendFault appends the field lines of an answer that a fault makes.
func (t *trial) appendFault(b []byte, f *tfi.ErrorSpec, evidence []byte) (_ []byte, typed bool) {
	for _, h := range f.Headers {
		switch h.Name {
		case "content-length", "transfer-encoding", "connection":
			continue // they are the sidecar's
		case "content-type":
			typed = true
		}
		b = appendField(b, h.Name, h.Value)
	}
	b = appendField(b, tfi.InjectedHeader, t.fault.ID)
	if len(evidence) > 0 {
		b = appendField(b, tfi.EvidenceHeader, evidence)
	}
	return b, typed
}
