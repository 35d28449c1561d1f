package tfiproxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// phase says what a connection is waiting for, and so which time-out applies.
type phase uint32

const (
	phaseIdle   phase = iota // the next request
	phaseHead                // the rest of a request's head
	phaseAnswer              // the callee's answer
	phaseHeld                // the end of an answer that a fault is to replace
	phaseBody                // bytes of a body, in either direction
	phasePaused              // a fault's timer
	phaseTunnel              // nothing: bytes pass until both ends are done
)

// conn is one client connection and its upstream connection. They belong to each
// other for life: what one end does to its connection the other end sees, and an
// answer cannot end up with another client.
//
// One goroutine serves it, request then answer. Only a request body that does not
// come at once has a second one, since its answer may come first.
type conn struct {
	proxy    *Proxy
	listener *listener
	target   string // address of the upstream
	cluster  string
	// protocol is what both ends have agreed to speak, by ALPN or by what the client
	// began with; empty: not known yet, or HTTP/1.
	protocol string

	down, up sock
	in, out  *buffer // from client and upstream; nil while there is nothing

	*exchange                        // nil until a first request has begun, and after a nudge
	h2        atomic.Pointer[h2conn] // nil: not HTTP/2

	idling idling
	moving bool // to another goroutine
	opaque bool // the client has encrypted what it sends

	phase    atomic.Uint32
	progress atomic.Uint32 // changes whenever something has happened
	// uploading: more of a request is on its way to the callee, which would not get it
	// if the connection to it were half-closed.
	uploading atomic.Bool
	// behind: the client's next request has come too. The callee would not get it either.
	behind atomic.Bool
	// left: nobody waits for the answer any more. The client has ended its side while it
	// did, or the sidecar has cut the connection.
	left atomic.Bool
	// connecting is the upstream connection being made; nil: none is.
	connecting atomic.Pointer[connecting]

	// The sweeper's own.
	seen   uint32
	since  time.Duration
	looked bool
}

var _ swept = (*conn)(nil)

func (c *conn) enter(p phase) {
	c.phase.Store(uint32(p))
	c.progress.Add(1)
}

// end closes what is still open.
func (c *conn) end() {
	c.down.close()
	c.up.close()
	putBuffer(c.in)
	putBuffer(c.out)
	c.in, c.out = nil, nil
}

// preface is how HTTP/2 with prior knowledge begins (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// serve finds out what the client speaks.
func (c *conn) serve() {
	// Go runs the newest goroutine first. Without this a new connection's first request
	// would overtake those that came earlier over older ones, and calls get wrong ranks.
	runtime.Gosched()
	c.enter(phaseIdle)
	for {
		var err error
		if c.in, err = c.down.read(c.in); err != nil {
			return
		}
		data := c.in.data()
		switch {
		case data[0] == tlsHandshake && c.down.over == nil:
			c.proxy.metrics.inc(metricUnseen)
			c.opaque = true
			if c.connectUp(false) == nil {
				c.tunnel()
			}
			return
		case c.protocol == alpnHTTP1:
			c.serveHTTP1()
			return
		case len(data) >= len(preface) && string(data[:len(preface)]) == preface:
			c.protocol = alpnHTTP2
			c.serveHTTP2()
			return
		case len(data) < len(preface) && bytes.HasPrefix([]byte(preface), data):
			if phase(c.phase.Load()) != phaseHead { // a drop does not start the time anew
				c.enter(phaseHead)
			}
		case c.protocol == alpnHTTP2:
			c.proxy.metrics.inc(metricMalformed)
			return
		default:
			c.serveHTTP1()
			return
		}
	}
}

// connecting is an upstream connection that is being made.
type connecting struct {
	stop context.CancelFunc
	// endLeaves: a client that has sent its end has left. Otherwise one that has may wait
	// for its answer all the same.
	endLeaves bool
}

// connectUp opens the upstream connection if there is none; endLeaves: see [connecting].
//
// Errors: errClientGone too.
func (c *conn) connectUp(endLeaves bool) (err error) {
	if c.up.isOpen() {
		return nil
	}
	ctx, stop := context.WithTimeout(c.proxy.dialing, c.proxy.cfg.Timeouts.Connect)
	c.connecting.Store(&connecting{stop, endLeaves})
	defer func() {
		c.connecting.Store(nil)
		stop()
		if err != nil && c.left.Load() {
			c.closeUp()
			err = errClientGone
		}
	}()
	tcp, err := c.proxy.dial(ctx, c.target)
	if err != nil {
		return err
	}
	if err := c.up.open(tcp); err != nil {
		return err
	}
	// The callee of this connection has not been told of a client that has left, nor
	// is to be before it has its request; see lookForClient.
	c.progress.Add(1)
	select {
	case <-c.proxy.cutOff: // it may have been cut before it was there to be cut
		c.left.Store(true)
		return net.ErrClosed
	default:
	}
	if t := c.listener.tls.Load(); t != nil && t.client != nil && !c.opaque {
		c.uploading.Store(true) // the handshake would not survive a half-close either
		defer c.uploading.Store(false)
		return c.dialTLS(t.client)
	}
	return nil
}

// tunnel passes bytes both ways until both ends are done. What has been read
// already goes first.
func (c *conn) tunnel() {
	c.enter(phaseTunnel)
	up, down := &c.up, &c.down
	first, last := c.in, c.out
	c.in, c.out = nil, nil
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(down, up, last)
	}()
	pass(up, down, first)
	<-done
}

// pass copies one direction and hands on its end. A direction that breaks breaks
// both: half a connection would wait for ever.
func pass(to, from *sock, first *buffer) {
	var err error
	if data := first.data(); len(data) > 0 {
		err = to.write(data)
	}
	putBuffer(first)
	switch {
	case err != nil:
	case to.over == nil && from.over == nil:
		_, err = io.Copy(to.tcp, from.tcp) // by splice(2): the bytes stay in the kernel
	default:
		err = passLayers(to, from)
	}
	if err == nil {
		err = to.closeWrite()
	}
	if err != nil {
		_ = to.tcp.Close() // broken already
		_ = from.tcp.Close()
	}
}

// passLayers is io.Copy through layers.
func passLayers(to, from *sock) error {
	b := largeBuffers.Get().(*buffer)
	defer func() { putBuffer(b) }()
	for {
		var err error
		if b, err = from.read(b); err != nil {
			if err == io.EOF { //nolint:errorlint // returned as it is
				return nil
			}
			return err
		}
		if err := to.write(b.data()); err != nil {
			return err
		}
		b.skip(len(b.data()))
	}
}

// cut implements swept.
func (c *conn) cut() {
	c.left.Store(true)
	if d := c.connecting.Load(); d != nil {
		d.stop()
	}
	for _, s := range [...]*sock{&c.down, &c.up} {
		if tcp := s.shared.Load(); tcp != nil {
			_ = tcp.Close() // the owner sees it and ends
		}
	}
	if h := c.h2.Load(); h != nil {
		h.closeVoid()
	}
}

// sweep implements swept.
func (c *conn) sweep(now time.Duration) {
	p := c.progress.Load()
	moved := p != c.seen
	if moved {
		c.seen, c.since, c.looked = p, now, false
	}
	if h := c.h2.Load(); h != nil {
		h.sweep(now, now-c.since)
		return
	}
	if moved {
		return
	}
	if d := c.connecting.Load(); d != nil {
		if tcp := c.down.shared.Load(); tcp != nil && (look(tcp, false) == peerGone || d.endLeaves && hasLeft(tcp)) {
			c.cut()
		}
		return
	}
	t := &c.proxy.cfg.Timeouts
	waited := now - c.since
	switch phase(c.phase.Load()) {
	case phaseIdle:
		if c.proxy.draining.Load() || waited >= t.Idle {
			c.cut()
		}
	case phaseHead:
		if waited >= t.Head {
			c.proxy.metrics.inc(metricTimeouts)
			c.cut()
		}
	case phaseBody:
		if waited >= t.Stall {
			c.proxy.metrics.inc(metricTimeouts)
			c.cut()
		}
	case phaseAnswer, phaseHeld:
		if c.sending() && waited >= t.Stall {
			c.proxy.metrics.inc(metricTimeouts)
			c.cut()
			return
		}
		if phase(c.phase.Load()) == phaseHeld {
			c.lookForHeld()
			return
		}
		c.lookForClient()
	case phasePaused, phaseTunnel:
	}
}

// noteBehind notes whether anything follows the request, of whose bytes none is in c.in
// beyond the first size.
func (c *conn) noteBehind(size int) {
	more := len(c.in.data()) > size
	if t := c.down.sealed.Load(); t != nil && !more && c.reqBody.done {
		more = t.holds()
	}
	if more != c.behind.Load() {
		c.behind.Store(more)
	}
}

// sending tells whether some of the request is still to be sent.
func (c *conn) sending() bool { return c.uploading.Load() || c.up.writing.Load() }

// lookForHeld ends the call of a client that has sent its end while a fault holds its
// answer. It may have half-closed, but a fault that nobody sees must not count.
func (c *conn) lookForHeld() {
	if down := c.down.shared.Load(); down != nil && hasLeft(down) {
		c.cut()
	}
}

// lookForClient lets the callee know of a client that has gone away while it
// waits, as it would have without a sidecar. It also finds a callee that has sent its
// end before it got the request, and keeps silent.
func (c *conn) lookForClient() {
	down, up := c.down.shared.Load(), c.up.shared.Load()
	secure := c.listener.cfg.TLS != nil
	if down == nil || up == nil {
		return
	}
	if look(up, false) == peerDone {
		_ = up.CloseRead() // wakes who waits for it
		_ = up.Close()
		return
	}
	if c.looked {
		return
	}
	switch look(down, secure) {
	case peerDone:
		if c.sending() || c.behind.Load() {
			return // who sends hands the end on, after what comes before it
		}
		c.looked = true
		c.left.Store(true)
		if t := c.up.sealed.Load(); t != nil {
			// An end without a goodbye is an attack to TLS, and so no end of a request. Not
			// written here: the sweeper must not wait for a callee.
			if t.tcp == up {
				go func() { _ = t.closeWrite() }() // as below
			}
			return
		}
		_ = up.CloseWrite() // if it is broken the reader sees it
	case peerGone:
		c.cut()
	case peerThere, peerSpeaks:
	}
}
