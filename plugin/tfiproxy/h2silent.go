package tfiproxy

import (
	"errors"
	"net"
	"os"
)

// maxSilent bounds what is kept of a client's frames while its upstream has said nothing.
// Of bodies a client can send no more than its first window before that.
const maxSilent = 256 << 10

// errSilent says that an upstream was there, and went without a word of HTTP/2.
var errSilent = errors.New("the upstream ended the connection before its SETTINGS")

// h2silent is what an upstream that has not begun has been sent: should it end before it
// begins, an h2void answers that in its place, as where there is no upstream.
// The lock for writing towards the upstream guards it.
type h2silent struct {
	frames []byte
	over   bool // the upstream has begun, or too much would have to be kept
}

// note takes down frames that go to the upstream, and reports whether all that have gone
// are still there.
func (s *h2silent) note(h *h2conn, frames []byte) bool {
	if !s.over && (h.heard.Load() || len(s.frames)+len(frames) > maxSilent) {
		s.frames, s.over = nil, true
	}
	if !s.over {
		s.frames = append(s.frames, frames...)
	}
	return !s.over
}

// sendUp writes to the upstream, or to what stands in for it. Errors: errUnwanted, those
// of the latter.
func (h *h2conn) sendUp(frames []byte) error {
	if v := h.void.Load(); v != nil {
		return v.write(frames)
	}
	kept := h.silent.note(h, frames)
	if err := h.up.to.write(frames); err != nil && !kept { // else who reads from it sees its end
		return errUnwanted
	}
	return nil
}

// standIn puts an h2void in the place of an upstream that has ended, by err, without
// having begun, and reports whether it has.
func (h *h2conn) standIn(err error) bool {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return false // it is the sidecar that has ended it
	}
	select {
	case <-h.closed:
		return false // the client has left, so that nobody is to be answered
	default:
	}
	if up := h.conn.up.shared.Load(); up != nil {
		_ = up.Close() // a write to it must not go on
	}
	h.up.writing.Lock()
	defer h.up.writing.Unlock()
	if h.silent.over {
		return false
	}
	v := newH2Void()
	if v.write(h.silent.frames) != nil {
		v.close()
		return false
	}
	h.silent = h2silent{over: true}
	h.void.Store(v)
	select {
	case <-h.closed: // the client may have left before it was there to be closed
		v.close()
	default:
	}
	h.proxy.metrics.inc(metricUpstreamErrors)
	h.conn.listener.tell("HTTP/2 with an upstream", h.conn.target, errSilent)
	return true
}

// read waits for more from this direction's sender.
func (r *h2half) read() (err error) {
	if v := r.h.void.Load(); v != nil && !r.fromClient {
		r.in, err = v.read(r.in)
		return err
	}
	r.in, err = r.from.read(r.in)
	if err == nil || r.fromClient || r.begun || !r.h.standIn(err) {
		return err
	}
	if r.in != nil {
		r.in.r, r.in.w = 0, 0 // the upstream's, half a frame
	}
	return r.read()
}
