package tfiproxy

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// keepBytes is how much of a held answer is kept, so that it can still be let
// go; the same as in the Envoy filter. What is larger is thrown away as it comes.
const keepBytes = 48 << 10

// maxHolds is for how many times timeouts.hold an answer that is too large to be kept
// may go on coming: the callee is not a unary one after all.
const maxHolds = 10

// judge takes a request into its trial; nil if it goes on unchanged.
func (c *conn) judge() *trial {
	head := c.in.data()[:c.req.size]
	p := c.proxy
	t := p.trials.Get().(*trial)
	t.head.index(head)
	r := tfi.Request{
		Role: c.listener.role(), Cluster: c.cluster,
		Method: view(c.req.method), Path: view(path(c.req.target)), Headers: &t.head,
	}
	d := t.begin(c.gate, &r)
	if len(d.Evidence) > 0 || d.Strip || len(d.TraceParent) > 0 {
		t.out = t.head.appendWithout(t.out[:0], tfi.EvidenceHeader)
		if len(d.Evidence) > 0 {
			t.out = appendField(t.out, tfi.EvidenceHeader, d.Evidence)
		}
		if len(d.TraceParent) > 0 {
			t.out = appendField(t.out, "traceparent", d.TraceParent)
		}
		t.out = append(t.out, "\r\n"...)
	}
	t.decided = d
	if !t.active && len(t.out) == 0 && !c.req.marked { // else evidence comes off its answer
		t.end()
		return nil
	}
	return t
}

// judgedRequest does what was decided. done: the request has been dealt with.
func (c *conn) judgedRequest(t *trial) (done, again bool) {
	d := &t.decided
	switch d.Action {
	case tfi.ActionForward:
		return false, false
	case tfi.ActionDelay:
		if c.pause(d.Delay, false) != nil {
			t.unsent()
			return true, false
		}
		c.enter(phaseAnswer)
		return false, false
	case tfi.ActionError:
		return true, c.replyFault(t)
	case tfi.ActionDrop:
		_ = c.pause(d.Delay, true) // either way it is over
	case tfi.ActionAbort:
	}
	c.down.reset()
	return true, false
}

// replyFault answers in the callee's place.
func (c *conn) replyFault(t *trial) (again bool) {
	c.dropRequest()
	f := &t.fault.Fault.Error
	t.out = t.out[:0]
	fields, typed := t.appendFault(t.out, f, t.decided.Evidence)
	t.out = fields
	contentType := ""
	if !typed && len(f.Body) > 0 {
		contentType = "text/plain"
	}
	return c.reply(f.HTTPStatus, contentType, fields, f.Body)
}

// dropRequest takes the request out of c.in, if it is still there. A connection
// whose request has not come to its end is not used again.
func (c *conn) dropRequest() {
	if c.sent == 0 && c.in != nil && !c.reqTaken {
		n, err := c.reqBody.consume(c.in.data()[c.req.size:])
		c.in.skip(c.req.size + n)
		c.persistent = c.persistent && err == nil
		c.reqTaken = true
	}
	c.persistent = c.persistent && c.reqBody.done
}

// pause waits for a fault's timer and watches the client meanwhile. A client that
// has sent its end counts as gone: nobody half-closes in the middle of a call
// but to leave it. drop: what the client sends is thrown away; else the end of one whose
// request fills the socket's buffer is not seen.
//
// Errors: errClientGone.
func (c *conn) pause(d time.Duration, drop bool) error {
	c.enter(phasePaused)
	until := time.Now().Add(d)
	if c.pumping {
		return c.sleep(until)
	}
	if err := c.down.tcp.SetReadDeadline(until); err != nil {
		return errClientGone
	}
	for {
		if drop && c.in != nil {
			c.in.r, c.in.w = 0, 0
		}
		if c.in != nil && c.in.w == len(c.in.b) {
			// No room for more. Nothing is moved: the request may be sent again.
			if err := c.down.tcp.SetReadDeadline(time.Time{}); err != nil {
				return errClientGone
			}
			return c.sleep(until)
		}
		var err error
		c.in, err = c.down.read(c.in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.down.tcp.SetReadDeadline(time.Time{})
			if err == nil {
				return nil
			}
		}
		if err != nil {
			return errClientGone
		}
	}
}

// sleep waits without reading; the client is looked at now and then.
func (c *conn) sleep(until time.Time) error {
	tick := time.NewTicker(c.proxy.cfg.Timeouts.Tick)
	defer tick.Stop()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-c.proxy.cutOff:
			return errClientGone
		case <-tick.C:
			if hasLeft(c.down.tcp) {
				return errClientGone
			}
		}
	}
}

// judgeAnswer judges the answer whose head is in c.out. From here on t.out is of the
// answer: whatever the trial is, nothing of the request may be left in it.
func (c *conn) judgeAnswer(t *trial) fate {
	head := c.out.data()[:c.resp.size]
	t.head.index(head)
	t.takeType(c.resp.length >= 0, &t.head)
	d := t.respond(&tfi.Response{Status: c.resp.status, Headers: &t.head})
	t.decided = d
	t.out = t.out[:0]
	if len(d.Evidence) > 0 || d.Strip {
		t.out = t.head.appendWithout(t.out, tfi.EvidenceHeader)
		if len(d.Evidence) > 0 {
			t.out = appendField(t.out, tfi.EvidenceHeader, d.Evidence)
		}
		t.out = append(t.out, "\r\n"...)
	}
	switch d.Action {
	case tfi.ActionDelay:
		if c.pause(d.Delay, false) != nil {
			c.over()
			return fateOver
		}
		c.enter(phaseBody)
	case tfi.ActionError, tfi.ActionAbort:
		if c.respBody.done || t.mayHold() {
			return fateHeld
		}
		return fateDoomed
	case tfi.ActionDrop:
		c.swallow(t)
		return fateOver
	case tfi.ActionForward:
	}
	return fateForward
}

// takeType notes what is reported of an answer's head.
func (t *trial) takeType(length bool, h tfi.Headers) {
	t.length = length
	if v, ok := h.Header("content-type"); ok {
		t.contentType = append(t.contentType[:0], v...)
	}
}

// over ends both connections of an exchange that a fault has broken.
func (c *conn) over() {
	c.settle(true)
	c.down.reset()
	c.up.close()
}

// swallow throws an answer away; the caller waits until the limit.
func (c *conn) swallow(t *trial) {
	limit := time.Now().Add(t.decided.Delay)
	c.enter(phaseHeld)                           // in which the client's leaving ends it
	_ = c.drainAnswer(t, t.decided.Delay, false) // the callee ends as it may
	_ = c.pause(time.Until(limit), true)         // either way it is over
	c.over()
}

// drainAnswer reads the answer to its end, for at most d; keep: as long as the
// answer fits it stays in c.out, and kept is true.
func (c *conn) drainAnswer(t *trial, d time.Duration, keep bool) (err error) {
	if err := c.up.tcp.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if len(c.out.data()) > c.resp.size {
		n, err := c.respBody.consume(c.out.data()[c.resp.size:])
		if err != nil {
			return err
		}
		t.count(n)
		t.held = n
	}
	for !c.respBody.done {
		if c.out = grown(c.out); keep && t.held > keepBytes-c.resp.size || !c.out.makeRoom() {
			keep = false
		}
		if !keep {
			t.lost = true
			c.out.r, c.out.w = 0, 0
		}
		before := len(c.out.data())
		if c.out, err = c.up.read(c.out); err != nil {
			if err == io.EOF && c.respBody.length == lengthEOF { //nolint:errorlint // returned as it is
				err = nil
				break
			}
			return err
		}
		c.progress.Add(1)
		n, err := c.respBody.consume(c.out.data()[before:])
		if err != nil {
			return err
		}
		t.count(n)
		t.held += n
	}
	return c.up.tcp.SetReadDeadline(time.Time{})
}

// hold keeps an answer back until the callee has finished and then makes the
// fault. done is false if the answer is let go: what was kept is in c.out, and the
// rest has still to come.
func (c *conn) hold(t *trial) (done, again bool) {
	c.enter(phaseHeld) // in which the client's leaving ends it
	for rounds := 0; ; rounds++ {
		before := t.bytes
		err := c.drainAnswer(t, c.proxy.cfg.Timeouts.Hold, !t.lost)
		if err == nil {
			break
		}
		if c.left.Load() {
			return c.spare(t)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			// The callee broke off: the caller sees the fault all the same.
			c.persistent = false
			break
		}
		if !t.lost {
			_ = c.up.tcp.SetReadDeadline(time.Time{}) // the next read would tell
			t.engine.LetGo(&t.call)
			// What was kept goes through forward as if it had just come.
			c.respBody.begin(c.respBody.length)
			t.bytes, t.chunks = 0, max(t.chunks-1, 0)
			return false, false
		}
		if hasLeft(c.down.tcp) {
			return c.spare(t)
		}
		if t.bytes == before || rounds == maxHolds {
			c.persistent = false
			break // it has stopped, or does not end, and there is no way back
		}
	}
	if ended(c.down.tcp) {
		return c.spare(t)
	}
	if t.decided.Action == tfi.ActionAbort {
		c.over()
		return true, false
	}
	c.enter(phaseBody) // the rest of the request may stall
	c.settle(!c.persistent)
	if !c.respBody.done || c.pumpErr != nil {
		c.persistent = false
	}
	if !c.persistent {
		c.up.close()
	}
	putBuffer(c.out)
	c.out = nil
	return true, c.replyFault(t)
}

// spare ends a call whose answer is held and whose client has left: the fault is let go.
func (c *conn) spare(t *trial) (done, again bool) {
	t.engine.LetGo(&t.call)
	c.over()
	return true, false
}

// judgedFailure judges an answer that the sidecar makes because there is none.
func (c *conn) judgedFailure(t *trial, status int) bool {
	d := t.respond(&tfi.Response{Status: status, Made: true, Headers: noHeaders{}})
	t.decided = d
	switch d.Action {
	case tfi.ActionDelay:
		if c.pause(d.Delay, false) != nil {
			return false
		}
	case tfi.ActionError:
		return c.replyFault(t)
	case tfi.ActionAbort:
		c.down.reset()
		return false
	case tfi.ActionDrop:
		_ = c.pause(d.Delay, true) // either way it is over
		c.down.reset()
		return false
	case tfi.ActionForward:
	}
	var fields []byte
	if len(d.Evidence) > 0 {
		fields = appendField(nil, tfi.EvidenceHeader, d.Evidence)
	}
	again := c.reply(status, "", fields, nil)
	t.delivered()
	return again
}

// judgeUpgrade judges the answer that turns the connection into a tunnel. It
// reports whether that was prevented; CONNECT only, since 101 is no answer.
func (t *trial) judgeUpgrade(c *conn) (over bool) {
	if c.resp.status == 101 {
		return false
	}
	t.head.index(c.out.data()[:c.resp.size])
	d := t.respond(&tfi.Response{Status: c.resp.status, Headers: &t.head})
	switch d.Action {
	case tfi.ActionForward:
		return false
	case tfi.ActionDelay:
		return c.pause(d.Delay, false) != nil
	case tfi.ActionDrop:
		_ = c.pause(d.Delay, true) // either way it is over
	case tfi.ActionError, tfi.ActionAbort:
	}
	c.over()
	return true
}

// noHeaders is the head of an answer that there is not.
type noHeaders struct{}

var _ tfi.Headers = noHeaders{}

// Header implements [tfi.Headers].
func (noHeaders) Header(string) (string, bool) { return "", false }
