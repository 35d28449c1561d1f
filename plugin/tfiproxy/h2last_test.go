package tfiproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// lastFrame is a DATA frame that ends stream 1, of lastFrameSize bytes.
var lastFrame = append(appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, length: lastFrameSize, flags: flagEndStream}),
	bytes.Repeat([]byte("x"), lastFrameSize)...)

const lastFrameSize, lastFrameHalf = 1000, frameHeaderSize + 400

// frameServer is an HTTP/2 upstream that deals with frames other than SETTINGS.
func frameServer(t *testing.T, deal func(conn *net.TCPConn, framer *http2.Framer, f http2.Frame)) string {
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck()) // a read tells
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			deal(conn, framer, f)
		}
	})
}

// halfAnswerServer answers requests without the second half of the last frame, which it sends
// when it is told to; and tells of resets.
func halfAnswerServer(t *testing.T, goOn <-chan struct{}, reset chan<- http2.ErrCode) string {
	return frameServer(t, func(conn *net.TCPConn, framer *http2.Framer, f http2.Frame) {
		switch f := f.(type) {
		case *http2.HeadersFrame:
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true}) // its loss
			_, _ = conn.Write(lastFrame[:lastFrameHalf])
			go func() {
				select {
				case <-goOn:
					_, _ = conn.Write(lastFrame[lastFrameHalf:])
				case <-t.Context().Done():
				}
			}()
		case *http2.RSTStreamFrame:
			reset <- f.ErrCode
		}
	})
}

// sweeps are ways for a connection with nothing under way to be ended by the sweeper.
var sweeps = []struct {
	name  string
	sweep func(p *Proxy)
}{
	{"drain", func(p *Proxy) {
		p.Drain()
		for range 3 { // the first one tells the client
			p.conns.sweep(p.now())
		}
	}},
	{"idle", func(p *Proxy) {
		for i := range time.Duration(3) { // the first one sees that something has moved
			p.conns.sweep(p.now() + i*time.Minute)
		}
	}},
}

// lastFrameProxy leads to an upstream, and sweeps when it is told to.
func lastFrameProxy(t *testing.T, upstream string) *Proxy {
	cfg := outboundTo(upstream)
	cfg.Timeouts.Tick, cfg.Timeouts.Idle = time.Hour, time.Minute
	return startProxy(t, cfg)
}

// awaitQuiet waits until nothing that has come is being dealt with any more.
func awaitQuiet(t *testing.T, p *Proxy) {
	h := theConn(t, p).h2.Load()
	eventually(t, "it is busy", func() bool { return h.busy.Load() == 0 })
}

// TestHTTP2LastFrame says that neither a drain nor a time-out for what is idle ends a call in
// the middle of its last DATA frame.
func TestHTTP2LastFrame(t *testing.T) {
	for _, c := range sweeps {
		t.Run(c.name+", answer", func(t *testing.T) {
			goOn := make(chan struct{})
			p := lastFrameProxy(t, halfAnswerServer(t, goOn, nil))
			peer := newH2Peer(t, p)
			if err := peer.ask(1, true); err != nil {
				t.Fatal(err)
			}
			var got []byte
			data := func(f http2.Frame) bool {
				d, ok := f.(*http2.DataFrame)
				if ok {
					got = append(got, d.Data()...)
				}
				return ok
			}
			peer.until(t, data)
			awaitQuiet(t, p)
			c.sweep(p)
			close(goOn)
			peer.until(t, func(f http2.Frame) bool { return data(f) && f.(*http2.DataFrame).StreamEnded() })
			if !bytes.Equal(got, lastFrame[frameHeaderSize:]) {
				t.Errorf("%d bytes of %d", len(got), lastFrameSize)
			}
			eventually(t, "it goes on", func() bool { c.sweep(p); return p.metrics.open.Load() == 0 })
		})
		t.Run(c.name+", upload", func(t *testing.T) {
			heard := make(chan int, 1)
			n := 0
			p := lastFrameProxy(t, frameServer(t, func(_ *net.TCPConn, framer *http2.Framer, f http2.Frame) {
				d, ok := f.(*http2.DataFrame)
				if !ok {
					return
				}
				if n == 0 { // a callee may answer before it has heard all
					_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
				}
				if n += len(d.Data()); d.StreamEnded() {
					heard <- n
				}
			}))
			peer := newH2Peer(t, p)
			// Acknowledged now: that must not end up in the frame.
			peer.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && !s.IsAck() })
			err := peer.ask(1, false)
			if _, e := peer.conn.Write(lastFrame[:lastFrameHalf]); err != nil || e != nil {
				t.Fatal(err, e)
			}
			peer.until(t, func(f http2.Frame) bool { h, ok := f.(*http2.MetaHeadersFrame); return ok && h.StreamEnded() })
			awaitQuiet(t, p)
			c.sweep(p)
			if _, err := peer.conn.Write(lastFrame[lastFrameHalf:]); err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-heard:
				if n != lastFrameSize {
					t.Errorf("the callee heard %d bytes of %d", n, lastFrameSize)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the callee heard no end")
			}
			eventually(t, "it goes on", func() bool { c.sweep(p); return p.metrics.open.Load() == 0 })
		})
	}
}

// TestHTTP2LastFrameReset says that a client can cancel an answer of whose last DATA frame
// its callee keeps the rest back.
func TestHTTP2LastFrameReset(t *testing.T) {
	reset := make(chan http2.ErrCode, 1)
	peer := newH2Peer(t, lastFrameProxy(t, halfAnswerServer(t, nil, reset)))
	if err := peer.ask(1, true); err != nil {
		t.Fatal(err)
	}
	peer.until(t, func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok })
	if err := peer.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-reset:
		if code != http2.ErrCodeCancel {
			t.Errorf("the callee hears %v", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("the callee hears of no cancel")
	}
}

// watched is an end during whose writes something is done.
type watched struct {
	script
	during func()
}

func (w *watched) write(b []byte) error {
	w.during()
	return w.script.write(b)
}

// TestHTTP2LastWrite says that neither a drain nor a time-out for what is idle ends a call
// whose last frame is still being written, as towards an end that takes its time.
func TestHTTP2LastWrite(t *testing.T) {
	policy, err := proto.Marshal(behaviour.Policy("v1"))
	if err != nil {
		t.Fatal(err)
	}
	settings := appendFrameHeader(nil, frameHeader{kind: frameSettings})
	for _, draining := range []bool{true, false} {
		down := &watched{script: script{say: appendHeaders(slices.Clone(settings), 1, []byte{0x83, 0x86, 0x84}, true), piece: 1 << 10}}
		up := &watched{script: script{say: append(appendHeaders(slices.Clone(settings), 1, []byte{0x88}, false), lastFrame...), piece: 1 << 10}}
		c := fuzzConn(t, policy, down, up)
		h := fuzzHTTP2(c)
		sweep := func() {
			for range 3 {
				h.sweep(c.proxy.now(), 2*c.proxy.cfg.Timeouts.Idle)
			}
			if c.left.Load() {
				t.Fatalf("draining %v: it is cut in the middle of a write", draining)
			}
		}
		up.during, down.during = sweep, sweep
		for _, r := range [...]*h2half{&h.up, &h.down, &h.down} {
			if err := onePiece(r); err != nil {
				t.Fatal(err)
			}
			c.proxy.draining.Store(draining)
			h.goingAway = draining // the client has been told
		}
		if got := heardStreams(t, down.heard)[1]; got.ends != 1 || len(got.data) != lastFrameSize {
			t.Errorf("draining %v: the client heard %+v", draining, got)
		}
		if h.sweep(c.proxy.now(), 2*c.proxy.cfg.Timeouts.Idle); !c.left.Load() {
			t.Errorf("draining %v: it goes on", draining)
		}
		h.end()
		c.end()
	}
}

// TestHTTP2LastUntaken says that a client gets all of an answer that still waits in the
// sidecar's socket when the connection is ended, although it acknowledges what it gets.
func TestHTTP2LastUntaken(t *testing.T) {
	const frames = 30
	upstream := frameServer(t, func(_ *net.TCPConn, framer *http2.Framer, f http2.Frame) {
		if f.Header().Type != http2.FrameHeaders {
			return
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true}) // its loss
		for i := range frames {
			_ = framer.WriteData(1, i == frames-1, make([]byte, ownFrameSize))
		}
	})
	for _, c := range sweeps {
		t.Run(c.name, func(t *testing.T) {
			p := lastFrameProxy(t, upstream)
			peer := newH2Peer(t, p)
			if err := errors.Join(peer.conn.SetReadBuffer(1<<15), peer.WriteWindowUpdate(0, 1<<20), peer.ask(1, true)); err != nil {
				t.Fatal(err)
			}
			isData := func(f http2.Frame) bool { _, ok := f.(*http2.DataFrame); return ok }
			peer.until(t, isData)
			h := theConn(t, p).h2.Load()
			eventually(t, "it is not all written", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.byClient) == 0 && h.busy.Load() == 0
			})
			c.sweep(p)
			for n := 1; n < frames; n++ {
				peer.until(t, isData)
				_ = peer.WriteWindowUpdate(0, ownFrameSize) // the sidecar need not hear it
			}
			eventually(t, "it goes on", func() bool { c.sweep(p); return p.metrics.open.Load() == 0 })
		})
	}
}
