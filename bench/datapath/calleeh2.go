package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
)

// The kinds of frames, their flags, and the bounds of HTTP/2 (RFC 9113).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow = 0, 1, 3, 4, 6, 7, 8

	flagEnd, flagAck, flagEndHeaders = 1, 1, 4

	settingWindow = 4
	defaultWindow = 1<<16 - 1
	largestFrame  = 16 << 10
	frameHead     = 9
	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

func appendWindow(b []byte, stream, n uint32) []byte {
	return appendFrame(b, frameWindow, 0, stream, binary.BigEndian.AppendUint32(nil, n))
}

// appendLiteral appends a header as a literal that is not indexed.
func appendLiteral(b []byte, name, value string) []byte {
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, byte(len(value)))
	return append(b, value...)
}

// frame is one that was read; payload is valid until the next read.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

// nextFrame takes a whole frame off b; ok is false where there is none yet.
func nextFrame(b []byte) (f frame, rest []byte, ok bool) {
	if len(b) < frameHead {
		return f, b, false
	}
	n := frameHead + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	if len(b) < n {
		return f, b, false
	}
	return frame{b[3], b[4], binary.BigEndian.Uint32(b[5:]) & (1<<31 - 1), b[frameHead:n]}, b[n:], true
}

// What a call's first message asks for: `many COUNT SIZE` for so many messages of so
// many bytes once the client has ended, whatever comes after a line's end; anything that begins with `echo` for its own
// messages, at once.
const (
	answerMany = "many"
	answerEcho = "echo"

	longestText = 64 // of what is asked for
)

var (
	calleeHead = appendLiteral(appendLiteral(nil, ":status", "200"), "content-type", "application/grpc")
	calleeTail = appendLiteral(nil, "grpc-status", "0")
)

// callee is one connection of the gRPC callee. It knows neither paths nor
// headers, since they would have to be decoded: the first message says it all.
type callee struct {
	in, out []byte
	window  int64 // what may be sent on the connection
	initial int64 // and at first on a stream
	credit  int   // received and not yet given back
	calls   map[uint32]*call
	free    []*call
	answers map[string][]byte
}

// call is one stream.
type call struct {
	id       uint32
	window   int64
	text     []byte // the first bytes of its first message; a frame may have few of them
	pending  []byte // to be sent; may be shared, so it is never appended to unless echoed
	begun    bool   // its answer's head is out
	echoes   bool
	finished bool // what is pending is the rest
}

func calleeHTTP2(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(preface))); err != nil {
		return
	}
	x := &callee{
		in: make([]byte, 0, 128<<10), out: appendFrame(nil, frameSettings, 0, 0, nil),
		window: defaultWindow, initial: defaultWindow, calls: map[uint32]*call{}, answers: map[string][]byte{},
	}
	for {
		rest := x.in
		for {
			f, after, ok := nextFrame(rest)
			if !ok {
				break
			}
			rest = after
			x.take(f)
			if len(x.out) > cap(x.in) {
				if _, err := c.Write(x.out); err != nil {
					return
				}
				x.out = x.out[:0]
			}
		}
		x.in = x.in[:copy(x.in, rest)]
		if len(x.out) > 0 {
			if _, err := c.Write(x.out); err != nil {
				return
			}
			x.out = x.out[:0]
		}
		n, err := c.Read(x.in[len(x.in):cap(x.in)])
		if err != nil || n == 0 {
			return
		}
		x.in = x.in[:len(x.in)+n]
	}
}

func (x *callee) take(f frame) {
	switch f.kind {
	case frameSettings:
		if f.flags&flagAck != 0 {
			return
		}
		for p := f.payload; len(p) >= 6; p = p[6:] {
			if binary.BigEndian.Uint16(p) == settingWindow {
				more := int64(binary.BigEndian.Uint32(p[2:])) - x.initial
				x.initial += more
				for _, c := range x.calls {
					c.window += more
				}
			}
		}
		x.out = appendFrame(x.out, frameSettings, flagAck, 0, nil)
		x.sendAll()
	case framePing:
		if f.flags&flagAck == 0 {
			x.out = appendFrame(x.out, framePing, flagAck, 0, f.payload)
		}
	case frameWindow:
		n := int64(binary.BigEndian.Uint32(f.payload))
		if f.stream == 0 {
			x.window += n
			x.sendAll()
		} else if c := x.calls[f.stream]; c != nil {
			c.window += n
			x.send(c)
		}
	case frameReset:
		if c := x.calls[f.stream]; c != nil {
			x.forget(c)
		}
	case frameHeaders:
		c := x.call(f.stream)
		if f.flags&flagEnd != 0 {
			x.end(c)
		}
	case frameData:
		x.data(f)
	}
}

func (x *callee) data(f frame) {
	if n := len(f.payload); n > 0 {
		if x.credit += n; x.credit > defaultWindow/2 {
			x.out, x.credit = appendWindow(x.out, 0, uint32(x.credit)), 0
		}
	}
	c := x.calls[f.stream]
	if c == nil {
		return
	}
	if had := len(c.text); !c.echoes && had < longestText {
		c.text = append(c.text, f.payload[:min(len(f.payload), longestText-had)]...)
		if bytes.HasPrefix(c.asks(), []byte(answerEcho)) {
			c.echoes = true
			c.pending = append(c.pending, c.text[:had]...)
		}
	}
	if len(f.payload) > 0 && f.flags&flagEnd == 0 {
		x.out = appendWindow(x.out, f.stream, uint32(len(f.payload)))
	}
	if c.echoes && len(f.payload) > 0 {
		c.pending = append(c.pending, f.payload...)
		x.send(c)
	}
	if f.flags&flagEnd != 0 {
		x.end(c)
	}
}

// answerOf makes the messages that a text asks for, once for each text.
func (x *callee) answerOf(text []byte) []byte {
	if a, ok := x.answers[string(text)]; ok {
		return a
	}
	var count, bytes int
	if f := splitFields(text); len(f) == 3 && f[0] == answerMany {
		count, _ = strconv.Atoi(f[1]) // 0 is a count
		bytes, _ = strconv.Atoi(f[2]) // and a size
	}
	a := []byte{}
	message := make([]byte, bytes)
	for range count {
		a = frameMessage(a, message)
	}
	x.answers[string(text)] = a
	return a
}

func splitFields(text []byte) (all []string) {
	for f := range bytes.FieldsSeq(text) {
		all = append(all, string(f))
	}
	return all
}

// asks is what is known of what a call asks for.
func (c *call) asks() []byte { return c.text[min(5, len(c.text)):] }

// end is the client's end of a call.
func (x *callee) end(c *call) {
	if !c.echoes {
		line, _, _ := bytes.Cut(c.asks(), []byte("\n"))
		c.pending = x.answerOf(line)
	}
	c.finished = true
	x.send(c)
}

func (x *callee) sendAll() {
	for _, c := range x.calls {
		x.send(c)
	}
}

// send sends as much of a call's answer as the windows let through.
func (x *callee) send(c *call) {
	if !c.finished && len(c.pending) == 0 {
		return
	}
	if !c.begun {
		c.begun = true
		x.out = appendFrame(x.out, frameHeaders, flagEndHeaders, c.id, calleeHead)
	}
	sent := 0
	for sent < len(c.pending) {
		n := min(int64(len(c.pending)-sent), largestFrame, c.window, x.window)
		if n <= 0 {
			break
		}
		x.out = appendFrame(x.out, frameData, 0, c.id, c.pending[sent:sent+int(n)])
		c.window, x.window, sent = c.window-n, x.window-n, sent+int(n)
	}
	if c.echoes {
		c.pending = c.pending[:copy(c.pending, c.pending[sent:])]
	} else {
		c.pending = c.pending[sent:]
	}
	if c.finished && len(c.pending) == 0 {
		x.out = appendFrame(x.out, frameHeaders, flagEndHeaders|flagEnd, c.id, calleeTail)
		x.forget(c)
	}
}

func (x *callee) call(id uint32) *call {
	if c := x.calls[id]; c != nil {
		return c
	}
	c := &call{}
	if n := len(x.free); n > 0 {
		c, x.free = x.free[n-1], x.free[:n-1]
	}
	*c = call{id: id, window: x.initial, text: c.text[:0]}
	x.calls[id] = c
	return c
}

func (x *callee) forget(c *call) {
	delete(x.calls, c.id)
	x.free = append(x.free, c)
}
