package tfiproxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestHTTP2Order says that streams reach the upstream in the order of their numbers,
// although delayed ones are opened by timers beside those that come in.
func TestHTTP2Order(t *testing.T) {
	const bursts, delays, burst = 100, 20, 300
	opened := make(chan uint32, bursts*(delays+burst))
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		defer close(opened)
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings() // its loss
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if f.Header().Type == http2.FrameHeaders {
				opened <- f.Header().StreamID
				_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.Header().StreamID, BlockFragment: []byte{0x88}, EndStream: true, EndHeaders: true})
			}
		}
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	cfg.Limits.Streams = 1 << 20
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "d", MaxInjections: 1 << 20,
		Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(100 * time.Microsecond)}}}},
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	c := newH2Peer(t, p)
	c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && !s.IsAck() })
	go func() { _, _ = io.Copy(io.Discard, c.conn) }()
	ordinary := []byte{0x82, 0x86, 0x84, 0x41, 1, 'a'} // GET / http, authority a
	delayed := appendLiteral(append([]byte{0x20}, ordinary...), "traceparent", "00-"+tfi.NewTraceID(key, 1).String()+"-00f067aa0ba902b7-01")
	id := uint32(1)
	for range bursts {
		var b []byte
		for range delays {
			b, id = appendHeaders(b, id, delayed, true), id+2
		}
		for range burst {
			b, id = appendHeaders(b, id, ordinary, true), id+2
		}
		if _, err := c.conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	last := uint32(0)
	for range bursts * (delays + burst) {
		n, ok := <-opened
		if !ok {
			t.Fatal("the connection is gone")
		}
		if n <= last {
			t.Fatalf("stream %d after %d", n, last)
		}
		last = n
	}
}

// TestHTTP2TableUpdate says that an upstream gets the table size with which a client's
// first block begins, and waits for it, although a fault has swallowed that block.
func TestHTTP2TableUpdate(t *testing.T) {
	blocks := make(chan []byte, 2)
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100}) // its loss
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				blocks <- bytes.Clone(h.HeaderBlockFragment())
			}
		}
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "e", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 502}}},
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	c := newH2Peer(t, p)
	c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && !s.IsAck() })
	if err := c.ask(1, true, "traceparent", "00-"+tfi.NewTraceID(key, 1).String()+"-00f067aa0ba902b7-01"); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		return ok && h.PseudoValue("status") == "502"
	})
	for i, want := range []bool{true, false} {
		if err := c.ask(uint32(3+2*i), true); err != nil {
			t.Fatal(err)
		}
		if b := <-blocks; isUpdate(b) != want {
			t.Errorf("block %d: %x", i, b)
		}
	}
}
