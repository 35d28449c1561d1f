package tfiproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// fullPort is a port to which nobody can connect, since all that it takes have, until accept
// is called; then it answers HTTP/1.1.
func fullPort(t *testing.T) (address string, accept func()) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(fd, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "port")
	l, err := net.FileListener(f)
	_ = f.Close() // the listener has its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for full := false; !full; {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
		if full = err != nil; !full {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	return l.Addr().String(), func() {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if n, _ := c.Read(make([]byte, 4096)); n > 0 {
						_, _ = io.WriteString(c, plainAnswer)
					}
				}()
			}
		}()
	}
}

// TestLeftWhileConnecting says that a client which leaves while its upstream is still being
// connected to is let go within ticks: nothing has failed, and a trial's call is reported as
// never sent on.
func TestLeftWhileConnecting(t *testing.T) {
	get := func(trace string) string { return "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: " + trace + "\r\n\r\n" }
	h2 := func(trace string) string {
		b := appendFrameHeader([]byte(preface), frameHeader{kind: frameSettings})
		return string(appendHeaders(b, 1, fuzzBlock(":method", "GET", ":scheme", "http", ":path", "/", "traceparent", trace), true))
	}
	for _, c := range []struct {
		name     string
		ask      func(string) string
		ordinary bool
		resets   bool
		silent   bool // the upstream can be connected to, and says nothing of TLS
		spans    int
	}{
		{name: "HTTP/1.1, trial", ask: get, spans: 1},
		{name: "HTTP/1.1, trial, reset", ask: get, resets: true, spans: 1},
		{name: "HTTP/1.1, ordinary, reset", ask: get, ordinary: true, resets: true},
		{name: "HTTP/1.1, trial, TLS upstream", ask: get, silent: true, spans: 1},
		{name: "HTTP/2, trial", ask: h2},
		{name: "HTTP/2, ordinary", ask: h2, ordinary: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := behaviour.NewEndpoints()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			upstream, _ := fullPort(t)
			cfg := outboundTo(upstream)
			if c.silent {
				cfg = outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) { _, _ = io.Copy(io.Discard, conn) }))
				cfg.Listeners[0].UpstreamTLS = &ClientTLS{Insecure: true}
			}
			cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
			cfg.Clusters = map[string]string{behaviour.ReportCluster: e.Collector()}
			cfg.Timeouts.Connect = time.Minute
			p := startProxy(t, cfg)
			key := behaviour.NewKey()
			policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
			if err == nil {
				err = p.Apply(policy)
			}
			if err != nil {
				t.Fatal(err)
			}
			trace := tfi.NewTraceID(key, 1)
			if c.ordinary {
				trace = behaviour.OrdinaryTrace
			}
			client := dialProxy(t, p)
			say(t, client, c.ask("00-"+trace.String()+"-00f067aa0ba902b7-01"))
			conn := theConn(t, p)
			eventually(t, "it does not connect", func() bool {
				return conn.connecting.Load() != nil && (!c.silent || conn.up.shared.Load() != nil)
			})
			if c.resets {
				_ = client.SetLinger(0) // the callee sees what it does
			}
			_ = client.Close()
			eventually(t, "it is not let go", func() bool { return p.metrics.open.Load() == 0 })
			if n := p.metrics.get(metricUpstreamErrors) + p.metrics.get(metricTLSErrors); n != 0 {
				t.Errorf("%d errors", n)
			}
			if c.spans == 0 {
				if n := p.metrics.get(metricEvents); n != 0 {
					t.Errorf("%d calls were judged", n)
				}
				return
			}
			for _, s := range e.Spans(t.Context(), key, func(all []behaviour.Span) bool { return len(all) >= c.spans }) {
				if s.Attributes[span.Unsent] != true {
					t.Errorf("%v", s.Attributes)
				}
			}
		})
	}
}

// TestHalfCloseWhileConnecting says that a client which half-closes its connection gets its
// answer, though the upstream is not there yet.
func TestHalfCloseWhileConnecting(t *testing.T) {
	upstream, accept := fullPort(t)
	p := lastFrameProxy(t, upstream)
	client := dialProxy(t, p)
	say(t, client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn := theConn(t, p)
	eventually(t, "it does not connect", func() bool {
		return conn.connecting.Load() != nil && hasLeft(conn.down.shared.Load())
	})
	for range 3 { // the first one sees that something has moved
		p.conns.sweep(p.now())
	}
	accept()
	b := make([]byte, len(plainAnswer))
	if n, err := io.ReadFull(client, b); err != nil || string(b) != plainAnswer {
		t.Errorf("client got %q, %v", b[:n], err)
	}
}

// TestLeftWhileConnectingAnew says that a request counts as never sent on only if it has not
// been written to a kept connection either, which turned out to be closed.
func TestLeftWhileConnectingAnew(t *testing.T) {
	full, _ := fullPort(t)
	p := startProxy(t, outboundTo(full))
	for _, kept := range []bool{true, false} {
		c := &conn{proxy: p, listener: p.listeners[0], target: full, exchange: new(exchange)}
		c.message, c.repeatable, c.reqBody.done = []byte(ordinaryRequest), true, true
		if kept {
			tcp, err := net.Dial("tcp", rawServer(t, func(conn *net.TCPConn, _ int) { _, _ = conn.Read(make([]byte, 4096)) }))
			if err == nil {
				err = c.up.open(tcp.(*net.TCPConn))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		sent := make(chan error, 1)
		go func() { sent <- c.send(false) }()
		eventually(t, "it does not connect", func() bool { return c.connecting.Load() != nil })
		c.cut()
		if err := <-sent; !errors.Is(err, errClientGone) || errors.Is(err, errUnsent) == kept {
			t.Errorf("kept connection %v: %v", kept, err)
		}
		c.end()
	}
}
