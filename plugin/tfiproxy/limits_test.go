package tfiproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestMalformedLater says that a request which turns out to be malformed when half of
// it has been sent never looks whole to the callee, and that its client is told.
func TestMalformedLater(t *testing.T) {
	got := make(chan string, 1)
	begun := make(chan struct{})
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		var b bytes.Buffer
		_, _ = io.CopyN(&b, conn, 20) // its loss
		close(begun)
		_, _ = io.Copy(&b, conn)
		got <- b.String()
	})))
	conn := dialProxy(t, p)
	head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
	say(t, conn, head)
	<-begun
	say(t, conn, "3\nabc\n0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 400 || !resp.Close {
		t.Errorf("status %d, closes %v", resp.StatusCode, resp.Close)
	}
	if b := <-got; !strings.HasPrefix(head, b) {
		t.Errorf("the callee got %q", b)
	}
	if n := p.metrics.get(metricMalformed); n != 1 {
		t.Errorf("%d counted, want 1", n)
	}
}

// TestSlowBodies says that a body which does not move is cut, in either direction, and
// that one which moves slowly is not.
func TestSlowBodies(t *testing.T) {
	for _, c := range []struct {
		name string
		slow bool // else it stalls
	}{{"stalls", false}, {"moves slowly", true}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err == nil {
					_, _ = w.Write(b)
				}
			}))
			cfg.Timeouts.Stall = 150 * time.Millisecond
			p := startProxy(t, cfg)
			conn := dialProxy(t, p)
			say(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
			if c.slow {
				for range 10 {
					time.Sleep(40 * time.Millisecond) // in all more than the time-out
					say(t, conn, "x")
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if (err == nil) != c.slow {
				t.Fatal(err)
			}
			if n := p.metrics.get(metricTimeouts); (n == 0) != c.slow {
				t.Errorf("%d time-outs", n)
			}
			if err == nil {
				if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "xxxxxxxxxx" {
					t.Errorf("%q, %v", b, err)
				}
				_ = resp.Body.Close() // it has been read
			}
		})
	}
}

// TestBodyLimits says what may stand between the data of a chunked body.
func TestBodyLimits(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		ok          bool
	}{
		{"extension", "1;" + strings.Repeat("a", maxChunkLine), true},
		{"extension too long", "1;" + strings.Repeat("a", maxChunkLine+1), false},
		{"trailers", "0\r\n" + strings.Repeat("a: "+strings.Repeat("b", 1000)+"\r\n", maxTrailers/1003), true},
		{"trailers too long", "0\r\n" + strings.Repeat("a: "+strings.Repeat("b", 1000)+"\r\n", maxTrailers/1003+1), false},
	} {
		var s body
		s.begin(lengthChunked)
		if _, err := s.consume([]byte(c.bytes)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestHTTP2StreamLimit says that a client which opens more streams than it may is
// refused those, and keeps the others.
func TestHTTP2StreamLimit(t *testing.T) {
	cfg := outboundTo(waitingServer(t))
	cfg.Limits.Streams = 3
	c := newH2Peer(t, startProxy(t, cfg))
	for id := uint32(1); id < 10; id += 2 {
		if err := c.ask(id, true, "x-wait", "1"); err != nil {
			t.Fatal(err)
		}
	}
	for refused := 0; refused < 2; refused++ {
		c.until(t, func(f http2.Frame) bool {
			r, ok := f.(*http2.RSTStreamFrame)
			if ok && (r.ErrCode != http2.ErrCodeRefusedStream || r.StreamID < 7) {
				t.Errorf("%v", r)
			}
			return ok
		})
	}
	if err := errors.Join(c.WriteRSTStream(1, http2.ErrCodeCancel), c.ask(11, true)); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool { h, ok := f.(*http2.MetaHeadersFrame); return ok && h.StreamID == 11 })
}

// TestConnect says that a tunnel is one, whatever goes through it, and counts as
// unseen.
func TestConnect(t *testing.T) {
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, int64(len("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"))))); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nhello ")
		_, _ = io.Copy(conn, conn)
	})))
	conn := dialProxy(t, p)
	say(t, conn, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\nHTTP/1.1 \x00\n\n")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if want := "HTTP/1.1 200 OK\r\n\r\nhello HTTP/1.1 \x00\n\n"; err != nil || string(b) != want {
		t.Errorf("%q, %v", b, err)
	}
	if n := p.metrics.get(metricUnseen); n != 1 {
		t.Errorf("%d unseen, want 1", n)
	}
}
