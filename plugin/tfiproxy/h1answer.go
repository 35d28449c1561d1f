package tfiproxy

import (
	"errors"
	"io"
	"slices"
)

// answer passes on the answer whose head is in c.out.
func (c *conn) answer(t *trial) (again bool) {
	if c.resp.status == 101 || c.connect && c.resp.status/100 == 2 {
		c.settle(false)
		return c.upgrade(t)
	}
	length := c.answerLength()
	c.respBody.begin(length)
	c.persistent = c.persistent && length != lengthEOF && c.resp.persists(c.resp.minor) &&
		(!c.oldClient || c.resp.keepAlive)
	if c.persistent && c.proxy.draining.Load() {
		c.persistent, c.leaving = false, true
	}
	var how fate
	if t != nil {
		if how = c.judgeAnswer(t); how == fateOver {
			return false
		}
		if how == fateHeld {
			if done, again := c.hold(t); done {
				return again
			}
			how = fateForward
		}
	}
	if err := c.forward(t, how); err != nil {
		if how == fateDoomed {
			t.engine.LetGo(&t.call) // the caller sees the answer break by itself
		}
		c.settle(true)
		c.down.reset() // it must not take half of it for the whole
		return false
	}
	if how == fateDoomed {
		if ended(c.down.tcp) {
			t.engine.LetGo(&t.call) // nobody waits for it
		}
		c.settle(true)
		c.down.reset()
		return false
	}
	if t != nil {
		t.delivered()
	}
	return c.finish()
}

func (c *conn) answerLength() int64 {
	switch {
	case c.head:
		return 0
	default:
		return c.resp.bodyLength(nil)
	}
}

// forward passes the answer on, head and body.
func (c *conn) forward(t *trial, how fate) error {
	data := c.out.data()
	n, err := c.respBody.consume(data[c.resp.size:])
	if err != nil {
		c.proxy.metrics.inc(metricMalformed)
		return err
	}
	if t != nil {
		t.count(n)
	}
	ends := c.resp.size + n
	message := data[:ends]
	if how == fateDoomed {
		message = data[:c.resp.size+c.respBody.short(n)]
	} else if t != nil {
		message = data[:c.resp.size+c.respBody.keepTrailers(&t.trailers, data[c.resp.size:ends])]
	}
	if t != nil && len(t.out) > 0 {
		t.out = append(t.out, message[c.resp.size:]...)
		message = t.out
	}
	if c.leaving { // the client's next request must not meet a closed connection
		size := headEnd(message, 0)
		message = slices.Concat(message[:size-2], []byte("connection: close\r\n\r\n"), message[size:])
	}
	c.enter(phaseBody) // the client may not take it
	if err := c.down.write(message); err != nil {
		return errClientGone
	}
	c.out.skip(ends)
	if c.respBody.done {
		return c.sendTrailers(t, how)
	}
	c.progress.Add(1)
	return c.forwardBody(t, how)
}

// forwardBody passes on what of the answer's body is still to come.
func (c *conn) forwardBody(t *trial, how fate) error {
	for !c.respBody.done {
		if how != fateDoomed && c.respBody.plain() >= spliceLeast && canSplice(&c.up, &c.down) {
			err := c.spliceAnswer(t)
			if err == nil {
				continue
			}
			if err != errCopy { //nolint:errorlint // returned as it is
				return err
			}
		}
		if c.out == nil || len(c.out.b) < largeBuffer {
			putBuffer(c.out)
			c.out = largeBuffers.Get().(*buffer)
		}
		var err error
		c.out, err = c.up.read(c.out)
		if err == io.EOF && c.respBody.length == lengthEOF { //nolint:errorlint // returned as it is
			return nil
		}
		if err != nil {
			c.proxy.metrics.inc(metricUpstreamErrors)
			return err
		}
		n, err := c.respBody.consume(c.out.data())
		if err != nil {
			c.proxy.metrics.inc(metricMalformed)
			return err
		}
		c.progress.Add(1)
		part := c.out.data()[:n]
		if how == fateDoomed {
			part = part[:c.respBody.short(n)]
		} else if t != nil {
			part = part[:c.respBody.keepTrailers(&t.trailers, part)]
		}
		if t != nil {
			t.count(n)
		}
		if len(part) > 0 {
			if err := c.down.write(part); err != nil {
				return errClientGone
			}
		}
		c.out.skip(n)
	}
	return c.sendTrailers(t, how)
}

// spliceAnswer passes on a piece of the body unseen. Errors: errCopy too.
func (c *conn) spliceAnswer(t *trial) error {
	n, err := c.up.spliceTo(&c.down, c.respBody.plain(), false, &c.progress)
	switch {
	case err == nil:
		c.respBody.pass(n)
		if t != nil {
			t.count(n)
		}
		return nil
	case errors.Is(err, errCopy):
		return errCopy
	case errors.Is(err, errUntaken):
		return errClientGone
	default:
		c.proxy.metrics.inc(metricUpstreamErrors)
		return err
	}
}

// finish makes the connection ready for another request, if there may be one.
func (c *conn) finish() (again bool) {
	if !c.persistent {
		c.settle(true)
		c.lingers = true
		return false
	}
	c.progress.Add(1)
	c.settle(false)
	if c.pumpErr != nil {
		c.lingers = true
		return false
	}
	if len(c.out.data()) > 0 {
		c.closeUp() // an answer that nobody asked for
	}
	putBuffer(c.out)
	c.out = nil
	return true
}

// upgrade turns the connection into a tunnel.
func (c *conn) upgrade(t *trial) bool {
	c.proxy.metrics.inc(metricUnseen)
	if t != nil && t.active && t.judgeUpgrade(c) {
		return false
	}
	c.enter(phaseBody)
	if err := c.down.write(c.bareHead(t)); err != nil {
		return false
	}
	c.out.skip(c.resp.size)
	c.tunnel()
	return false
}
