package tfiproxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// halfFrames is a callee that begins an answer and stops in the middle of a frame.
func halfFrames(t *testing.T) string {
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck()) // its loss
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if f.Header().Type == http2.FrameHeaders {
				_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
				_, _ = conn.Write(append(appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, length: 1000}), "half"...))
			}
		}
	})
}

// TestHTTP2HalfFrames says that an end that keeps the rest of a frame back is cut: of a
// DATA frame once nothing more comes, of another whatever trickles in.
func TestHTTP2HalfFrames(t *testing.T) {
	const short, never = 200 * time.Millisecond, time.Hour
	data := appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, length: 1000})
	headers := appendFrameHeader(nil, frameHeader{kind: frameHeaders, stream: 1, length: 1000})
	ping := appendFrameHeader(nil, frameHeader{kind: framePing, length: 8})
	for _, c := range []struct {
		name        string
		head, stall time.Duration
		callee      func(*testing.T) string
		ask         bool // a request, whose body is still to come
		half        []byte
		more        []byte // again and again
		cut         bool
	}{
		{name: "DATA", head: never, stall: short, ask: true, half: append(data[:9:9], "half"...), cut: true},
		{name: "DATA of an answer", head: never, stall: short, callee: halfFrames, ask: true, cut: true},
		{name: "DATA that moves", head: short, stall: 5 * short, ask: true, half: data, more: []byte("x")},
		{name: "HEADERS", head: short, stall: never, half: headers, cut: true},
		{name: "HEADERS that trickle", head: short, stall: never, half: headers, more: []byte{0}, cut: true},
		{name: "the head of a frame", head: short, stall: never, half: ping[:5], cut: true},
		{name: "PINGs in pieces", head: 5 * short, stall: short, half: ping, more: append(make([]byte, 8), ping...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.callee == nil {
				c.callee = plainServer
			}
			cfg := outboundTo(c.callee(t))
			cfg.Timeouts.Head, cfg.Timeouts.Stall = c.head, c.stall
			p := startProxy(t, cfg)
			peer := newH2Peer(t, p)
			go func() { _, _ = io.Copy(io.Discard, peer.conn) }()
			if c.ask {
				if err := peer.ask(1, false); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := peer.conn.Write(c.half); err != nil {
				t.Fatal(err)
			}
			last := 8 * short // longer than either limit
			if c.cut {
				last = 5 * time.Second
			}
			for begun := time.Now(); time.Since(begun) < last && p.metrics.get(metricTimeouts) == 0; time.Sleep(short / 20) {
				if _, err := peer.conn.Write(c.more); err != nil {
					break
				}
			}
			if n := p.metrics.get(metricTimeouts); (n == 1) != c.cut {
				t.Errorf("%d cut", n)
			}
		})
	}
}
