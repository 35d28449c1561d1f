package tfiproxy

import (
	"errors"
	"slices"
	"sync"
)

// maxPending bounds what may wait to be written beside the stream of frames, while the
// other end has not begun, too.
const maxPending = 16 << 20

// gatherBytes is how much is rather copied than written by itself: a write costs
// what copying some ten thousand bytes does.
const gatherBytes = 16 << 10

// outgoing is what waits to be written. A connection has one only while there is
// something.
type outgoing struct{ b []byte }

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

func (o *outgoing) put() {
	if cap(o.b) <= largeBuffer {
		o.b = o.b[:0]
		outgoings.Put(o)
	}
}

// waiting returns what is to be written; guard is held.
func (r *h2half) waiting() *outgoing {
	if r.pending == nil {
		r.pending = outgoings.Get().(*outgoing)
	}
	return r.pending
}

// mayWait reports whether that much more may wait; if not, the next flush fails. guard is
// held.
func (r *h2half) mayWait(n int) bool {
	r.excess = r.excess || r.pending != nil && len(r.pending.b)+n > maxPending
	return !r.excess
}

// enqueue takes frames to be written; it never waits. flush must follow, without
// the connection's lock.
func (r *h2half) enqueue(frames []byte) {
	r.guard.Lock()
	defer r.guard.Unlock()
	if r.mayWait(len(frames)) {
		o := r.waiting()
		o.b = append(o.b, frames...)
	}
}

// enqueueWindow gives that much of the connection's window back to the end that this
// direction writes to. What waits is one number, however often it is called.
func (r *h2half) enqueueWindow(n int) {
	r.guard.Lock()
	r.credit = min(r.credit+n, maxWindow)
	r.guard.Unlock()
}

// enqueueHeaders is enqueue of a header block.
func (r *h2half) enqueueHeaders(stream uint32, block []byte, end bool) {
	if r.owesUpdate {
		r.owesUpdate = false
		if !isUpdate(block) {
			block = slices.Concat([]byte{tableUpdate}, block)
		}
	}
	r.guard.Lock()
	defer r.guard.Unlock()
	if r.mayWait(len(block)) {
		o := r.waiting()
		o.b = appendHeaders(o.b, stream, block, end)
	}
}

// enqueueKept is enqueue of frames that were kept back; each header block in them begins
// with a table size, see [h2trial.headers].
func (r *h2half) enqueueKept(frames []byte) {
	for b := frames; r.owesUpdate && len(b) > 0; {
		f := parseFrameHeader(b)
		r.owesUpdate = f.kind != frameHeaders
		b = b[frameHeaderSize+f.length:]
	}
	r.enqueue(frames)
}

// put writes; the sweeper sees for how long. Errors: errUnwanted towards the
// upstream, which may have said why.
func (r *h2half) put(b []byte) error {
	r.writes.Add(1)
	defer r.writes.Add(1)
	if r.fromClient {
		return r.h.sendUp(b)
	}
	return r.to.write(b)
}

// flush writes what was enqueued before, if anything.
func (r *h2half) flush() error {
	if !r.isWaiting() {
		return nil
	}
	return r.through(nil)
}

// flushBack is flush of the other direction, whose own goroutine sees an upstream that
// takes no more.
func (r *h2half) flushBack() error {
	if err := r.back().flush(); !errors.Is(err, errUnwanted) {
		return err
	}
	return nil
}

// through writes frames after what was enqueued before; but the first of all are
// those with which the other end begins.
func (r *h2half) through(frames []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.throughLocked(frames)
}

// tryFlush is flush, unless somebody else is writing: then flushed is false.
func (r *h2half) tryFlush() (flushed bool, err error) {
	if !r.writing.TryLock() {
		return false, nil
	}
	defer r.writing.Unlock()
	return true, r.throughLocked(nil)
}

// throughLocked is through; the lock for writing is held.
func (r *h2half) throughLocked(frames []byte) error {
	if r.over {
		return errClosing
	}
	if r.isExcessive() {
		return violation(codeCalm, "too much waits to be sent")
	}
	if !r.started {
		if len(frames) == 0 {
			return nil
		}
		if err := r.put(frames); err != nil {
			return err
		}
		r.started = true
		frames = nil
	}
	if first := r.takeWaiting(); first != nil {
		defer first.put()
		together := len(frames) <= gatherBytes
		if together {
			first.b = append(first.b, frames...)
		}
		if err := r.put(first.b); err != nil {
			return err
		}
		if together {
			return nil
		}
	}
	if len(frames) == 0 {
		return nil
	}
	return r.put(frames)
}

// farewell writes what was enqueued and then the last frame.
func (r *h2half) farewell(frame []byte) {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.over {
		return
	}
	r.over = true
	var b []byte
	if !r.started {
		b = appendFrameHeader(b, frameHeader{kind: frameSettings})
	}
	if first := r.takeWaiting(); first != nil && !r.isExcessive() {
		b = append(b, first.b...)
	}
	_ = r.put(append(b, frame...)) // its loss
}

// isWaiting reports whether something has been enqueued and not written.
func (r *h2half) isWaiting() bool {
	r.guard.Lock()
	defer r.guard.Unlock()
	return r.pending != nil || r.credit > 0
}

// isExcessive reports whether more was to wait than may.
func (r *h2half) isExcessive() bool {
	r.guard.Lock()
	defer r.guard.Unlock()
	return r.excess
}

// takeWaiting returns what is to be written now; nil: nothing.
func (r *h2half) takeWaiting() *outgoing {
	r.guard.Lock()
	defer r.guard.Unlock()
	if r.credit > 0 {
		o := r.waiting()
		o.b = appendWindowUpdate(o.b, 0, r.credit)
		r.credit = 0
	}
	first := r.pending
	r.pending = nil
	return first
}

// gather lets whole frames wait for those that came at once with them, and reports
// whether they may.
func (r *h2half) gather(frames []byte) bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	if !r.started || len(frames) > gatherBytes {
		return false
	}
	r.enqueue(frames)
	r.dirty = true
	return true
}
