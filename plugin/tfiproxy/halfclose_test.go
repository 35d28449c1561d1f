package tfiproxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// theConn returns the only connection of a sidecar, once it has been accepted.
func theConn(t *testing.T, p *Proxy) (c *conn) {
	t.Helper()
	eventually(t, "no connection", func() bool {
		p.conns.mu.Lock()
		defer p.conns.mu.Unlock()
		for s := range p.conns.all {
			c = s.(*conn)
		}
		return c != nil
	})
	return c
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestHalfClosedUpload says that a callee which is slow to take an upload gets all of it
// when its client has half-closed meanwhile, and then the end.
func TestHalfClosedUpload(t *testing.T) {
	const attempts = 50
	for range attempts {
		if halfClosedUpload(t) {
			return
		}
	}
	t.Errorf("in %d uploads the sidecar never had all of one, and waited for its callee", attempts)
}

// halfClosedUpload makes an upload of which the callee takes nothing before its client has
// half-closed, and reports whether the sweeper has seen that while the sidecar had all of it
// and was blocked. Otherwise some of it was still in the client's socket, as it may be.
func halfClosedUpload(t *testing.T) (swept bool) {
	t.Helper()
	release, got := make(chan struct{}), make(chan int64, 1)
	p := lastFrameProxy(t, rawServer(t, func(conn *net.TCPConn, _ int) {
		<-release
		n, _ := io.Copy(io.Discard, conn)
		got <- n
		_, _ = io.WriteString(conn, plainAnswer)
	}))
	conn := dialProxy(t, p)
	sent := int64(0)
	send := func(b string) { say(t, conn, b); sent += int64(len(b)) }
	send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
	eventually(t, "no upstream", func() bool { return theConn(t, p).up.shared.Load() != nil })
	c := theConn(t, p)
	down := c.down.shared.Load()
	piece := string(make([]byte, 16<<10))
	for !c.up.writing.Load() {
		send(piece)
		eventually(t, "piece not taken", func() bool { return c.up.writing.Load() || look(down, false) == peerThere })
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end does not come", func() bool { return hasLeft(down) })
	blocked := func() bool { return c.up.writing.Load() && look(down, false) == peerDone }
	swept = blocked()
	for range 3 { // the first one sees that something has moved
		p.conns.sweep(p.now())
	}
	swept = swept && blocked()
	close(release)
	if n := <-got; n != sent {
		t.Errorf("the callee got %d bytes of %d", n, sent)
	}
	b := make([]byte, len(plainAnswer))
	if n, err := io.ReadFull(conn, b); err != nil {
		t.Errorf("client got %q, %v", b[:n], err)
	}
	return swept
}

// TestTLSShortRecord says that two bytes, which look like a goodbye on the wire, are
// none: an old client ends its body with an empty line that does not belong to it.
func TestTLSShortRecord(t *testing.T) {
	a := newAuthority(t)
	reached, ended := make(chan struct{}), make(chan bool, 1)
	p := startProxy(t, a.terminating(t, rawServer(t, func(conn *net.TCPConn, _ int) {
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		close(reached)
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // ten ticks
		_, err = r.ReadByte()
		ended <- err == io.EOF //nolint:errorlint // returned as it is
		_, _ = io.WriteString(conn, plainAnswer)
	})))
	conn := tls.Client(dialProxy(t, p), &tls.Config{RootCAs: a.pool, ServerName: "shop"})
	say(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz")
	<-reached
	say(t, conn, "\r\n")
	if <-ended {
		t.Error("the callee was told that its client has gone")
	}
	if _, err := io.ReadFull(conn, make([]byte, len(plainAnswer))); err != nil {
		t.Error(err)
	}
}

// corked is a connection that keeps what is written until it is told to send all at once.
type corked struct {
	*net.TCPConn
	on bool
	b  []byte
}

// Write implements [net.Conn].
func (c *corked) Write(b []byte) (int, error) {
	if !c.on {
		return c.TCPConn.Write(b)
	}
	c.b = append(c.b, b...)
	return len(b), nil
}

// send sends what has been kept.
func (c *corked) send() error {
	err := c.SetWriteDeadline(time.Time{}) // which package tls lets run out
	if err == nil {
		_, err = c.TCPConn.Write(c.b)
	}
	return err
}

// TestHalfClosePipeline says that requests which a client has sent before its end all get
// their answers, and reach the callee before its end, though the client has ended while
// the last but one was waited for. Package tls may have read what follows a request.
func TestHalfClosePipeline(t *testing.T) {
	const tick = 20 * time.Millisecond
	post := func(path, size int) string {
		head := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: ", path)
		rest := size - len(head) - len("1234\r\n\r\n")
		return fmt.Sprintf("%s%04d\r\n\r\n%s", head, rest, strings.Repeat("x", rest))
	}
	for _, c := range []struct {
		name  string
		sizes []int
		tls   bool
		once  bool // all requests are in one record
	}{
		{name: "plain", sizes: []int{80, 80, 80}},
		{name: "TLS", sizes: []int{80, 80, 80}, tls: true},
		{name: "TLS, requests fill a buffer", sizes: []int{smallBuffer / 2, smallBuffer / 2, 80}, tls: true, once: true},
		{name: "TLS, a request in pieces", sizes: []int{80, smallBuffer + 1000, 80}, tls: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan struct{})
			upstream := rawServer(t, func(conn *net.TCPConn, _ int) {
				r := bufio.NewReader(conn)
				for i := range c.sizes {
					req, err := http.ReadRequest(r)
					if err == nil {
						_, err = io.Copy(io.Discard, req.Body)
					}
					if err != nil {
						t.Errorf("request %d: %v", i, err)
						return
					}
					if i == len(c.sizes)-2 {
						<-ended
						_ = conn.SetReadDeadline(time.Now().Add(10 * tick))
						if _, err := r.Peek(1); err == io.EOF {
							t.Error("the callee was told of an end before the last request")
						}
						_ = conn.SetReadDeadline(time.Time{})
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_, _ = r.Peek(1) // to the client's end
			})
			cfg, a := outboundTo(upstream), newAuthority(t)
			if c.tls {
				cfg = a.terminating(t, upstream)
			}
			cfg.Timeouts.Tick = tick
			raw := &corked{TCPConn: dialProxy(t, startProxy(t, cfg))}
			var conn net.Conn = raw
			end := func() error { return nil }
			if c.tls {
				secure := tls.Client(raw, &tls.Config{RootCAs: a.pool, ServerName: "shop", DynamicRecordSizingDisabled: true})
				if err := secure.Handshake(); err != nil {
					t.Fatal(err)
				}
				conn, end = secure, secure.CloseWrite
			}
			raw.on = true
			var all string
			for i, size := range c.sizes {
				all += post(i, size)
				if !c.once {
					say(t, conn, post(i, size))
				}
			}
			if c.once {
				say(t, conn, all)
			}
			if err := errors.Join(end(), raw.send(), raw.CloseWrite()); err != nil {
				t.Fatal(err)
			}
			close(ended)
			r := bufio.NewReader(conn)
			for i := range c.sizes {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("answer %d has status %d", i, resp.StatusCode)
				}
			}
		})
	}
}
