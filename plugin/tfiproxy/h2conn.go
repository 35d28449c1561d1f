package tfiproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

// h2conn is an HTTP/2 client connection and the upstream connection that belongs
// to it. Since there is one for one, frames are passed on as they are: settings,
// pings and window updates reach the other end, whose flow control is thus that of the
// ends themselves. What the sidecar changes: it tells both ends to keep no HPACK table,
// so that header blocks can be read without one; it numbers upstream streams itself,
// since a fault may keep a request back or swallow it; and it pays back the window of
// bytes that it swallowed or made.
//
// Two goroutines serve it, one for each direction.
type h2conn struct {
	conn  *conn
	proxy *Proxy
	// up passes on what the client sends, down what the upstream does.
	up, down h2half

	mu       sync.Mutex
	byClient map[uint32]*h2stream
	byServer map[uint32]*h2stream
	free     []*h2stream
	// lastClient is the highest stream that the client has opened, nextServer the
	// next that we open.
	lastClient, nextServer uint32
	// goingAway: the client has been told to open no more streams.
	goingAway bool

	// window is what the client still takes of the connection's flow, and debt what
	// of that the sidecar has spent on answers of its own.
	window atomic.Int64
	debt   atomic.Int64
	opened chan struct{} // has one element after the window has grown
	closed chan struct{} // closed once either direction has ended
	ended  sync.Once
	failed atomic.Bool
	// lost: the upstream's side ended first.
	lost bool
	// clientWindow is the client's initial window of a stream.
	clientWindow atomic.Int64

	flood h2flood
}

// h2stream is a call under way. Its fields are guarded by its connection's mu.
type h2stream struct {
	client, server uint32 // server is 0 while the upstream does not know of it
	clientDone     bool
	serverDone     bool
	begun          bool     // the answer has
	trial          *h2trial // nil: of no trial
}

// serveHTTP2 serves the connection to its end; its first bytes are in c.in.
func (c *conn) serveHTTP2() {
	c.enter(phaseTunnel)
	h := &h2conn{
		conn: c, proxy: c.proxy,
		byClient: map[uint32]*h2stream{}, byServer: map[uint32]*h2stream{},
		nextServer: 1, opened: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	h.window.Store(defaultWindow)
	h.clientWindow.Store(defaultWindow)
	h.up.begin(h, &c.down, &c.up, true)
	h.down.begin(h, &c.up, &c.down, false)
	if err := c.connectUp(); err != nil {
		h.fail(violation(codeInternal, "no upstream"))
		return
	}
	if err := c.up.write([]byte(preface)); err != nil {
		return
	}
	c.in.skip(len(preface))
	h.up.in, c.in = c.in, nil
	c.h2.Store(h)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.half(&h.down)
	}()
	h.half(&h.up)
	<-done
	h.end()
	c.up.close()
}

// half runs one direction. Its end is the end of the other too, after a moment: the
// ends of HTTP/2 say goodbye by GOAWAY, not by half-closing.
func (h *h2conn) half(r *h2half) {
	clean := false
	defer func() {
		if p := recover(); p != nil {
			h.proxy.metrics.inc(metricInternal)
			h.proxy.log.Error("recovered", "panic", p)
		}
		// What the other direction still has on its way to be written must not hang.
		h.ended.Do(func() {
			h.lost = r == &h.down
			close(h.closed)
		})
		if !clean {
			h.conn.cut()
		}
	}()
	if err := r.run(); err != nil {
		h.fail(err)
		return
	}
	// A close at once might cost the other end what has been written to it last.
	if to := r.to.shared.Load(); to != nil && to.CloseWrite() == nil {
		clean = to.SetReadDeadline(time.Now().Add(lingerFor)) == nil
	}
}

// fail tells both ends of a violation.
func (h *h2conn) fail(err error) {
	var v *protocolError
	if !errors.As(err, &v) || h.failed.Swap(true) {
		return
	}
	h.proxy.metrics.inc(metricMalformed)
	h.proxy.log.Debug("connection ended", "error", err)
	h.mu.Lock()
	last := h.lastClient
	h.mu.Unlock()
	deadline := time.Now().Add(time.Second)
	for _, to := range [...]*h2half{&h.up, &h.down} {
		tcp := to.to.shared.Load()
		if tcp == nil || tcp.SetWriteDeadline(deadline) != nil {
			continue
		}
		id := last
		if to == &h.up {
			id = 0
		}
		// A connection without an upstream has not begun yet; if it has, SETTINGS
		// that say nothing do no harm.
		to.enqueue(appendGoAway(nil, id, v.code))
		_ = to.through(appendFrameHeader(nil, frameHeader{kind: frameSettings}), false) // its loss
	}
}

// end reports the calls that the connection took with it.
func (h *h2conn) end() {
	h.conn.cut() // whoever still writes does not for long
	for _, r := range [...]*h2half{&h.up, &h.down} {
		r.writing.Lock()
		r.over = true
		r.writing.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.byClient {
		if s.trial != nil {
			h.abandon(s)
		}
	}
	clear(h.byClient)
	clear(h.byServer)
	for _, r := range [...]*h2half{&h.up, &h.down} {
		putBuffer(r.in)
		r.in = nil
	}
}

// sweep does what is due now and then; see [swept].
func (h *h2conn) sweep(now, idle time.Duration) {
	h.flood.sweep(now)
	h.mu.Lock()
	open, last := len(h.byClient), h.lastClient
	draining := h.proxy.draining.Load()
	tell := draining && !h.goingAway
	h.goingAway = h.goingAway || draining
	h.mu.Unlock()
	if tell {
		h.down.enqueue(appendGoAway(nil, last, codeNone))
		// Not written here: the sweeper must not wait for a client.
		go func() { _ = h.down.flush() }()
	}
	if open == 0 && (draining && !tell || idle >= h.proxy.cfg.Timeouts.Idle) {
		h.conn.cut()
	}
}

// open makes a stream for the client's new request.
func (h *h2conn) open(id uint32) *h2stream {
	var s *h2stream
	if n := len(h.free); n > 0 {
		s, h.free = h.free[n-1], h.free[:n-1]
	} else {
		s = &h2stream{}
	}
	s.client = id
	h.byClient[id] = s
	return s
}

// assign makes the upstream know of a stream.
func (h *h2conn) assign(s *h2stream) {
	s.server = h.nextServer
	h.nextServer += 2
	h.byServer[s.server] = s
}

// maxFreeStreams bounds the streams kept for reuse.
const maxFreeStreams = 64

// forget drops a stream.
func (h *h2conn) forget(s *h2stream) {
	delete(h.byClient, s.client)
	if s.server != 0 {
		delete(h.byServer, s.server)
	}
	if s.trial != nil {
		s.trial.finish()
		s.trial = nil
	}
	if len(h.free) < maxFreeStreams {
		*s = h2stream{}
		h.free = append(h.free, s)
	}
}

// settle drops a stream if both ends are done with it.
func (h *h2conn) settle(s *h2stream) {
	if s.clientDone && s.serverDone && (s.trial == nil || !s.trial.waiting()) {
		h.forget(s)
	}
}

// h2half is one direction: it reads from one end and writes to the other.
type h2half struct {
	h          *h2conn
	from, to   *sock
	fromClient bool
	in         *buffer

	// The DATA frame under way, if its payload has not come whole.
	left int
	pass bool

	// The header block under way.
	block      []byte
	blockHead  frameHeader
	blockParts int
	inBlock    bool
	// table decodes blocks of a peer that may still use its dynamic table; nil once
	// it has acknowledged that there is none.
	table *hpack.Decoder
	plain []byte // such a block, made anew
	gate  hpackGate

	// dirty: something has been enqueued that stop must flush. touched are the
	// trials' calls whose frames that were.
	dirty   bool
	touched []touch

	// Writing to the other end. What others than this direction's goroutine send
	// goes through pending, which is written before anything that follows.
	writing sync.Mutex
	guard   sync.Mutex // of pending
	pending []byte
	spare   []byte
	// started: the first frame, which must be SETTINGS, has been written.
	started bool
	// partial: what was written last ends in the middle of a DATA frame, whose rest
	// must come before anything else.
	partial bool
	// over: the connection has ended, and what is still to be written is lost.
	over bool
}

// maxPending bounds what may wait to be written beside the stream of frames.
const maxPending = 16 << 20

func (r *h2half) begin(h *h2conn, from, to *sock, fromClient bool) {
	r.h, r.from, r.to, r.fromClient = h, from, to, fromClient
	r.table = hpack.NewDecoder(4096, nil)
	r.table.SetMaxStringLength(h.proxy.cfg.Limits.HeadBytes)
}

// enqueue takes frames to be written; it never waits. flush must follow, without
// the connection's lock.
func (r *h2half) enqueue(frames []byte) {
	r.guard.Lock()
	r.pending = append(r.pending, frames...)
	r.guard.Unlock()
}

// enqueueHeaders is enqueue of a header block.
func (r *h2half) enqueueHeaders(stream uint32, block []byte, end bool) {
	r.guard.Lock()
	r.pending = appendHeaders(r.pending, stream, block, end)
	r.guard.Unlock()
}

// flush writes what was enqueued before, if anything.
func (r *h2half) flush() error {
	r.guard.Lock()
	n := len(r.pending)
	r.guard.Unlock()
	if n == 0 {
		return nil
	}
	return r.through(nil, false)
}

// through writes frames after what was enqueued before; but the first of all are
// those with which the other end begins, and the rest of a frame goes before everything.
// partial: frames end in the middle of one.
func (r *h2half) through(frames []byte, partial bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.over {
		return errClosing
	}
	if !r.started {
		if len(frames) == 0 {
			return nil
		}
		if err := r.to.write(frames); err != nil {
			return err
		}
		r.started, r.partial, frames = true, partial, nil
		if partial {
			return nil
		}
	} else if r.partial {
		if len(frames) == 0 {
			return nil
		}
		if err := r.to.write(frames); err != nil {
			return err
		}
		r.partial, frames = partial, nil
		if partial {
			return nil
		}
	}
	r.guard.Lock()
	first := r.pending
	r.pending, r.spare = r.spare[:0], nil
	r.guard.Unlock()
	defer func() {
		if cap(first) <= largeBuffer {
			r.spare = first
		}
	}()
	if len(first) > maxPending {
		return violation(codeCalm, "too much waits to be sent")
	}
	if len(first) > 0 {
		if err := r.to.write(first); err != nil {
			return err
		}
	}
	if len(frames) == 0 {
		return nil
	}
	r.partial = partial
	return r.to.write(frames)
}

// run passes frames on until the end.
func (r *h2half) run() error {
	for {
		if len(r.in.data()) > 0 {
			if err := r.process(); err != nil {
				if err == errClosing { //nolint:errorlint // returned as it is
					return nil
				}
				return err
			}
		}
		if len(r.in.data()) == 0 {
			if r.in != nil && r.in.w == 0 && r.left == 0 {
				putBuffer(r.in)
				r.in = nil
			}
		} else if !r.in.makeRoom() || len(r.in.data()) > len(r.in.b)/2 {
			r.in = grown(r.in)
			r.in.makeRoom()
		}
		if r.left > smallBuffer && len(r.in.data()) == 0 {
			if r.in == nil || len(r.in.b) < largeBuffer {
				putBuffer(r.in)
				r.in = largeBuffers.Get().(*buffer)
			}
		}
		var err error
		if r.in, err = r.from.read(r.in); err != nil {
			if err == io.EOF { //nolint:errorlint // returned as it is
				return nil
			}
			return err
		}
		r.h.conn.progress.Add(1)
	}
}

// process passes on the frames in r.in, as far as they have come.
func (r *h2half) process() error {
	data := r.in.data()
	start, at := 0, 0 // data[start:at] can be passed on as it is
	for at < len(data) {
		if r.left > 0 {
			n := min(r.left, len(data)-at)
			if r.pass {
				at += n
			} else {
				if err := r.some(data[start:at]); err != nil {
					return err
				}
				at += n
				start = at
			}
			r.left -= n
			continue
		}
		if len(data)-at < frameHeaderSize {
			break
		}
		f := parseFrameHeader(data[at:])
		if err := f.check(maxFrameSize); err != nil {
			return err
		}
		if r.inBlock && (f.kind != frameContinuation || f.stream != r.blockHead.stream) {
			return violation(codeProtocol, "a header block was interrupted")
		}
		if f.kind == frameData {
			whole := len(data)-at >= frameHeaderSize+f.length
			v, err := r.data(f, data[at:], whole)
			if err != nil {
				return err
			}
			if v == verdictWait {
				return r.stop(start, at)
			}
			if v == verdictPass && !r.mustWait() {
				r.left, r.pass = f.length, true
				at += frameHeaderSize
				continue
			}
			if err := r.some(data[start:at]); err != nil {
				return err
			}
			start = at
			switch v {
			case verdictPass:
				if err := r.awaitWindow(); err != nil {
					return err
				}
				r.left, r.pass = f.length, true
				at += frameHeaderSize
				continue
			case verdictTake:
				if err := r.take(f, data[at:at+frameHeaderSize+f.length]); err != nil {
					return err
				}
				at += frameHeaderSize + f.length
			default:
				r.left, r.pass = f.length, false
				at += frameHeaderSize
				if err := r.repay(f.length); err != nil {
					return err
				}
			}
			start = at
			continue
		}
		if len(data)-at < frameHeaderSize+f.length {
			break
		}
		raw := data[at : at+frameHeaderSize+f.length]
		v, err := r.frame(f, raw)
		if err != nil {
			return err
		}
		if v == verdictPass {
			at += len(raw)
			continue
		}
		if err := r.some(data[start:at]); err != nil {
			return err
		}
		if v == verdictTake {
			if err := r.take(f, raw); err != nil {
				return err
			}
		}
		at += len(raw)
		start = at
	}
	return r.stop(start, at)
}

// stop passes on what has been looked at; the rest waits for more.
func (r *h2half) stop(start, at int) error {
	var err error
	if at > start {
		err = r.through(r.in.data()[start:at], r.left > 0 && r.pass)
	}
	r.in.skip(at)
	if err == nil && r.dirty {
		err = r.written()
	}
	return err
}

// some passes on whole frames, or the rest of one with others, as they are.
func (r *h2half) some(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	return r.through(frames, false)
}

// verdict is what becomes of a frame.
type verdict uint8

const (
	verdictPass verdict = iota // it goes on as it stands
	verdictDrop                // it is taken out; of DATA the window is paid back
	verdictTake                // it is dealt with once all before it has been written
	verdictWait                // its rest is needed first
)

// frame looks at a whole frame that is not DATA, and may change it in place.
func (r *h2half) frame(f frameHeader, raw []byte) (verdict, error) {
	switch f.kind {
	case frameHeaders:
		return r.headers(f, raw)
	case frameContinuation:
		if !r.inBlock {
			return verdictDrop, violation(codeProtocol, "CONTINUATION without HEADERS")
		}
		return verdictTake, nil
	case frameReset:
		return r.reset(f, raw)
	case frameSettings:
		return r.settings(f, raw)
	case framePing:
		return verdictPass, r.h.flood.ping()
	case frameGoAway:
		return r.goAway(raw)
	case frameWindowUpdate:
		return r.windowUpdate(f, raw)
	}
	// PRIORITY names streams by numbers that the other end does not have, and
	// is deprecated; of other types a receiver must know to ignore them.
	return verdictDrop, r.h.flood.other()
}

// take deals with a frame that cannot go on as it stands.
func (r *h2half) take(f frameHeader, raw []byte) error {
	switch f.kind {
	case frameHeaders, frameContinuation:
		return r.takeHeaders(f, raw)
	case frameSettings:
		// The other end must be told that there is no table.
		f.length += settingSize
		b := appendFrameHeader(nil, f)
		b = append(b, raw[frameHeaderSize:]...)
		return r.through(append(b, 0, settingTableSize, 0, 0, 0, 0), false)
	case frameData, frameReset:
		return r.takeTrial(f, raw)
	}
	return nil
}

// renumber writes the other end's number of a stream into a frame.
func renumber(raw []byte, id uint32) { binary.BigEndian.PutUint32(raw[5:], id) }

// stream finds the stream of a frame from this end, and its number at the other.
func (r *h2half) stream(id uint32) (s *h2stream, other uint32) {
	if r.fromClient {
		if s = r.h.byClient[id]; s != nil {
			other = s.server
		}
	} else if s = r.h.byServer[id]; s != nil {
		other = s.client
	}
	return s, other
}

// idle reports whether a stream has never been opened.
func (r *h2half) idle(id uint32) bool {
	if r.fromClient {
		return id&1 == 0 || id > r.h.lastClient
	}
	return id&1 == 0 || id >= r.h.nextServer
}

// reset passes on a RST_STREAM.
func (r *h2half) reset(f frameHeader, raw []byte) (verdict, error) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s, other := r.stream(f.stream)
	if s == nil {
		if r.idle(f.stream) {
			return verdictDrop, violation(codeProtocol, "RST_STREAM of an idle stream")
		}
		return verdictDrop, nil
	}
	if r.fromClient && !s.begun {
		if err := h.flood.reset(); err != nil {
			return verdictDrop, err
		}
	}
	if s.trial != nil {
		return verdictTake, nil
	}
	h.forget(s)
	renumber(raw, other)
	return verdictPass, nil
}

// windowUpdate passes on a WINDOW_UPDATE.
func (r *h2half) windowUpdate(f frameHeader, raw []byte) (verdict, error) {
	h := r.h
	n := int64(binary.BigEndian.Uint32(raw[frameHeaderSize:]) & maxWindow)
	if f.stream == 0 {
		if n == 0 {
			return verdictDrop, violation(codeProtocol, "WINDOW_UPDATE of 0")
		}
		if r.fromClient {
			h.window.Add(n)
			signal(h.opened)
			// What the sidecar has spent the upstream must not spend again.
			if debt := min(h.debt.Load(), n); debt > 0 {
				h.debt.Add(-debt)
				if n -= debt; n == 0 {
					return verdictDrop, nil
				}
				binary.BigEndian.PutUint32(raw[frameHeaderSize:], uint32(n))
			}
		}
		return verdictPass, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, other := r.stream(f.stream)
	switch {
	case s == nil && r.idle(f.stream):
		return verdictDrop, violation(codeProtocol, "WINDOW_UPDATE of an idle stream")
	case s == nil:
		return verdictDrop, nil
	case s.trial != nil && r.fromClient && s.trial.up.keeps():
		s.trial.keepWindow(int(n))
		return verdictDrop, nil
	case other == 0:
		return verdictDrop, nil
	}
	renumber(raw, other)
	return verdictPass, nil
}

// settings passes on SETTINGS, changed where the sidecar has a say.
func (r *h2half) settings(f frameHeader, raw []byte) (verdict, error) {
	if f.has(flagAck) {
		r.table = nil
		return verdictPass, nil
	}
	if err := r.h.flood.other(); err != nil {
		return verdictDrop, err
	}
	told := false
	for b := raw[frameHeaderSize:]; len(b) >= settingSize; b = b[settingSize:] {
		value := b[2:settingSize]
		n := binary.BigEndian.Uint32(value)
		switch binary.BigEndian.Uint16(b) {
		case settingTableSize:
			told = true
			n = 0
		case settingEnablePush:
			if n > 1 {
				return verdictDrop, violation(codeProtocol, "push is neither on nor off")
			}
			n = 0
		case settingMaxStreams:
			n = min(n, uint32(r.h.proxy.cfg.Limits.Streams))
		case settingWindow:
			if n > maxWindow {
				return verdictDrop, violation(codeFlowControl, "window too large")
			}
			if r.fromClient {
				r.h.clientWindow.Store(int64(n))
			}
		case settingFrameSize:
			if n < ownFrameSize || n > 1<<24-1 {
				return verdictDrop, violation(codeProtocol, "frame size out of range")
			}
			n = min(n, maxFrameSize)
		}
		binary.BigEndian.PutUint32(value, n)
	}
	if told {
		return verdictPass, nil
	}
	return verdictTake, nil
}

// goAway passes on a GOAWAY with the number that the other end knows.
func (r *h2half) goAway(raw []byte) (verdict, error) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	last := binary.BigEndian.Uint32(raw[frameHeaderSize:]) & maxStreamID
	known := uint32(0)
	if !r.fromClient {
		// Streams that the upstream never got are as good as new to the client.
		known = h.lastClient
		for id, s := range h.byClient {
			if (s.server == 0 || s.server > last) && id <= known {
				known = id - 1
			}
		}
	}
	binary.BigEndian.PutUint32(raw[frameHeaderSize:], known)
	return verdictPass, nil
}

// repay gives the sender of swallowed bytes the connection's window back.
func (r *h2half) repay(n int) error {
	if n == 0 {
		return nil
	}
	r.back().enqueue(appendWindowUpdate(nil, 0, n))
	return r.back().flush()
}

// mustWait reports whether the client's window is used up. A callee that keeps to
// the rules does not use it up, but the sidecar may have spent of it.
func (r *h2half) mustWait() bool { return !r.fromClient && r.h.window.Load() < 0 }

// awaitWindow waits until the client has taken enough for what follows.
func (r *h2half) awaitWindow() error {
	for r.mustWait() {
		select {
		case <-r.h.opened:
		case <-r.h.closed:
			return errClosing
		}
	}
	return nil
}

// back is the direction towards this direction's sender.
func (r *h2half) back() *h2half {
	if r.fromClient {
		return &r.h.down
	}
	return &r.h.up
}
