package wasm

import (
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// The callbacks of a host, as little as this filter can do with: Envoy skips
// those that a module does not export, and each that it makes costs.

// created are streams that the host has made and whose request has not come. It
// comes at once, unless something in front of the filter takes its time.
type created struct {
	id, root uint32 // the last one; 0: its request has come
	others   map[uint32]uint32
}

func (c *created) add(id, root uint32) {
	if c.id != 0 {
		if c.others == nil {
			c.others = map[uint32]uint32{}
		}
		c.others[c.id] = c.root
	}
	c.id, c.root = id, root
}

// take returns the root of a stream; 0: it is not among them.
func (c *created) take(id uint32) (root uint32) {
	if c.id == id {
		c.id = 0
		return c.root
	}
	root = c.others[id]
	delete(c.others, id)
	return root
}

// contextCreate takes note of a new root (its parent is 0) or stream. A stream of
// no trial leaves no trace.
func (v *vm) contextCreate(id, parent uint32) {
	if parent == 0 {
		v.roots[id] = &root{vm: v, id: id}
		return
	}
	v.created.add(id, parent)
}

// rootOf returns the root that a new stream belongs to; nil: it is gone.
func (v *vm) rootOf(id uint32) *root {
	parent := v.created.take(id)
	if v.newest != nil && v.newest.id == parent {
		return v.newest
	}
	return v.roots[parent]
}

// done takes leave of a stream or of a root.
func (v *vm) done(id uint32) {
	if s := v.find(id); s != nil {
		s.done()
	} else if r := v.roots[id]; r != nil {
		r.done()
	} else {
		v.created.take(id) // its request never came
	}
}

// find returns the stream of a trial; nil: it is of none.
func (v *vm) find(id uint32) *stream {
	if s := v.recent; s != nil && s.id == id {
		return s
	}
	s := v.streams[id]
	if s != nil {
		v.recent = s
	}
	return s
}

// configure gives a root its policy.
func (v *vm) configure(rootID uint32) {
	host.Release()
	if r := v.roots[rootID]; r != nil {
		r.configure()
	}
}

func (v *vm) tick(rootID uint32) {
	host.Release()
	if r := v.roots[rootID]; r != nil {
		r.onTick()
	}
}

// callAnswered takes the answer to a call of a root; no headers: there was none.
func (v *vm) callAnswered(rootID uint32, numHeaders int) {
	defer func() {
		if p := recover(); p != nil {
			v.caught("answer of a call", p)
		}
	}()
	host.Release()
	v.reports.answered(rootID, numHeaders)
	v.metrics.flush() // no tick need come after it
}

func (v *vm) requestHeaders(id uint32) (a action) {
	r := v.rootOf(id)
	if r == nil || r.engine == nil {
		return goOn
	}
	host.Release()
	s := v.begin(r, id)
	defer s.recovered(inRequest, &a)
	a = s.onRequest()
	if s.call.Active() {
		v.streams[id] = s
	} else {
		v.recycle(s)
	}
	return a
}

// requestTrailers takes off evidence, which no sidecar puts there.
func (v *vm) requestTrailers() action {
	v.strip(host.RequestTrailers)
	return goOn
}

func (v *vm) responseHeaders(id uint32, end bool) (a action) {
	s := v.find(id)
	if s == nil {
		v.strip(host.ResponseHeaders)
		return goOn
	}
	if s.response == replaced {
		return goOn
	}
	host.Release()
	defer s.recovered(inAnswer, &a)
	return s.onResponseHeaders(end)
}

// strip takes evidence off where it is nobody's: off request trailers, and off an answer
// of no trial. Its request was marked, or it would not have come here.
func (v *vm) strip(m host.HeaderMap) {
	defer func() {
		if p := recover(); p != nil {
			v.caught("evidence of nobody", p)
		}
	}()
	if err := host.Remove(m, tfi.EvidenceHeader); err != nil {
		v.problem("header", err)
	}
}

func (v *vm) responseBody(id uint32, size int, end bool) (a action) {
	s := v.find(id)
	if s == nil || s.response == replaced {
		return goOn
	}
	host.Release()
	defer s.recovered(inAnswer, &a)
	return s.onResponseBody(size, end)
}

func (v *vm) responseTrailers(id uint32) (a action) {
	s := v.find(id)
	if s == nil {
		v.strip(host.ResponseTrailers)
		return goOn
	}
	if s.response == replaced {
		return goOn
	}
	host.Release()
	defer s.recovered(inAnswer, &a)
	return s.onResponseTrailers()
}

// done reports the call, whose stream is gone.
func (s *stream) done() {
	var a action
	defer s.recovered(gone, &a)
	s.unpause()
	s.onDone()
	s.root.vm.forget(s)
	s.root.vm.recycle(s)
}

// place is where in a stream's life a callback is.
type place uint8

const (
	nowhere   place = iota // outside of it: a timer
	inRequest              // what it answers decides about the request
	inAnswer               // the same of the answer
	gone                   // nothing is left of the stream
)

// recovered is deferred by every callback: whatever goes wrong in here must not
// cost the application its request. It forwards from now on.
func (s *stream) recovered(at place, a *action) {
	v := s.root.vm
	if r := recover(); r != nil {
		v.caught("stream", r)
		*a = s.abandon(at)
	}
	if m := v.metrics; m != nil && m.pending {
		s.root.tick() // to tell the host
	}
}

// abandon leaves the stream to itself. A direction that is stopped goes on by
// what is returned for the callback that failed, or here: Envoy would send it on twice
// if both did. An answer of which something was thrown away cannot be forwarded.
func (s *stream) abandon(at place) action {
	s.root.vm.forget(s)
	s.unpause()
	request, response := s.request, s.response
	s.request, s.response = flowing, flowing
	if at == gone {
		return goOn
	}
	if response == discarding || response == swallowed {
		host.Reset()
		return pauseHeaders
	}
	if at != inRequest && (request == waiting || request == swallowed) {
		_ = host.Resume(host.Request) // best effort
	}
	if at != inAnswer && (response == waiting || response == holding) {
		_ = host.Resume(host.Response) // best effort
	}
	return goOn
}

// maxFreeStreams bounds the streams kept for later ones.
const maxFreeStreams = 256

// begin returns a stream.
func (v *vm) begin(r *root, id uint32) *stream {
	var s *stream
	if n := len(v.free); n > 0 {
		s = v.free[n-1]
		v.free = v.free[:n-1]
	} else {
		s = &stream{call: new(tfi.Call)}
	}
	*s = stream{root: r, id: id, call: s.call, length: -1, contentType: s.contentType[:0]}
	return s
}

// forget makes later callbacks pass a stream by.
func (v *vm) forget(s *stream) {
	delete(v.streams, s.id)
	if v.recent == s {
		v.recent = nil
	}
}

// recycle keeps the buffers of a stream that nobody knows any more.
func (v *vm) recycle(s *stream) {
	if len(v.free) < maxFreeStreams {
		v.free = append(v.free, s)
	}
}
