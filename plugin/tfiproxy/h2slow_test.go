package tfiproxy

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestHTTP2SlowClients says that a client that keeps the rest of a header block back,
// or takes nothing of what it asked for, is cut; one that has time is not.
func TestHTTP2SlowClients(t *testing.T) {
	// The callee sends more than all buffers in between have room for.
	flooding := rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings() // its loss
		f, err := framer.ReadFrame()
		for ; err == nil && f.Header().Type != http2.FrameHeaders; f, err = framer.ReadFrame() {
		}
		if err != nil {
			return
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
		for b := make([]byte, ownFrameSize); err == nil; {
			err = framer.WriteData(1, false, b)
		}
	})
	for _, c := range []struct {
		name     string
		timeouts Timeouts
		do       func(c *h2peer) error
		cut      bool
	}{
		{"header block", Timeouts{Head: 100 * time.Millisecond}, func(c *h2peer) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()})
		}, true},
		{"takes nothing", Timeouts{Stall: 100 * time.Millisecond}, func(c *h2peer) error { return c.ask(1, true) }, true},
		{"asks for nothing", Timeouts{Head: time.Second, Stall: time.Second, Tick: time.Hour}, func(*h2peer) error { return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := outboundTo(flooding)
			cfg.Timeouts = c.timeouts
			p := startProxy(t, cfg)
			peer := newH2Peer(t, p)
			if err := peer.WriteWindowUpdate(0, 1<<30); err != nil {
				t.Fatal(err)
			}
			if err := c.do(peer); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(5 * time.Second); c.cut && p.metrics.get(metricTimeouts) == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("it is not cut")
				}
			}
			if !c.cut {
				eventually(t, "it does not listen", func() bool {
					h := connOf(p)
					return h != nil && h.window.Load() > 1<<30 && h.busy.Load() == 0
				})
				for i := range time.Duration(3) {
					p.conns.sweep(p.now() + i*5*time.Second)
				}
				if err := peer.WritePing(false, [8]byte{}); err != nil || p.metrics.get(metricTimeouts) != 0 {
					t.Errorf("it was cut: %v", err)
				}
			}
		})
	}
}
