package tfiproxy

import (
	"encoding/binary"
)

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
	s.clientReset = s.clientReset || r.fromClient
	if r.fromClient && !s.begun {
		if err := r.flood.reset(); err != nil {
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
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.stream == 0 {
		if n == 0 {
			return verdictDrop, violation(codeProtocol, "WINDOW_UPDATE of 0")
		}
		if r.fromClient {
			h.window.Add(n)
			signal(h.opened)
			r.water()
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
		if r.table != nil {
			r.table = nil
			r.h.mu.Lock()
			r.owesUpdate = true
			r.h.mu.Unlock()
		}
		return verdictPass, nil
	}
	if err := r.flood.other(); err != nil {
		return verdictDrop, err
	}
	var table, push, streams bool // told
	for b := raw[frameHeaderSize:]; len(b) >= settingSize; b = b[settingSize:] {
		value := b[2:settingSize]
		n := binary.BigEndian.Uint32(value)
		switch binary.BigEndian.Uint16(b) {
		case settingTableSize:
			table = true
			n = 0
		case settingEnablePush:
			if n > 1 {
				return verdictDrop, violation(codeProtocol, "push is neither on nor off")
			}
			push = true
			n = 0
		case settingMaxStreams:
			streams = true
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
			if to := r.back(); n > to.frameLimit.Load() { // what is on its way may be larger than a new limit
				to.frameLimit.Store(n)
			}
		}
		binary.BigEndian.PutUint32(value, n)
	}
	first := !r.settled
	r.settled = true
	r.unsaid = r.unsaid[:0]
	if !table {
		r.unsaid = appendSetting(r.unsaid, settingTableSize, 0)
	}
	if first && r.fromClient && !push {
		// A pushed stream would have a number of the callee's.
		r.unsaid = appendSetting(r.unsaid, settingEnablePush, 0)
	}
	if first && !r.fromClient && !streams {
		r.unsaid = appendSetting(r.unsaid, settingMaxStreams, uint32(r.h.proxy.cfg.Limits.Streams))
	}
	if len(r.unsaid) == 0 {
		return verdictPass, nil
	}
	return verdictTake, nil
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}

// goAway passes on a GOAWAY with the number that the other end knows.
func (r *h2half) goAway(raw []byte) (verdict, error) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	last := binary.BigEndian.Uint32(raw[frameHeaderSize:]) & maxStreamID
	known := uint32(0)
	switch {
	case r.fromClient:
	case last == maxStreamID:
		// It will go, and takes what is on its way.
		known = last
	default:
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

// repay gives the sender of swallowed bytes the connection's window back; stop must
// follow.
func (r *h2half) repay(n int) {
	r.back().enqueueWindow(n)
	r.dirty = true
}

// mustWait reports whether the client's window is used up. A callee that keeps to
// the rules does not use it up, but the sidecar may have spent of it.
func (r *h2half) mustWait() bool { return !r.fromClient && r.h.window.Load() < 0 }

// awaitWindow waits until the client has taken enough for what follows.
func (r *h2half) awaitWindow() error {
	for r.mustWait() {
		if r.dirty { // the client may wait for just this
			if err := r.written(); err != nil {
				return err
			}
		}
		select {
		case <-r.h.opened:
		case <-r.h.closed:
			return errClosing
		}
		r.now = 0
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
