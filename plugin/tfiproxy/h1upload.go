package tfiproxy

import (
	"errors"
	"io"
	"time"
)

// inlineBody is how much of a body that comes at once is passed on before the
// answer is looked for.
const inlineBody = 256 << 10

// sendBody passes on the rest of the body: what is there at once, and from then
// on beside the answer.
func (c *conn) sendBody() error {
	c.commit()
	c.uploading.Store(true)
	for c.reqBody.bytes < inlineBody && !c.req.expect {
		err := c.passBody(true)
		if err == errNothing { //nolint:errorlint // returned as it is, on a hot path
			break
		}
		if err != nil {
			c.uploading.Store(false)
			c.pumpErr = err
			return c.pumpFailed(err)
		}
		if c.reqBody.done {
			c.uploading.Store(false)
			return nil
		}
	}
	if c.pumped == nil {
		c.pumped = make(chan error, 1)
		c.pumpRun = c.pump
	}
	c.pumping = true
	go c.pumpRun()
	return nil
}

// passBody passes on one piece of the request's body. try: if there is one.
func (c *conn) passBody(try bool) error {
	if c.reqBody.plain() >= spliceLeast && len(c.in.data()) == 0 && canSplice(&c.down, &c.up) {
		n, err := c.down.spliceTo(&c.up, c.reqBody.plain(), try, &c.progress)
		switch {
		case err == nil:
			c.reqBody.pass(n)
			c.noteBehind(0)
			return nil
		case errors.Is(err, errUntaken):
			return errUnwanted
		case !errors.Is(err, errCopy):
			return err
		}
	}
	if c.in == nil || len(c.in.b) < largeBuffer && len(c.in.data()) == 0 {
		putBuffer(c.in)
		c.in = largeBuffers.Get().(*buffer)
	}
	var err error
	if c.in, err = c.down.readInto(c.in, try); err != nil {
		return err
	}
	n, err := c.reqBody.consume(c.in.data())
	if err != nil {
		return err
	}
	if n > 0 {
		c.progress.Add(1)
		part := c.in.data()[:n]
		part = part[:c.reqBody.keepTrailers(&c.trailers, part)]
		if len(part) > 0 && c.up.write(part) != nil {
			err = errUnwanted
		}
		c.in.skip(n)
		c.noteBehind(0)
		if err == nil && c.reqBody.done && len(c.trailers) > 0 && c.up.write(bareTrailers(c.trailers)) != nil {
			err = errUnwanted
		}
	}
	return err
}

// pump is the goroutine that passes on a request's body.
func (c *conn) pump() {
	var err error
	defer func() {
		if r := recover(); r != nil {
			c.proxy.metrics.inc(metricInternal)
			err = errClientGone
			c.cut()
		}
		c.uploading.Store(false)
		c.pumped <- err
	}()
	for !c.reqBody.done && err == nil {
		err = c.passBody(false)
	}
	if err != nil {
		_ = c.pumpFailed(err) // who waits for the answer sees it
	}
}

// pumpFailed lets the callee see what has become of the request's body. It returns
// an error if no answer is to be waited for.
func (c *conn) pumpFailed(err error) error {
	switch {
	case err == io.EOF: //nolint:errorlint // returned as it is
		_ = c.up.closeWrite() // the callee sees what the client did
	case errors.Is(err, errChunk):
		if c.pumping {
			c.proxy.metrics.inc(metricMalformed)
		}
		_ = c.up.tcp.Close() // it must not take half of it for the whole
		return err
	}
	return nil
}

// settle waits for the pump. stop: the body is wanted no more.
func (c *conn) settle(stop bool) {
	if !c.pumping {
		return
	}
	if stop {
		_ = c.down.tcp.SetReadDeadline(time.Unix(1, 0)) // it can only fail if the read does
		if c.up.tcp != nil {
			_ = c.up.tcp.SetWriteDeadline(time.Unix(1, 0)) // as above
		}
	}
	c.pumpErr = <-c.pumped
	c.pumping = false
	if stop {
		_ = c.down.tcp.SetReadDeadline(time.Time{}) // as above
		if c.up.tcp != nil {
			_ = c.up.tcp.SetWriteDeadline(time.Time{}) // as above
		}
	}
}
