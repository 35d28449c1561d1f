package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// errAnswer says that an answer is not what the callee gives.
var errAnswer = errors.New("unexpected answer")

// clientHTTP1 has one slot: no pipelining.
type clientHTTP1 struct {
	request []byte
	left    int  // of the answer's body
	inBody  bool // its head has been read
}

var _ peer = (*clientHTTP1)(nil)

func newClientHTTP1(l *load) *clientHTTP1 {
	return &clientHTTP1{request: []byte("GET " + l.path() + " HTTP/1.1\r\nHost: " + l.Address + "\r\ntraceparent: " + l.Traceparent + "\r\n\r\n")}
}

func (c *clientHTTP1) greet(b []byte) []byte         { return b }
func (c *clientHTTP1) ask(b []byte, _ int) []byte    { return append(b, c.request...) }
func (c *clientHTTP1) finish(b []byte, _ int) []byte { return b }

func (c *clientHTTP1) take(b []byte, _ *[]byte, done func(slot int)) (used int, err error) {
	for {
		if !c.inBody {
			end := bytes.Index(b[used:], []byte("\r\n\r\n"))
			if end < 0 {
				return used, nil
			}
			if c.left, err = answerLength(b[used : used+end]); err != nil {
				return used, err
			}
			used += end + 4
			c.inBody = true
		}
		n := min(c.left, len(b)-used)
		used, c.left = used+n, c.left-n
		if c.left > 0 {
			return used, nil
		}
		c.inBody = false
		done(0)
	}
}

// answerLength is how long the body of a successful answer is.
func answerLength(head []byte) (int, error) {
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
		status, _, _ := bytes.Cut(head, []byte("\r\n"))
		return 0, fmt.Errorf("%w: %s", errAnswer, status)
	}
	return contentLength(head)
}

// contentLength is what a head says.
func contentLength(head []byte) (int, error) {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("content-length")) {
			return strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return 0, fmt.Errorf("%w: no content-length in %q", errAnswer, head)
}

// clientHTTP2 makes gRPC calls. It leaves flow control to a window that is never
// used up, as h2load does.
type clientHTTP2 struct {
	shape   shape
	head    []byte // the header block of a request
	message []byte
	calls   []clientCall // by slot
	next    uint32       // stream
	got     int          // since the connection's window was last opened
	window  int64        // what may be sent
	initial int64
}

type clientCall struct {
	id     uint32
	open   bool
	ending bool  // half-closed by us
	window int64 // what may be sent
	unsent int   // of the current message
	got    int   // bytes of DATA: of the call, or with echoes of the current message
}

var _ peer = (*clientHTTP2)(nil)

const wide = 1<<31 - 1 - defaultWindow

func newClientHTTP2(l *load, slots int) *clientHTTP2 {
	c := &clientHTTP2{
		shape: l.Shape, message: l.Shape.message(l.Bytes), calls: make([]clientCall, slots),
		next: 1, window: defaultWindow, initial: defaultWindow,
	}
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", l.path()},
		{":authority", l.Address},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"traceparent", l.Traceparent},
	} {
		c.head = appendLiteral(c.head, f[0], f[1])
	}
	return c
}

func (c *clientHTTP2) greet(b []byte) []byte {
	setting := binary.BigEndian.AppendUint16(nil, settingWindow)
	b = append(b, preface...)
	b = appendFrame(b, frameSettings, 0, 0, binary.BigEndian.AppendUint32(setting, 1<<31-1))
	return appendWindow(b, 0, wide)
}

func (c *clientHTTP2) ask(b []byte, slot int) []byte {
	x := &c.calls[slot]
	if !x.open {
		*x = clientCall{id: c.next, open: true, window: c.initial}
		c.next += 2
		b = appendFrame(b, frameHeaders, flagEndHeaders, x.id, c.head)
	}
	x.unsent, x.got = len(c.message), 0
	return c.send(b, x)
}

// send sends what the windows let through of a call's message.
func (c *clientHTTP2) send(b []byte, x *clientCall) []byte {
	for x.unsent > 0 {
		n := min(int64(x.unsent), largestFrame, x.window, c.window)
		if n <= 0 {
			return b
		}
		at := len(c.message) - x.unsent
		x.unsent, x.window, c.window = x.unsent-int(n), x.window-n, c.window-n
		var flags byte
		if x.unsent == 0 && c.shape != shapeBidi {
			flags, x.ending = flagEnd, true
		}
		b = appendFrame(b, frameData, flags, x.id, c.message[at:at+int(n)])
	}
	return b
}

func (c *clientHTTP2) finish(b []byte, slot int) []byte {
	x := &c.calls[slot]
	if !x.open || x.ending {
		return b
	}
	x.ending = true
	return appendFrame(b, frameData, flagEnd, x.id, nil)
}

func (c *clientHTTP2) slotOf(stream uint32) (int, *clientCall) {
	for i := range c.calls {
		if x := &c.calls[i]; x.open && x.id == stream {
			return i, x
		}
	}
	return 0, nil
}

func (c *clientHTTP2) take(b []byte, reply *[]byte, done func(slot int)) (used int, err error) {
	rest := b
	for {
		f, after, ok := nextFrame(rest)
		if !ok {
			return len(b) - len(rest), nil
		}
		rest = after
		slot, x := c.slotOf(f.stream)
		switch {
		case f.kind == frameSettings && f.flags&flagAck == 0:
			c.settings(f.payload, reply)
		case f.kind == framePing && f.flags&flagAck == 0:
			*reply = appendFrame(*reply, framePing, flagAck, 0, f.payload)
		case f.kind == frameGoAway, f.kind == frameReset && x != nil:
			return 0, fmt.Errorf("%w: frame of type %d: %x", errAnswer, f.kind, f.payload)
		case f.kind == frameWindow:
			n := int64(binary.BigEndian.Uint32(f.payload))
			if f.stream == 0 {
				c.window += n
			} else if x != nil {
				x.window += n
			}
			c.resume(reply)
		case f.kind == frameData:
			if err := c.data(f, slot, x, reply, done); err != nil {
				return 0, err
			}
		case f.kind == frameHeaders && f.flags&flagEnd != 0 && x != nil:
			// Without a message before it, it is an error's.
			x.open = false
			switch {
			case c.shape == shapeBidi && !x.ending, c.shape != shapeBidi && x.got == 0:
				return 0, fmt.Errorf("%w: trailers too early", errAnswer)
			case c.shape != shapeBidi:
				done(slot)
			}
		}
	}
}

func (c *clientHTTP2) settings(p []byte, reply *[]byte) {
	for ; len(p) >= 6; p = p[6:] {
		if binary.BigEndian.Uint16(p) == settingWindow {
			more := int64(binary.BigEndian.Uint32(p[2:])) - c.initial
			c.initial += more
			for i := range c.calls {
				c.calls[i].window += more
			}
		}
	}
	*reply = appendFrame(*reply, frameSettings, flagAck, 0, nil)
	c.resume(reply)
}

func (c *clientHTTP2) resume(reply *[]byte) {
	for i := range c.calls {
		if c.calls[i].open {
			*reply = c.send(*reply, &c.calls[i])
		}
	}
}

func (c *clientHTTP2) data(f frame, slot int, x *clientCall, reply *[]byte, done func(slot int)) error {
	if c.got += len(f.payload); c.got > wide/2 {
		*reply, c.got = appendWindow(*reply, 0, uint32(c.got)), 0
	}
	if x == nil {
		return nil
	}
	if f.flags&flagEnd != 0 {
		return fmt.Errorf("%w: no trailers", errAnswer)
	}
	x.got += len(f.payload)
	if c.shape == shapeBidi && len(f.payload) > 0 {
		if x.got > len(c.message) {
			return fmt.Errorf("%w: %d bytes came back of %d", errAnswer, x.got, len(c.message))
		}
		if !x.ending { // a stream lives as long as the measurement does
			*reply = appendWindow(*reply, x.id, uint32(len(f.payload)))
		}
		if x.got == len(c.message) {
			done(slot)
		}
	}
	return nil
}
