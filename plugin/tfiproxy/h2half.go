package tfiproxy

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

// errHTTP1 says that a client's protocol is not its upstream's. Nothing is translated.
var errHTTP1 = errors.New("the upstream speaks HTTP/1 only: do not offer it h2 (alpn)")

// h2half is one direction: it reads from one end and writes to the other.
type h2half struct {
	h          *h2conn
	from, to   *sock
	fromClient bool
	in         *buffer
	// begun: the sender's SETTINGS, which must come first (RFC 9113, 3.4), have come.
	begun bool
	// settled: they have been passed on. unsaid is what the SETTINGS under way do not
	// say, and the other end must be told.
	settled bool
	unsaid  []byte

	flood h2flood // of the sender

	// frameLimit is the size of the largest frame that the sender has been allowed.
	frameLimit atomic.Uint32

	// The DATA frame under way, if its payload has not come whole: how much is still to come,
	// and whether it is passed on. What has come at once goes on as a frame of its own, so
	// that the other end never waits in the middle of one; rest is the header of the last.
	left int
	pass bool
	rest frameHeader

	// The header block under way.
	block      []byte
	blockHead  frameHeader
	blockParts int
	inBlock    bool
	// table decodes blocks of a peer that may still use its dynamic table; nil once
	// it has acknowledged that there is none.
	table *hpack.Decoder
	plain []byte // such a block, made anew
	// owesUpdate: the other end waits for a block that begins with a table size. The
	// sender's first one does, but a fault may swallow that or keep it back. The
	// connection's lock guards it.
	owesUpdate bool
	gate       hpackGate
	// looked: the block under way is one frame, and wanted tells whether it may
	// belong to a trial.
	looked, wanted bool

	// kept is how much calls of trials keep back. full: no more may be, so that nothing is
	// read until room says that some has gone. The connection's lock guards kept, and
	// room's making.
	kept int
	full bool
	room chan struct{}

	// alone: nothing that came before the frame under way is still to be passed on, so that
	// a trial's can be dealt with where it is looked at: the lock is taken once.
	alone bool
	// dirty: something has been enqueued that stop must flush. touched are the
	// trials' calls whose frames that were.
	dirty   bool
	touched []touch
	// now is what the clock said when there had been nowWrites writes; 0: that is long ago.
	now       time.Duration
	nowWrites uint32

	// Writing to the other end. What others than this direction's goroutine send
	// goes through pending, which is written before anything that follows.
	writing sync.Mutex
	guard   sync.Mutex // of the next three
	pending *outgoing  // nil: nothing
	credit  int        // a WINDOW_UPDATE of the connection, made when it is written
	excess  bool       // more was to wait than may
	// started: the first frame, which must be SETTINGS, has been written.
	started bool
	// They are odd while something is being written, in the middle of a header block, and
	// while the rest of a DATA frame is waited for, or of another. A new frame, and each
	// piece of a DATA frame, has a number of its own. The watches are the sweeper's.
	writes, blocks, bodies, heads                atomic.Uint32
	watchWrite, watchBlock, watchBody, watchHead watch
	// over: the connection has ended, and what is still to be written is lost.
	over bool
}

// watch tells for how long a counter has stood at the same odd number.
type watch struct {
	seen  uint32
	since time.Duration
}

func (w *watch) stands(n uint32, now time.Duration) time.Duration {
	if n&1 == 0 || n != w.seen {
		w.seen, w.since = n, now
	}
	return now - w.since
}

// overdue reports whether the other end takes nothing, or this one keeps the rest of
// a frame or of a header block back. Windows do not count: who does not open them reads on.
func (r *h2half) overdue(now time.Duration, t *Timeouts) bool {
	write, block := r.watchWrite.stands(r.writes.Load(), now), r.watchBlock.stands(r.blocks.Load(), now)
	body, head := r.watchBody.stands(r.bodies.Load(), now), r.watchHead.stands(r.heads.Load(), now)
	return write >= t.Stall || body >= t.Stall || block >= t.Head || head >= t.Head
}

// set makes a watched number odd, or even; anew: it is not the one from before.
func set(n *atomic.Uint32, odd, anew bool) {
	switch is := n.Load()&1 == 1; {
	case is != odd:
		n.Add(1)
	case odd && anew:
		n.Add(2)
	}
}

// awaits notes what is waited for, now that the first at bytes of what has come have been
// dealt with. Nothing is of the sender while it is not read from.
func (r *h2half) awaits(at int) {
	data := r.in.data()[at:]
	isData := len(data) >= frameHeaderSize && frameType(data[3]) == frameData
	set(&r.bodies, r.left > 0 || isData && !r.full, true)
	set(&r.heads, r.left == 0 && len(data) > 0 && !isData, at > 0)
	r.h.busy.Add(-1)
}

// comes notes that something has come: what becomes of it now takes the time that it
// takes.
func (r *h2half) comes() {
	r.now = 0
	r.h.busy.Add(1)
	set(&r.bodies, false, false)
	data := r.in.data()
	if len(data) >= frameHeaderSize && (frameType(data[3]) == frameData || len(data) >= frameHeaderSize+parseFrameHeader(data).length) {
		set(&r.heads, false, false)
	}
}

func (r *h2half) begin(h *h2conn, from, to *sock, fromClient bool) {
	r.h, r.from, r.to, r.fromClient = h, from, to, fromClient
	r.frameLimit.Store(ownFrameSize)
	r.table = hpack.NewDecoder(4096, nil)
	r.table.SetMaxStringLength(h.proxy.cfg.Limits.HeadBytes)
}

// run passes frames on until the end.
func (r *h2half) run() error {
	for {
		if len(r.in.data()) > 0 {
			if err := r.processInOrder(); err != nil {
				if err == errClosing { //nolint:errorlint // returned as it is
					return nil
				}
				return err
			}
			if r.full {
				if !r.awaitRoom() {
					return nil
				}
				continue
			}
		}
		r.makeRoom()
		if err := r.read(); err != nil {
			if err == io.EOF { //nolint:errorlint // returned as it is
				return nil
			}
			return err
		}
		r.h.conn.progress.Add(1)
	}
}

// pieceRoom is room for a frame's header that leaves what is read behind it aligned: with
// nine bytes uploads of 1 MiB took a fifth more.
const pieceRoom = 64

// makeRoom makes room for what comes next, with that for a header before it where it may be
// the next piece of a DATA frame.
func (r *h2half) makeRoom() {
	switch {
	case len(r.in.data()) > 0:
		if !r.in.makeRoom() || len(r.in.data()) > len(r.in.b)/2 {
			r.in = grown(r.in)
			r.in.makeRoom()
		}
	case r.left == 0:
		putBuffer(r.in)
		r.in = nil
	default:
		if r.left > smallBuffer && len(r.in.b) < largeBuffer {
			putBuffer(r.in)
			r.in = largeBuffers.Get().(*buffer)
		}
		r.in.r, r.in.w = pieceRoom, pieceRoom
	}
}

// processInOrder is process, during which nobody else opens streams.
func (r *h2half) processInOrder() error {
	if r.fromClient {
		r.h.order.Lock()
		defer r.h.order.Unlock()
	}
	return r.process()
}

// process passes on the frames in r.in, as far as they have come.
func (r *h2half) process() error {
	r.comes()
	start, at := r.goOn()
	data := r.in.data() // of which data[start:at] can be passed on as it is
	for len(data)-at >= frameHeaderSize {
		if !r.begun && !r.fromClient && bytes.HasPrefix(data, []byte("HTTP/1.")) {
			c := r.h.conn
			c.listener.tell("HTTP/2 of a client", c.target, errHTTP1)
			return violation(codeHTTP1, errHTTP1.Error())
		}
		f := parseFrameHeader(data[at:])
		if err := f.check(int(r.frameLimit.Load())); err != nil {
			return err
		}
		if !r.begun {
			// What waits to be written relies on it; see through.
			if f.kind != frameSettings || f.has(flagAck) {
				return violation(codeProtocol, "the first frame is not SETTINGS")
			}
			r.begun = true
			if !r.fromClient {
				r.h.heard.Store(true)
			}
		}
		if r.inBlock && (f.kind != frameContinuation || f.stream != r.blockHead.stream) {
			return violation(codeProtocol, "a header block was interrupted")
		}
		if f.kind == frameData {
			if f.length > 0 && len(data)-at == frameHeaderSize {
				break // there is nothing of it yet
			}
			whole := len(data)-at >= frameHeaderSize+f.length
			r.alone = start == at
			v, err := r.data(f, data[at:], whole)
			if err != nil {
				return err
			}
			if v == verdictWait {
				break
			}
			if v == verdictPass && !r.mustWait() {
				at += r.beginData(f, data[at:], true)
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
				at += r.beginData(f, data[at:], true)
				continue
			case verdictTake:
				if err := r.take(f, data[at:at+frameHeaderSize+f.length]); err != nil {
					return err
				}
				at += frameHeaderSize + f.length
			case verdictDone:
				at += frameHeaderSize + f.length
			default:
				at += r.beginData(f, data[at:], false)
				r.repay(f.length)
			}
			start = at
			continue
		}
		if len(data)-at < frameHeaderSize+f.length {
			break
		}
		raw := data[at : at+frameHeaderSize+f.length]
		r.alone = start == at
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

// beginData begins a DATA frame of which raw has at least the first byte, if there is any;
// pass: it is passed on. It returns how much of raw that takes.
func (r *h2half) beginData(f frameHeader, raw []byte, pass bool) int {
	n := min(f.length, len(raw)-frameHeaderSize)
	r.left, r.pass = f.length, pass
	if pass && n < f.length {
		r.rest = parseFrameHeader(raw) // with the other end's number
		r.piece(raw, n)
	} else {
		r.left -= n
	}
	return frameHeaderSize + n
}

// piece makes a frame of the next n bytes of the DATA frame under way, whose header goes
// to the beginning of raw. Windows see no difference: such a frame has no padding, see data.
func (r *h2half) piece(raw []byte, n int) {
	f := r.rest
	f.length = n
	if r.left -= n; r.left > 0 {
		f.flags &^= flagEndStream
	}
	appendFrameHeader(raw[:0], f)
}

// goOn deals with what has come of the DATA frame under way, and returns which part of
// r.in can be passed on.
func (r *h2half) goOn() (start, at int) {
	if r.left == 0 {
		return 0, 0
	}
	n := min(r.left, len(r.in.data()))
	if !r.pass {
		r.left -= n
		return n, n
	}
	r.in.r -= frameHeaderSize // see makeRoom
	r.piece(r.in.data(), n)
	if r.left == 0 && r.rest.has(flagEndStream) {
		r.finish(r.rest.stream)
	}
	return 0, frameHeaderSize + n
}

// finish is done of a stream, by the other end's number, of whose last DATA frame the last
// piece has come. Either end may have reset it meanwhile.
func (r *h2half) finish(id uint32) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if s, _ := r.back().stream(id); s != nil {
		r.done(s)
	}
}

// stop passes on what has been looked at; the rest waits for more.
func (r *h2half) stop(start, at int) error {
	var err error
	if at > start {
		err = r.through(r.in.data()[start:at])
	}
	if err == nil && r.dirty {
		err = r.written()
	}
	r.awaits(at)
	r.in.skip(at)
	return err
}

// some passes on frames as they are; stop must follow.
func (r *h2half) some(frames []byte) error {
	if len(frames) == 0 || r.gather(frames) {
		return nil
	}
	return r.through(frames)
}

// verdict is what becomes of a frame.
type verdict uint8

const (
	verdictPass verdict = iota // it goes on as it stands
	verdictDrop                // it is taken out; of DATA the window is paid back
	verdictTake                // it is dealt with once all before it has been written
	verdictDone                // it has been dealt with: nothing before it was still to be written
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
		return verdictPass, r.flood.ping()
	case frameGoAway:
		return r.goAway(raw)
	case frameWindowUpdate:
		return r.windowUpdate(f, raw)
	}
	// PRIORITY names streams by numbers that the other end does not have, and
	// is deprecated; of other types a receiver must know to ignore them.
	return verdictDrop, r.flood.other()
}

// take deals with a frame that cannot go on as it stands.
func (r *h2half) take(f frameHeader, raw []byte) error {
	switch f.kind {
	case frameHeaders, frameContinuation:
		return r.takeHeaders(f, raw)
	case frameSettings:
		f.length += len(r.unsaid)
		b := appendFrameHeader(nil, f)
		b = append(b, raw[frameHeaderSize:]...)
		return r.through(append(b, r.unsaid...))
	case frameData, frameReset:
		return r.takeTrial(f, raw)
	}
	return nil
}
