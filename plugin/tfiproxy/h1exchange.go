package tfiproxy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// exchange is the request and answer under way. It is apart from its connection
// because idle ones need none.
type exchange struct {
	req      requestHead // its slices are good until the request is sent
	resp     responseHead
	reqBody  body
	respBody body
	gate     *gate
	// What of the request matters for its answer.
	head, connect bool
	persistent    bool
	// lingers: the connection ends after an answer, which the client must get.
	lingers bool
	// leaving: the sidecar drains, and has to tell the client.
	leaving   bool
	oldClient bool // HTTP/1.0
	// message is the request as it was sent, while it can be sent again; sent is
	// what it takes up in c.in.
	message []byte
	sent    int
	// reqTaken: the request has left c.in, all of it that had come.
	reqTaken bool
	// repeatable: sending it twice does no harm (RFC 9110, 9.2.2).
	repeatable bool
	reused     bool // the upstream connection has served before
	// trailers of the request, with the last chunk before them.
	trailers []byte

	// The goroutine that passes on the rest of a request's body.
	pumping bool
	pumpErr error
	pumped  chan error
	pumpRun func()
}

var (
	// errClientGone says that a client left.
	errClientGone = errors.New("client gone")
	// errUnsent says that it did before its request was sent on.
	errUnsent = fmt.Errorf("%w before its request was sent on", errClientGone)
	// errUnwanted says that the callee takes no more of a request. It may have
	// answered all the same.
	errUnwanted = errors.New("upstream takes no more")
)

// serveHTTP1 serves requests until the connection ends.
func (c *conn) serveHTTP1() {
	defer func() {
		if c.exchange != nil && c.lingers {
			c.up.close()
			c.enter(phasePaused) // which ends by itself
			c.down.linger()
		}
	}()
	for {
		if err := c.readRequest(); err != nil {
			if err == errMove { //nolint:errorlint // returned as it is
				c.moving = true
				return
			}
			c.refuse(err)
			return
		}
		if !c.serveRequest() {
			return
		}
	}
}

// refuse answers a request that cannot be forwarded, and ends the connection.
func (c *conn) refuse(err error) {
	status := 400
	switch {
	case errors.Is(err, errHeadSize):
		status = 431
	case errors.Is(err, errHeadVersion):
		status = 505
	case errors.Is(err, errEncoding):
		status = 501
	case errors.Is(err, errHeadForm), errors.Is(err, errFraming), errors.Is(err, errChunk):
	default:
		return // the connection itself broke
	}
	c.proxy.metrics.inc(metricMalformed)
	c.persistent = false
	c.reply(status, "", nil, nil)
}

// serveRequest runs one exchange and reports whether another may follow.
func (c *conn) serveRequest() (again bool) {
	c.enter(phaseAnswer)
	c.proxy.metrics.inc(metricRequests)
	c.remember()
	var t *trial
	if c.gate != nil && c.gate.wants(&c.req.headFields) {
		t = c.judge()
		if t != nil {
			defer t.end()
			if done, again := c.judgedRequest(t); done {
				return again
			}
		}
	}
	if err := c.sendRequest(t); err != nil {
		return c.failed(t, err)
	}
	if err := c.receive(t); err != nil {
		return c.failed(t, err)
	}
	return c.answer(t)
}

// remember notes what of the request its answer depends on.
func (c *conn) remember() {
	m := c.req.method
	c.head, c.connect = string(m) == "HEAD", string(m) == "CONNECT"
	switch string(m) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		c.repeatable = true
	default:
		c.repeatable = false
	}
	c.persistent = c.req.persists(c.req.minor)
	c.oldClient = c.req.minor == 0
	c.pumping, c.pumpErr, c.reqTaken = false, nil, false
	c.sent, c.message, c.trailers = 0, nil, c.trailers[:0]
	c.reqBody.begin(c.req.bodyLength())
}

// sendRequest sends the head and as much of the body as has come.
func (c *conn) sendRequest(t *trial) error {
	data := c.in.data()
	n, err := c.reqBody.consume(data[c.req.size:])
	if err != nil {
		return err
	}
	c.sent = c.req.size + n
	ends := c.req.size + c.reqBody.keepTrailers(&c.trailers, data[c.req.size:c.sent])
	c.message = data[:ends]
	if t != nil && len(t.out) > 0 {
		t.out = append(t.out, data[c.req.size:ends]...)
		c.message = t.out
	}
	if c.reqBody.done && len(c.trailers) > 0 {
		c.message = slices.Concat(c.message, bareTrailers(c.trailers))
	}
	c.repeatable = c.repeatable && c.reqBody.done
	c.noteBehind(c.sent)
	if err := c.send(t != nil && t.active); err != nil {
		return err
	}
	if !c.reqBody.done {
		return c.sendBody()
	}
	return nil
}

// send writes the message, to a new connection if the old one turns out to be
// dead and that is safe. If it is the whole request the answer's first bytes are in
// c.out afterwards. endLeaves: see [connecting].
//
// Errors: errUnsent too.
func (c *conn) send(endLeaves bool) error {
	for sent := false; ; {
		c.reused = c.up.isOpen()
		if c.reused && !c.reqBody.done && !c.up.usable() {
			c.closeUp()
			continue
		}
		if err := c.connectUp(endLeaves); err != nil {
			if errors.Is(err, errClientGone) && !sent {
				err = errUnsent
			}
			return err
		}
		var err error
		if c.reqBody.done {
			c.out, err = c.up.call(c.message, c.out, c.reused)
		} else {
			err = c.up.write(c.message)
		}
		if err == errUsed { //nolint:errorlint // returned as it is
			c.closeUp() // nothing was sent
			continue
		}
		if err == nil || !c.reused || !c.repeatable {
			return err
		}
		c.closeUp() // it was closed while idle, most likely before the request could be seen
		sent = true
	}
}

func (c *conn) closeUp() {
	c.up.close()
	putBuffer(c.out)
	c.out = nil
}

// receive reads the head of the final answer; it stays in c.out. Interim answers
// are passed on.
func (c *conn) receive(t *trial) error {
	for {
		if err := c.readAnswer(); err != nil {
			return err
		}
		if c.resp.status == 101 && !c.req.upgrade {
			return errHeadForm // nobody asked, and nothing would be seen any more
		}
		if c.resp.status >= 200 || c.resp.status == 101 {
			if !c.pumping {
				c.commit()
			}
			return nil
		}
		c.enter(phaseBody)
		if err := c.down.write(c.bareHead(t)); err != nil {
			return errClientGone
		}
		c.out.skip(c.resp.size)
		c.enter(phaseAnswer)
	}
}

// commit lets go of the request: it will not be sent again.
func (c *conn) commit() {
	if c.sent > 0 {
		c.in.skip(c.sent)
		c.sent, c.message, c.reqTaken = 0, nil, true
	}
}

func isForm(err error) bool {
	return errors.Is(err, errHeadForm) || errors.Is(err, errHeadSize) || errors.Is(err, errHeadVersion) ||
		errors.Is(err, errFraming) || errors.Is(err, errEncoding) || errors.Is(err, errChunk)
}

// readAnswer reads and scans one head of an answer.
func (c *conn) readAnswer() error {
	limit := c.proxy.cfg.Limits.HeadBytes
	for searched := 0; ; {
		if data := c.out.data(); len(data) > 0 {
			if size := headEnd(data, searched); size > 0 {
				if size > limit {
					return errHeadSize
				}
				return c.resp.scan(data[:size])
			}
			if bareLF(data, searched) {
				return errHeadForm
			}
			if searched = len(data); searched >= limit {
				return errHeadSize
			}
			if !c.out.makeRoom() {
				c.out = grown(c.out)
			}
		}
		var err error
		if c.out, err = c.up.read(c.out); err != nil {
			return err
		}
	}
}

// failed answers a request whose exchange has come to nothing.
func (c *conn) failed(t *trial, err error) bool {
	if errors.Is(err, errClientGone) || c.left.Load() {
		if t != nil && errors.Is(err, errUnsent) {
			t.unsent()
		}
		c.settle(true)
		return false
	}
	if errors.Is(err, errChunk) {
		c.settle(true)
		c.refuse(err)
		return false
	}
	c.settle(true)
	c.closeUp()
	if errors.Is(c.pumpErr, errChunk) { // which has been counted
		c.persistent = false
		c.reply(400, "", nil, nil)
		return false
	}
	c.proxy.metrics.inc(metricUpstreamErrors)
	c.persistent = c.persistent && c.reqBody.done && c.pumpErr == nil
	status := 503
	if isForm(err) {
		status = 502
	}
	if c.sent > 0 {
		c.commit()
	}
	if t != nil && t.active {
		return c.judgedFailure(t, status)
	}
	return c.reply(status, "", nil, nil)
}

// reply sends an answer that the sidecar makes itself; fields are whole lines.
func (c *conn) reply(status int, contentType string, fields, text []byte) (again bool) {
	again = c.persistent && !c.proxy.draining.Load()
	b := make([]byte, 0, 256+len(fields)+len(text))
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, reason(status)...)
	b = append(b, "\r\n"...)
	b = append(b, fields...)
	if contentType != "" {
		b = appendField(b, "content-type", contentType)
	}
	if status != 204 && status != 304 {
		b = appendField(b, "content-length", strconv.Itoa(len(text)))
	}
	if !again {
		b = appendField(b, "connection", "close")
	} else if c.oldClient {
		b = appendField(b, "connection", "keep-alive")
	}
	b = append(b, "\r\n"...)
	if !c.head && status != 204 && status != 304 {
		b = append(b, text...)
	}
	c.enter(phaseBody)
	if err := c.down.write(b); err != nil {
		return false
	}
	c.lingers = !again
	return again
}

// short is how much of the n bytes consumed last may be sent of a body that must
// not be complete.
func (s *body) short(n int) int {
	switch {
	case s.last >= 0:
		return s.last
	case s.length >= 0 && s.done && n > 0:
		return n - 1
	}
	return n
}

// path returns the path and query of a request target, which may be absolute.
func path(target []byte) []byte {
	if len(target) == 0 || target[0] == '/' {
		return target
	}
	if i := bytes.Index(target, []byte("://")); i >= 0 {
		if j := bytes.IndexByte(target[i+3:], '/'); j >= 0 {
			return target[i+3+j:]
		}
		return []byte("/")
	}
	return target
}
