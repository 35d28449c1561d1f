package tfiproxy

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
)

// TestHTTP2LateFrames says what becomes of frames on streams that their sender has
// ended (RFC 9113, 5.1).
func TestHTTP2LateFrames(t *testing.T) {
	// over waits until the answer to stream 1 has come.
	over := func(t *testing.T, c *h2peer) {
		c.until(t, func(f http2.Frame) bool {
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				return f.StreamEnded()
			case *http2.DataFrame:
				return f.StreamEnded()
			}
			return false
		})
	}
	ended := func(t *testing.T, c *h2peer) error {
		err := c.ask(1, true)
		over(t, c)
		return err
	}
	reset := func(_ *testing.T, c *h2peer) error {
		return errors.Join(c.ask(1, false, "x-wait", "1"), c.WriteRSTStream(1, http2.ErrCodeCancel))
	}
	data := func(c *h2peer) error { return c.WriteData(1, true, []byte("x")) }
	empty := func(c *h2peer) error { return c.WriteData(1, false, nil) }
	headers := func(c *h2peer) error { return c.ask(1, true) }
	for _, c := range []struct {
		name       string
		before     func(t *testing.T, c *h2peer) error
		late       func(c *h2peer) error
		connection bool // it ends with STREAM_CLOSED; else the stream does
	}{
		{"DATA after the end", ended, data, true},
		{"HEADERS after the end", ended, headers, true},
		{"DATA after its own reset", reset, data, false},
		{"empty DATA after its own reset", reset, empty, false},
		{"HEADERS after its own reset", reset, headers, false},
		{"DATA before the answer", func(_ *testing.T, c *h2peer) error { return c.ask(1, true, "x-wait", "1") }, data, true},
		{"HEADERS before the answer", func(_ *testing.T, c *h2peer) error { return c.ask(1, true, "x-wait", "1") }, headers, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, outboundTo(waitingServer(t)))
			peer := newH2Peer(t, p)
			if err := errors.Join(c.before(t, peer), c.late(peer)); err != nil {
				t.Fatal(err)
			}
			if c.connection {
				if code := peer.ends(t); code != http2.ErrCodeStreamClosed {
					t.Errorf("the connection ends with %v", code)
				}
				return
			}
			peer.until(t, func(f http2.Frame) bool {
				r, ok := f.(*http2.RSTStreamFrame)
				if ok && (r.StreamID != 1 || r.ErrCode != http2.ErrCodeStreamClosed) {
					t.Errorf("%v", r)
				}
				return ok
			})
			// Others do not feel it.
			if err := peer.ask(3, true); err != nil {
				t.Fatal(err)
			}
			over(t, peer)
		})
	}
	t.Run("what may come late", func(t *testing.T) {
		p := startProxy(t, outboundTo(waitingServer(t)))
		peer := newH2Peer(t, p)
		if err := errors.Join(ended(t, peer), peer.WriteWindowUpdate(1, 5), peer.WriteRSTStream(1, http2.ErrCodeCancel),
			peer.WritePriority(1, http2.PriorityParam{Weight: 1}), peer.ask(3, true)); err != nil {
			t.Fatal(err)
		}
		over(t, peer)
	})
	t.Run("too many", func(t *testing.T) {
		p := startProxy(t, outboundTo(waitingServer(t)))
		peer := newH2Peer(t, p)
		peer.burst(t, func() error {
			err := reset(t, peer)
			for i := 0; i < 3*maxResets && err == nil; i++ {
				err = data(peer)
			}
			return err
		})
		if code, n := peer.ends(t), p.metrics.get(metricFloods); code != http2.ErrCodeEnhanceYourCalm || n != 1 {
			t.Errorf("the connection ends with %v, %d floods counted", code, n)
		}
	})
}

// TestHTTP2CalleeLeaves says that a callee which says that it will go, and takes all
// that is on its way, is not misunderstood: a client would repeat elsewhere what the
// callee does all the same.
func TestHTTP2CalleeLeaves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return nil
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	c := newH2Peer(t, startProxy(t, outboundTo(l.Addr().String())))
	if err := c.ask(1, true, "content-type", "application/grpc"); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && s.IsAck() })
	stopped := make(chan struct{})
	go func() { s.GracefulStop(); close(stopped) }()
	c.until(t, func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		if ok && g.LastStreamID != 1<<31-1 {
			t.Errorf("%v", g)
		}
		return ok
	})
	s.Stop()
	<-stopped
}

// TestHTTP2Farewell says that a goodbye follows what has come of a frame whose rest has not,
// and never ends up in it: gRPC would take it for a message.
func TestHTTP2Farewell(t *testing.T) {
	c := newH2Peer(t, startProxy(t, outboundTo(halfFrames(t))))
	if err := c.ask(1, false); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		if ok && (string(d.Data()) != "half" || d.StreamEnded()) {
			t.Errorf("%v", d)
		}
		return ok
	})
	if err := c.WriteData(7, true, nil); err != nil { // a violation
		t.Fatal(err)
	}
	if code := c.ends(t); code != http2.ErrCodeProtocol {
		t.Errorf("the connection ends with %v", code)
	}
}

// TestHTTP2NoHTTP2 says that a client learns of a callee that has no HTTP/2: some
// come back with HTTP/1.1.
func TestHTTP2NoHTTP2(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var one http.Protocols
	one.SetHTTP1(true)
	s := &http.Server{Protocols: &one, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	c := newH2Peer(t, startProxy(t, outboundTo(l.Addr().String())))
	if err := c.ask(1, true); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(t); code != http2.ErrCodeHTTP11Required {
		t.Errorf("the connection ends with %v", code)
	}
}
