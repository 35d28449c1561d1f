package tfiproxy

import (
	"io"
	"strconv"
	"sync"
	"time"
)

// h2void is an HTTP/2 server in place of an upstream that is not there: every
// request gets 503, a gRPC call UNAVAILABLE, and then the client is told to go. What is
// on its way still gets its answer; the next request comes over a new connection, for
// which the upstream is tried anew.
type h2void struct {
	mu     sync.Mutex
	in     []byte // frames that have not come whole
	out    []byte // what the other end has not read
	fields h2fields
	// The header block under way.
	block []byte
	head  frameHeader
	// last is the highest stream; leaving: the client has been told to open no more.
	last    uint32
	leaving bool

	ready  chan struct{} // has one element while there may be something to read
	gone   chan struct{} // closed at the end
	ended  sync.Once
	leaver *time.Timer
}

// voidFor is how long a client that asks for nothing keeps a connection without an
// upstream: what was so then need not be so any more.
const voidFor = time.Second

// maxVoid bounds what may wait for a client that asks and does not listen.
const maxVoid = 1 << 20

func newH2Void() *h2void {
	v := &h2void{ready: make(chan struct{}, 1), gone: make(chan struct{})}
	v.out = appendFrameHeader(nil, frameHeader{kind: frameSettings})
	signal(v.ready)
	v.leaver = time.AfterFunc(voidFor, func() {
		v.mu.Lock()
		v.leave()
		v.mu.Unlock()
		signal(v.ready)
	})
	return v
}

// read is as [sock.read].
func (v *h2void) read(b *buffer) (*buffer, error) {
	for {
		v.mu.Lock()
		if len(v.out) > 0 {
			if b == nil {
				b = takeBuffer()
			}
			n := copy(b.b[b.w:], v.out)
			b.w += n
			v.out = v.out[:copy(v.out, v.out[n:])]
			v.mu.Unlock()
			return b, nil
		}
		v.mu.Unlock()
		select {
		case <-v.ready:
		case <-v.gone:
			return b, io.EOF
		}
	}
}

// write takes in frames.
func (v *h2void) write(b []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.out) > maxVoid {
		return violation(codeCalm, "too much waits to be read")
	}
	v.in = append(v.in, b...)
	answered := false
	for len(v.in) >= frameHeaderSize {
		f := parseFrameHeader(v.in)
		size := frameHeaderSize + f.length
		if len(v.in) < size {
			break
		}
		did, err := v.frame(f, v.in[frameHeaderSize:size])
		if err != nil {
			return err
		}
		answered = answered || did
		v.in = v.in[:copy(v.in, v.in[size:])]
	}
	if answered {
		v.leave()
	}
	if len(v.out) > 0 {
		signal(v.ready)
	}
	return nil
}

// frame takes in one frame, and reports whether a request has been answered.
func (v *h2void) frame(f frameHeader, payload []byte) (answered bool, err error) {
	switch f.kind {
	case frameSettings:
		if !f.has(flagAck) {
			v.out = appendFrameHeader(v.out, frameHeader{kind: frameSettings, flags: flagAck})
		}
	case framePing:
		if !f.has(flagAck) {
			v.out = appendFrameHeader(v.out, frameHeader{kind: framePing, flags: flagAck, length: len(payload)})
			v.out = append(v.out, payload...)
		}
	case frameData:
		v.out = appendWindowUpdate(v.out, 0, f.length)
	case frameHeaders:
		fragment, err := headerFragment(f, payload)
		if err != nil {
			return false, err
		}
		v.head, v.block = f, append(v.block[:0], fragment...)
		return v.request(f.has(flagEndHeaders))
	case frameContinuation:
		v.block = append(v.block, payload...)
		return v.request(f.has(flagEndHeaders))
	}
	return false, nil
}

// request answers the request whose header block is under way, if that is whole.
func (v *h2void) request(whole bool) (answered bool, err error) {
	id := v.head.stream
	if !whole || id <= v.last { // trailers want no second answer
		return false, nil
	}
	v.last = id
	if err := v.fields.index(v.block); err != nil {
		return false, violation(codeCompression, err.Error())
	}
	contentType, _ := v.fields.Header("content-type")
	var b []byte
	if isGRPC(contentType) {
		b = appendLiteral(b, ":status", "200")
		b = appendLiteral(b, "content-type", "application/grpc")
		b = appendLiteral(b, "grpc-status", strconv.Itoa(grpcUnavailable))
		b = appendLiteral(b, "grpc-message", "the sidecar cannot reach the upstream")
	} else {
		b = appendLiteral(b, ":status", "503")
		b = appendLiteral(b, "content-length", "0")
	}
	v.out = appendHeaders(v.out, id, b, true)
	if !v.head.has(flagEndStream) {
		v.out = appendReset(v.out, id, codeNone) // RFC 9113, 8.1
	}
	return true, nil
}

// leave tells the client to open no more streams; mu is held.
func (v *h2void) leave() {
	if !v.leaving {
		v.leaving = true
		v.out = appendGoAway(v.out, maxStreamID, codeNone)
	}
}

// closeVoid ends what stands in for the upstream, and reports whether anything does.
func (h *h2conn) closeVoid() bool {
	v := h.void.Load()
	if v != nil {
		v.close()
	}
	return v != nil
}

// close ends it; it may be called more than once.
func (v *h2void) close() {
	v.ended.Do(func() {
		v.leaver.Stop()
		close(v.gone)
	})
}
