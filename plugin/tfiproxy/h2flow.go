package tfiproxy

// h2flow is one direction of a trial's call.
type h2flow struct {
	state   flowState
	frames  []byte // kept back, from at on
	at      int
	data    int  // of which bytes of DATA, padding included
	ended   bool // the last frame has come
	window  int  // of the client, kept back with a request
	parched bool // the client's window decides when it goes on
}

type flowState uint8

const (
	flowing    flowState = iota
	waiting              // kept until the timer
	holding              // an answer kept until its end, which decides
	discarding           // the same, but thrown away
	swallowed            // thrown away; the timer resets the stream
	doomed               // streams on, and is reset at its end
	pouring              // an answer that goes on as far as the client's window does
)

// maxKept bounds what the calls of a connection keep back in a direction: then nothing is
// read of it any more, until something has gone on. All that is kept may wait to be
// written at once (maxPending).
const maxKept = maxPending / 2

func (f *h2flow) keeps() bool { return f.state == waiting || f.state == holding }

// kept is how many bytes are kept back.
func (f *h2flow) kept() int { return len(f.frames) - f.at }

// keep keeps frames back, with that much DATA in them.
func (f *h2flow) keep(r *h2half, frames []byte, data int) {
	if f.at > len(f.frames)/2 {
		f.frames, f.at = f.frames[:copy(f.frames, f.frames[f.at:])], 0
	}
	f.frames = append(f.frames, frames...)
	f.data += data
	r.kept += len(frames)
}

// drop forgets what is kept back.
func (f *h2flow) drop(r *h2half) {
	r.leave(f.kept())
	f.frames, f.at, f.data = f.frames[:0], 0, 0
}

// leave makes room for others.
func (r *h2half) leave(n int) {
	if n > 0 {
		r.kept -= n
		signal(r.room)
	}
}

// isFull reports whether that much more must not be kept back. The connection's lock is
// held.
func (r *h2half) isFull(n int) bool {
	r.full = r.kept+frameHeaderSize+n > maxKept
	if r.full && r.room == nil {
		r.room = make(chan struct{}, 1)
	}
	return r.full
}

// awaitRoom waits until something that is kept back has gone, and reports whether it has:
// else the connection has ended. Nobody else's lock is held meanwhile.
func (r *h2half) awaitRoom() bool {
	r.full = false
	select {
	case <-r.room:
		return true
	case <-r.h.closed:
		return false
	}
}

// keepsBack reports whether a DATA frame of that length would be kept back.
func (x *h2trial) keepsBack(r *h2half, n int) bool {
	if r.fromClient {
		return x.up.state == waiting
	}
	switch x.down.state {
	case waiting, pouring:
		return true
	case flowing, doomed:
		return !x.passes(n)
	}
	return false
}

// passes reports whether that much DATA of the answer can go on at once. A callee that keeps
// to the rules does not use the client's window up, but the sidecar may have spent of it.
func (x *h2trial) passes(n int) bool {
	return x.down.kept() == 0 && (n == 0 || int64(n) <= x.h.window.Load())
}

// send passes on frames of the answer, at once or when the client's window takes them.
func (x *h2trial) send(frames []byte, data int) {
	if x.passes(data) {
		x.h.window.Add(-int64(data))
		x.h.down.enqueueKept(frames)
		return
	}
	x.down.keep(&x.h.down, frames, data)
	if x.down.state == flowing {
		x.down.state = pouring
	}
	x.parch(true)
}

// pour sends what the client's window takes of what is kept back.
func (x *h2trial) pour() {
	f, h := &x.down, x.h
	from := f.at
	for f.kept() > 0 {
		head := parseFrameHeader(f.frames[f.at:])
		if head.kind == frameData {
			n := int64(head.length)
			if n > max(h.window.Load(), 0) {
				break
			}
			h.window.Add(-n)
			f.data -= head.length
		}
		f.at += frameHeaderSize + head.length
	}
	if f.at > from {
		h.down.enqueueKept(f.frames[from:f.at])
		h.down.leave(f.at - from)
	}
	if f.kept() == 0 {
		f.frames, f.at = f.frames[:0], 0
		if f.state == pouring {
			f.state = flowing
		}
	}
	x.parch(f.kept() > 0)
}

// parch notes whether the call waits for the client's window.
func (x *h2trial) parch(is bool) {
	switch {
	case is && !x.down.parched:
		x.h.parched++
	case !is && x.down.parched:
		x.h.parched--
	}
	x.down.parched = is
}

// water lets calls go on whose answers waited for the client's window; stop must follow.
// The connection's lock is held.
func (r *h2half) water() {
	if r.h.parched == 0 {
		return
	}
	for _, s := range r.h.byClient {
		x := s.trial
		if x != nil && x.down.parched && (x.down.state == pouring || x.down.state == doomed) {
			x.pour()
			r.touch(s)
			r.dirty = true
		}
	}
}
