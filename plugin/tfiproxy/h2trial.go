package tfiproxy

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// h2trial is a trial's call on its stream. The connection's lock guards it; what
// it wants written it enqueues, and who holds the lock flushes after letting it go.
type h2trial struct {
	*trial
	up, down h2flow
	round    uint32 // tells a timer that was stopped too late
	h2callState
}

// h2callState is what a call begins without.
type h2callState struct {
	h      *h2conn
	s      *h2stream
	grpc   bool
	isHead bool // a HEAD request
	status int  // HTTP status of the answer
	// begun: the answer's head has come. answered: its event has happened.
	begun, answered bool
	// last: the callee has reset the stream behind its whole answer, which is kept back.
	last  bool
	left  int64 // of an announced length; -1: none
	timer *time.Timer
	then  func(*h2trial)
}

// waiting reports whether something is still to be done with the stream, whatever
// its ends say.
func (x *h2trial) waiting() bool {
	return x.up.state != flowing || x.down.state != flowing
}

func (x *h2trial) keepWindow(n int) { x.up.window = min(x.up.window+n, maxWindow) }

// finish reports the call and gives everything back.
func (x *h2trial) finish() {
	x.disarm()
	if x.up.state == waiting {
		x.unsent()
	}
	x.close()
	x.parch(false)
	x.up.drop(&x.h.up)
	x.down.drop(&x.h.down)
	pool := &x.h.proxy.h2trials
	x.reset()
	pool.Put(x)
}

// reset makes x ready for another call, in place; see [trial.close].
func (x *h2trial) reset() {
	x.h2callState = h2callState{}
	for _, f := range [...]*h2flow{&x.up, &x.down} {
		frames := f.frames[:0]
		if cap(frames) > largeBuffer {
			frames = nil
		}
		*f = h2flow{frames: frames}
	}
}

// arm does then with the stream later.
func (x *h2trial) arm(d time.Duration, then func(*h2trial)) {
	x.disarm()
	x.then = then
	h, s, round := x.h, x.s, x.round
	x.timer = time.AfterFunc(d, func() { h.fire(s, x, round) })
}

func (x *h2trial) disarm() {
	x.round++
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
}

// fire is a timer that has run out.
func (h *h2conn) fire(s *h2stream, x *h2trial, round uint32) {
	h.busy.Add(1)
	defer h.busy.Add(-1)
	defer h.rescue()
	if !h.due(s, x, round) {
		return
	}
	if err := h.flush(&h.down); err != nil {
		h.fail(err)
		h.part()
		return
	}
	h.settleLater([]touch{{s, x, round}})
}

// rescue ends a connection whose goroutine panics; it must be deferred.
func (h *h2conn) rescue() {
	if p := recover(); p != nil {
		h.proxy.metrics.inc(metricInternal)
		h.proxy.log.Error("recovered", "panic", p)
		h.conn.cut()
	}
}

// due does what a timer is for, unless that has become idle meanwhile.
func (h *h2conn) due(s *h2stream, x *h2trial, round uint32) bool {
	if h.opens(s, x, round) {
		h.order.Lock()
		defer h.order.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.trial != x || x.round != round {
		return false
	}
	x.timer = nil
	x.then(x)
	return true
}

// opens reports whether a timer will open a stream at the upstream.
func (h *h2conn) opens(s *h2stream, x *h2trial, round uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.trial == x && x.round == round && x.up.state == waiting
}

// settleTouched settles calls of which this direction has dealt with frames, those whose
// answers are whole only once these have been written. Somebody else may be about that,
// towards a client that takes its time; what the client sends does not wait for it.
func (r *h2half) settleTouched() error {
	h := r.h
	whole := h.settleOthers(r.touched)
	r.touched = r.touched[:0]
	switch {
	case len(whole) == 0:
		return nil
	case !r.fromClient:
		if err := r.through(nil); err != nil {
			return err
		}
	default:
		flushed, err := h.down.tryFlush()
		if err != nil {
			return err
		}
		if !flushed {
			go h.settleLater(slices.Clone(whole))
			return nil
		}
	}
	h.settleWhole(whole)
	return nil
}

// settleLater settles calls once their answers, where they are whole, have been written.
func (h *h2conn) settleLater(touched []touch) {
	defer h.rescue()
	whole := h.settleOthers(touched)
	if len(whole) == 0 {
		return
	}
	if err := h.down.through(nil); err != nil {
		h.fail(err)
		h.part()
		return
	}
	h.settleWhole(whole)
}

// settleWhole settles calls whose answers have been written, now.
func (h *h2conn) settleWhole(whole []touch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.proxy.now()
	for _, t := range whole {
		if t.isCurrent() {
			h.settleTrial(t.s)
		}
	}
	h.at = 0
}

// settleOthers settles the calls that have no whole answer, and returns those that have, in
// the same room.
func (h *h2conn) settleOthers(touched []touch) []touch {
	h.mu.Lock()
	defer h.mu.Unlock()
	whole := touched[:0]
	for _, t := range touched {
		switch {
		case !t.isCurrent():
		case t.x.isWhole():
			whole = append(whole, t)
		default:
			h.settle(t.s)
		}
	}
	return whole
}

// isWhole reports whether all of the answer has been enqueued.
func (x *h2trial) isWhole() bool {
	return x.answered && x.s.serverDone && x.down.state == flowing
}

// settleTrial notes what has been delivered, and drops a stream that is over. It
// is called when what was enqueued has been written.
func (h *h2conn) settleTrial(s *h2stream) {
	x := s.trial
	if x.isWhole() {
		x.delivered()
		if x.last {
			h.forget(s)
			return
		}
	}
	h.settle(s)
}

// trialRequest judges a request. taken is false if the stream is an ordinary one.
func (h *h2conn) trialRequest(s *h2stream, block []byte, end bool) (taken bool, err error) {
	p := h.proxy
	x := p.h2trials.Get().(*h2trial)
	x.h, x.s, x.left, x.at = h, s, -1, &h.at
	if err := x.h.fields.index(block); err != nil {
		return false, violation(codeCompression, err.Error())
	}
	method, _ := x.h.fields.Header(":method")
	path, _ := x.h.fields.Header(":path")
	contentType, _ := x.h.fields.Header("content-type")
	x.grpc, x.isHead = isGRPC(contentType), method == "HEAD"
	r := tfi.Request{
		Role: h.conn.listener.role(), Cluster: h.conn.cluster,
		Method: method, Path: path, GRPC: x.grpc, Headers: &x.h.fields,
	}
	g := p.policies.gate.Load()
	if g == nil {
		x.finish()
		return false, nil
	}
	d := x.begin(g, &r)
	block = x.attach(&d, block)
	s.trial = x
	switch {
	case !x.active && !h.up.gate.marked: // else evidence comes off its answer
		h.assign(s)
		h.up.enqueueHeaders(s.server, block, end)
		s.trial = nil
		x.finish()
		if end {
			h.settle(s)
		}
		return true, nil
	case d.Action == tfi.ActionDelay:
		x.up.state = waiting
		x.up.keep(&h.up, x.headers(0, block, end), 0)
		x.up.ended = end
		x.arm(d.Delay, (*h2trial).releaseUp)
	case d.Action == tfi.ActionDrop:
		x.up.state = swallowed
		x.arm(d.Delay, (*h2trial).resetBoth)
	case d.Action == tfi.ActionError:
		x.decided = d
		x.reply()
	case d.Action == tfi.ActionAbort:
		x.resetBoth()
	default:
		h.assign(s)
		h.up.enqueueHeaders(s.server, block, end)
	}
	return true, nil
}

// attach returns the block with the evidence, and whatever else goes along, as decided.
func (x *h2trial) attach(d *tfi.Decision, block []byte) []byte {
	if len(d.Evidence) == 0 && !d.Strip && len(d.TraceParent) == 0 {
		return block
	}
	x.h.out = x.h.fields.appendWithout(x.h.out[:0], &nameEvidence)
	if len(d.Evidence) > 0 {
		x.h.out = appendLiteral(x.h.out, tfi.EvidenceHeader, d.Evidence)
	}
	if len(d.TraceParent) > 0 {
		x.h.out = appendLiteral(x.h.out, "traceparent", d.TraceParent)
	}
	return x.h.out
}

// headers makes frames of a block, to be kept back; they live until the next call. Since
// the other end may wait for a table size by the time that they go on, and another fault
// may have swallowed the block that had it, they have one in any case.
func (x *h2trial) headers(stream uint32, block []byte, end bool) []byte {
	if !isUpdate(block) {
		block = slices.Concat([]byte{tableUpdate}, block)
	}
	x.h.frames = appendHeaders(x.h.frames[:0], stream, block, end)
	return x.h.frames
}

// releaseUp sends a request that was kept back.
func (x *h2trial) releaseUp() {
	s := x.s
	x.h.assign(s)
	for b := x.up.frames; len(b) > 0; {
		f := parseFrameHeader(b)
		renumber(b, s.server)
		b = b[frameHeaderSize+f.length:]
	}
	x.h.up.enqueueKept(x.up.frames)
	x.h.up.enqueue(appendWindowUpdate(nil, s.server, x.up.window))
	x.up.drop(&x.h.up)
	x.up = h2flow{frames: x.up.frames}
}

// takeTrial deals with a whole DATA or RST_STREAM frame of a trial's stream.
func (r *h2half) takeTrial(f frameHeader, raw []byte) error {
	if !r.ofTrial(f, raw) && f.kind == frameData {
		r.repay(f.length)
	}
	return nil
}

// ofTrial is takeTrial, unless a timer was faster and the stream is no more.
func (r *h2half) ofTrial(f frameHeader, raw []byte) bool {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	s, _ := r.stream(f.stream)
	if s == nil || s.trial == nil {
		return false
	}
	r.dealTrial(s, f, raw)
	return true
}

// dealTrial is ofTrial; the lock is held.
func (r *h2half) dealTrial(s *h2stream, f frameHeader, raw []byte) {
	x := s.trial
	r.h.at = r.clock()
	switch {
	case f.kind == frameReset:
		x.broken(r, errorCode(binary.BigEndian.Uint32(raw[frameHeaderSize:])))
	case r.fromClient:
		x.ask(raw, f)
	default:
		x.answerData(raw, f)
	}
	r.h.at = 0
	r.dirty = true
	if s.trial == x { // else it may be another connection's by now
		r.touch(s)
	}
}

// clock is the sidecar's monotonic clock, read once for all that has come at once, and
// again after whatever may have waited.
func (r *h2half) clock() time.Duration {
	if n := r.writes.Load(); r.now == 0 || r.nowWrites != n {
		r.now, r.nowWrites = r.h.proxy.now(), n
	}
	return r.now
}

// touch is a trial's call of which a frame has been dealt with. Its round tells
// whether it is still the same call afterwards.
type touch struct {
	s     *h2stream
	x     *h2trial
	round uint32
}

// isCurrent reports whether the call is still the same; the connection's lock is held.
func (t *touch) isCurrent() bool { return t.s.trial == t.x && t.x.round == t.round }

// touch notes that a frame of a trial's call has been dealt with.
func (r *h2half) touch(s *h2stream) {
	t := touch{s, s.trial, s.trial.round}
	if n := len(r.touched); n == 0 || r.touched[n-1] != t {
		r.touched = append(r.touched, t)
	}
}

// written flushes what all the frames that came at once have let be enqueued, and
// settles what then has been delivered.
func (r *h2half) written() error {
	r.dirty = false
	h := r.h
	if err := h.flush(r); err != nil {
		return err
	}
	if len(r.touched) == 0 {
		return nil
	}
	return r.settleTouched()
}

// ask takes a DATA frame of the request.
func (x *h2trial) ask(raw []byte, f frameHeader) {
	x.s.clientDone = x.s.clientDone || f.has(flagEndStream)
	x.sendUp(raw, f.length)
}

// sendUp passes on frames of a request, as far as they may go on.
func (x *h2trial) sendUp(frames []byte, data int) {
	switch x.up.state {
	case flowing:
		renumber(frames, x.s.server)
		x.h.up.enqueue(frames)
	case waiting:
		x.up.keep(&x.h.up, frames, data)
	default:
		x.h.down.enqueueWindow(data)
	}
}

// trialTrailers passes on a request's trailers.
func (h *h2conn) trialTrailers(s *h2stream, block []byte, end bool) error {
	x := s.trial
	if err := x.h.fields.index(block); err != nil {
		return violation(codeCompression, err.Error())
	}
	s.clientDone = s.clientDone || end
	if block = x.stripped(block); x.up.state == flowing {
		h.up.enqueueHeaders(s.server, block, end)
		return nil
	}
	x.sendUp(x.headers(s.server, block, end), 0)
	return nil
}

// broken deals with a stream that either end has reset.
func (x *h2trial) broken(r *h2half, code errorCode) {
	h, s := x.h, x.s
	if !r.fromClient {
		if s.serverDone && (x.down.state == waiting || x.down.state == pouring) {
			x.follow(code)
			return
		}
		x.lose()
	}
	x.relent()
	other := s.server
	if !r.fromClient {
		other = s.client
	}
	if other != 0 {
		r.enqueue(appendReset(nil, other, code))
	}
	x.settleWindow()
	h.forget(s)
}

// follow lets a reset go after the answer that is kept back, and is whole: its callee
// wants no more of the request (RFC 9113, 8.1).
func (x *h2trial) follow(code errorCode) {
	x.last = true
	x.up.state = swallowed
	x.down.keep(&x.h.down, appendReset(nil, x.s.client, code), 0)
}

// lose is the event of an answer that does not come, because the callee broke.
func (x *h2trial) lose() {
	if x.answered || x.up.state != flowing || x.down.state != flowing {
		return
	}
	x.answered = true
	if d := x.respond(&tfi.Response{Broken: true}); d.Action != tfi.ActionForward {
		x.engine.LetGo(&x.call) // the caller sees a broken call anyhow
	}
}

// relent lets a fault go that was to be made at the end of an answer which does not come
// to it: the client has left, or the callee has broken off, and is told, or tells, that as
// without a fault.
func (x *h2trial) relent() {
	switch x.down.state {
	case holding, discarding, doomed:
		x.engine.LetGo(&x.call)
	}
}

// abandon is the end of a call whose connection has ended.
func (h *h2conn) abandon(s *h2stream) {
	if h.lost.Load() {
		s.trial.lose()
	}
	s.trial.relent()
	s.trial.finish()
	s.trial = nil
}

// settleWindow pays back what was kept and will not be sent.
func (x *h2trial) settleWindow() {
	x.h.down.enqueueWindow(x.up.data)
	x.h.up.enqueueWindow(x.down.data)
	x.up.data, x.down.data = 0, 0
}

// resetBoth ends the stream towards both ends.
func (x *h2trial) resetBoth() {
	s := x.s
	x.h.down.enqueue(appendReset(nil, s.client, codeInternal))
	if s.server != 0 && (!s.serverDone || !s.clientDone) {
		x.h.up.enqueue(appendReset(nil, s.server, codeCancel))
	}
	x.settleWindow()
	x.h.forget(s)
}
