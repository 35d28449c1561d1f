package tfiproxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
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

	// order is held from where a client's new streams get their numbers to where their
	// frames are on their way: numbers must go up on the wire too. It is taken before mu.
	order    sync.Mutex
	mu       sync.Mutex
	byClient map[uint32]*h2stream
	byServer map[uint32]*h2stream
	free     []*h2stream
	// lastClient is the highest stream that the client has opened, nextServer the
	// next that we open.
	lastClient, nextServer uint32
	// finished are the streams that the client has ended last, since it may send no
	// more on those.
	finished   [32]finishedStream
	finishedAt uint8
	// fields are those of the trial's block that is being dealt with, out is the one made of
	// it, and frames are what it is kept back in.
	fields      h2fields
	out, frames []byte
	// at is the instant of what is being dealt with; 0: nobody has said.
	at time.Duration
	// goingAway: the client has been told to open no more streams.
	goingAway bool

	// window is what the client still takes of the connection's flow, and debt what
	// of that the sidecar has spent on answers of its own.
	window atomic.Int64
	debt   atomic.Int64
	opened chan struct{} // has one element after the window has grown
	// parched is how many calls keep something of an answer back until it grows; mu guards it.
	parched int
	closed  chan struct{} // closed once either direction has ended
	ended   sync.Once
	failed  atomic.Bool
	// lost: the upstream's side ended first. retired: the sweeper has ended it, with nothing
	// under way.
	lost, retired atomic.Bool
	// busy is how many deal with what has come, or is due, and may still have to write some
	// of it: their streams may be over already.
	busy atomic.Int32
	// void stands in for an upstream that cannot be reached, or has ended before it began;
	// nil: there is one.
	void   atomic.Pointer[h2void]
	silent h2silent
	heard  atomic.Bool // the upstream has begun
	// clientWindow is the client's initial window of a stream.
	clientWindow atomic.Int64
}

// h2stream is a call under way. Its fields are guarded by its connection's mu.
type h2stream struct {
	client, server uint32 // server is 0 while the upstream does not know of it
	clientDone     bool
	clientReset    bool
	serverDone     bool
	begun          bool     // the answer has
	trial          *h2trial // nil: of no trial
}

// finishedStream is a stream that the client has ended, or reset.
type finishedStream struct {
	id    uint32
	reset bool
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
	err := c.connectUp(true) // whoever has sent its end in HTTP/2 has left
	switch {
	case errors.Is(err, errClientGone):
		return // whose requests have not been looked at
	case err != nil:
		h.void.Store(newH2Void())
	default:
		_ = c.up.write([]byte(preface)) // who reads from it sees its end
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
	if h.lingers() {
		c.down.linger()
	}
}

// half runs one direction. Its end is the end of the other too, after a moment: the
// ends of HTTP/2 say goodbye by GOAWAY, not by half-closing.
func (h *h2conn) half(r *h2half) {
	clean, lost := false, r == &h.down
	defer func() {
		if p := recover(); p != nil {
			h.proxy.metrics.inc(metricInternal)
			h.proxy.log.Error("recovered", "panic", p)
		}
		h.over(lost)
		if !clean {
			h.part()
		}
	}()
	err := r.run()
	if up := h.conn.up.shared.Load(); up != nil && errors.Is(err, errUnwanted) {
		// What the upstream has said before still goes on.
		lost = true
		clean = up.SetReadDeadline(time.Now().Add(lingerFor)) == nil
		return
	}
	if err != nil {
		h.fail(err)
		return
	}
	if r == &h.up && h.closeVoid() {
		clean = true
		return
	}
	h.over(lost) // before the other end can know of it
	// A close at once might cost the other end what has been written to it last.
	if to := r.to.shared.Load(); to != nil && r.to.closeWrite() == nil {
		clean = to.SetReadDeadline(time.Now().Add(lingerFor)) == nil
	}
}

// over notes that a direction has ended; lost: it is the upstream's. What the other one
// still has on its way to be written must not hang.
func (h *h2conn) over(lost bool) {
	h.ended.Do(func() {
		h.lost.Store(lost && !h.conn.left.Load()) // else the sidecar has cut both
		close(h.closed)
	})
}

// fail tells both ends of a violation.
func (h *h2conn) fail(err error) {
	var v *protocolError
	if !errors.As(err, &v) || h.failed.Swap(true) {
		return
	}
	h.proxy.metrics.inc(metricMalformed)
	if v.code == codeCalm {
		h.proxy.metrics.inc(metricFloods)
	}
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
		to.farewell(appendGoAway(nil, id, v.code))
	}
}

// lingers reports whether the client may still hear something: a connection that is
// closed on what the client still sends would be reset.
func (h *h2conn) lingers() bool { return h.failed.Load() || h.lost.Load() || h.retired.Load() }

// retire ends a connection with nothing under way: as if there were nothing more to read of
// its client, which may still be taking what has been written to it last.
func (h *h2conn) retire() {
	if h.lingers() {
		return // it is about to end
	}
	h.conn.left.Store(true)
	h.retired.Store(true)
	if down := h.conn.down.shared.Load(); down != nil {
		_ = down.SetReadDeadline(time.Unix(1, 0)) // as in part
	}
}

// part ends both directions, the client's such that it hears what was said last.
func (h *h2conn) part() {
	if !h.lingers() {
		h.conn.cut()
		return
	}
	h.closeVoid()
	if up := h.conn.up.shared.Load(); up != nil {
		_ = up.Close() // the owner sees it and ends
	}
	if down := h.conn.down.shared.Load(); down != nil {
		_ = down.SetReadDeadline(time.Unix(1, 0)) // it can only fail if the read does
	}
}

// end reports the calls that the connection took with it.
func (h *h2conn) end() {
	h.part() // whoever still writes does not for long
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
	h.up.flood.sweep(now)
	h.down.flood.sweep(now)
	if t := &h.proxy.cfg.Timeouts; h.up.overdue(now, t) || h.down.overdue(now, t) {
		h.proxy.metrics.inc(metricTimeouts)
		h.conn.cut()
		return
	}
	if !h.mu.TryLock() {
		return // the next tick does; nobody may keep the sweeper
	}
	underWay, last := len(h.byClient) > 0 || h.busy.Load() > 0, h.lastClient
	draining := h.proxy.draining.Load()
	tell := draining && !h.goingAway
	h.goingAway = h.goingAway || draining
	h.mu.Unlock()
	if tell {
		h.down.enqueue(appendGoAway(nil, last, codeNone))
		// Not written here: the sweeper must not wait for a client.
		go func() { _ = h.down.flush() }()
	}
	if !underWay && (draining && !tell || idle >= h.proxy.cfg.Timeouts.Idle) {
		h.retire()
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
	if s.clientDone || s.clientReset {
		h.finished[h.finishedAt] = finishedStream{s.client, s.clientReset}
		h.finishedAt = (h.finishedAt + 1) % uint8(len(h.finished))
	}
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

// dealt ends what has been done with a block of a trial.
func (h *h2conn) dealt() {
	h.at = 0
	h.fields.forget()
	h.out, h.frames = little(h.out), little(h.frames)
}

// settle drops a stream if both ends are done with it.
func (h *h2conn) settle(s *h2stream) {
	if s.clientDone && s.serverDone && (s.trial == nil || !s.trial.waiting()) {
		h.forget(s)
	}
}
