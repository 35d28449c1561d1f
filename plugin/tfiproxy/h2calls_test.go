package tfiproxy

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// echo is a callee in memory that sends every request's body back under the
// request's name, once it has ended.
type echo struct {
	*script
	seen  int // of heard
	calls map[uint32]*echoCall
}

type echoCall struct {
	name string
	grpc bool
	body []byte
}

// react answers what has been heard and not answered yet.
func (e *echo) react(t *testing.T) {
	for len(e.heard)-e.seen >= frameHeaderSize {
		f := parseFrameHeader(e.heard[e.seen:])
		if len(e.heard)-e.seen < frameHeaderSize+f.length {
			return
		}
		payload := e.heard[e.seen+frameHeaderSize:][:f.length]
		e.seen += frameHeaderSize + f.length
		switch f.kind {
		case frameHeaders:
			if !f.has(flagEndHeaders) || f.has(flagPadded) {
				t.Fatalf("not written for %+v", f)
			}
			fields, err := hpack.NewDecoder(0, nil).DecodeFull(payload)
			if err != nil {
				t.Fatal(err)
			}
			c := &echoCall{}
			for _, h := range fields {
				c.grpc = c.grpc || h.Value == "application/grpc"
				if h.Name == "x-name" {
					c.name = h.Value
				}
			}
			e.calls[f.stream] = c
		case frameData:
			e.calls[f.stream].body = append(e.calls[f.stream].body, payload...)
		default:
			continue
		}
		if c := e.calls[f.stream]; f.has(flagEndStream) {
			kind := map[bool]string{false: "text/plain", true: "application/grpc"}[c.grpc]
			e.say = appendHeaders(e.say, f.stream, fuzzBlock(":status", "200", "content-type", kind, "x-name", c.name), false)
			for at := 0; at < len(c.body); at += 90 {
				part := c.body[at:min(at+90, len(c.body))]
				e.say = appendFrameHeader(e.say, frameHeader{kind: frameData, stream: f.stream, length: len(part)})
				e.say = append(e.say, part...)
			}
			e.say = appendHeaders(e.say, f.stream, fuzzBlock("grpc-status", "0"), true)
		}
	}
}

// FuzzHTTP2Calls makes well-formed calls, of which a trial's are delayed, and lets
// the input say in which order and in which pieces everything happens. Whatever it says,
// each call gets its own answer, whole, and nothing stays.
func FuzzHTTP2Calls(f *testing.F) {
	policy := fuzzPolicy(f, 20*time.Second) // longer than any run: timers are fired below
	settings := appendFrameHeader(nil, frameHeader{kind: frameSettings})
	settings = appendFrameHeader(settings, frameHeader{kind: frameSettings, flags: flagAck})
	paths := []string{"/", "/req/delay", "/", "/", "/resp/delay", "/", "/s/Delay", "/", "/req/delay", "/", "/"}
	bodies := make([][]byte, len(paths))
	client := bytes.Clone(settings)
	for round := range len(paths) + 6 {
		for i, path := range paths {
			id, at := uint32(2*i+1), round-i
			if at == 0 {
				fields := []string{":method", "POST", ":scheme", "http", ":path", path, "content-type", "text/plain", "x-name", fmt.Sprint(id)}
				if path != "/" {
					fields = append(fields, "traceparent", "00-"+tfi.NewTraceID(fuzzKey, uint64(id)).String()+"-00f067aa0ba902b7-01")
				}
				if path == "/s/Delay" {
					fields[7] = "application/grpc"
				}
				client = appendHeaders(client, id, fuzzBlock(fields...), false)
			}
			if at < 0 || at > 6 {
				continue
			}
			part := bytes.Repeat([]byte{'a' + byte(i)}, 40*at*(i%3))
			bodies[i] = append(bodies[i], part...)
			h := frameHeader{kind: frameData, stream: id, length: len(part)}
			if at == 6 {
				h.flags = flagEndStream
			}
			client = append(appendFrameHeader(client, h), part...)
		}
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0x7e, stepTimers, 0x7f, 0x10, 0x21}, 40))
	f.Add(bytes.Repeat([]byte{0x02, 0x03, 0x44, stepTimers, 0x1f}, 60))
	f.Add(bytes.Repeat([]byte{0xfe, stepTimers, 0xff}, 20))
	f.Fuzz(func(t *testing.T, steps []byte) {
		down := &script{say: client}
		up := &echo{script: &script{say: bytes.Clone(settings)}, calls: map[uint32]*echoCall{}}
		c := fuzzConn(t, policy, down, up)
		h := fuzzHTTP2(c)
		for turn := 0; turn < 20000 && (len(steps) > 0 || len(down.say)+len(up.say)+len(h.byClient) > 0); turn++ {
			step := []byte{0xfe, 0xff, stepTimers}[turn%3]
			if len(steps) > 0 {
				step, steps = steps[0], steps[1:]
			}
			if step == stepTimers {
				fireAll(h)
			} else {
				r, from := &h.up, down
				if step&1 == 1 {
					r, from = &h.down, up.script
				}
				from.piece = int(step)/2*4 + 1
				if err := onePiece(r); err != nil {
					t.Fatal(err)
				}
			}
			up.react(t)
		}
		if n := len(h.byClient) + len(h.byServer); n > 0 {
			t.Fatalf("%d streams stay", n)
		}
		checkFrames(t, up.heard, &h.down)
		checkFrames(t, down.heard, &h.up)
		answered := map[uint32][]byte{}
		ended := map[uint32]bool{}
		for b := down.heard; len(b) > 0; {
			x := parseFrameHeader(b)
			payload := b[frameHeaderSize:][:x.length]
			b = b[frameHeaderSize+x.length:]
			if ended[x.stream] {
				t.Fatalf("%+v after the end", x)
			}
			switch x.kind {
			case frameHeaders:
				if name := fmt.Sprint(x.stream); answered[x.stream] == nil && !bytes.Contains(payload, []byte("x-name"+string(rune(len(name)))+name)) {
					t.Fatalf("stream %d got %q", x.stream, payload)
				}
				answered[x.stream] = append([]byte{}, answered[x.stream]...) // no longer nil
			case frameData:
				answered[x.stream] = append(answered[x.stream], payload...)
			case frameReset:
				t.Fatalf("stream %d was reset", x.stream)
			}
			ended[x.stream] = (x.kind == frameHeaders || x.kind == frameData) && x.has(flagEndStream)
		}
		for i, want := range bodies {
			if id := uint32(2*i + 1); !ended[id] || !bytes.Equal(answered[id], want) {
				t.Fatalf("stream %d: ended %v, %d bytes of %d", id, ended[id], len(answered[id]), len(want))
			}
		}
		h.end()
		c.end()
	})
}
