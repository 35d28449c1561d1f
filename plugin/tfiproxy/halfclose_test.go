package tfiproxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// theConn returns the only connection of a sidecar.
func theConn(t *testing.T, p *Proxy) *conn {
	t.Helper()
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	for s := range p.conns.all {
		return s.(*conn)
	}
	t.Fatal("no connection")
	return nil
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
	release, got := make(chan struct{}), make(chan int64, 1)
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		<-release
		n, _ := io.Copy(io.Discard, conn)
		got <- n
		_, _ = io.WriteString(conn, plainAnswer)
	})))
	conn := dialProxy(t, p)
	sent := int64(0)
	send := func(b string) { say(t, conn, b); sent += int64(len(b)) }
	send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
	eventually(t, "no upstream", func() bool { return theConn(t, p).up.shared.Load() != nil })
	c := theConn(t, p)
	piece := string(make([]byte, 48<<10))
	for !c.up.writing.Load() {
		send(piece)
		eventually(t, "piece not taken", func() bool {
			return c.up.writing.Load() || look(c.down.shared.Load(), false) == peerThere
		})
	}
	if s := look(c.down.shared.Load(), false); s != peerThere {
		t.Skip("the sidecar is blocked before the client's last bytes")
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * p.cfg.Timeouts.Tick) // what must not happen would have
	close(release)
	if n := <-got; n != sent {
		t.Errorf("the callee got %d bytes of %d", n, sent)
	}
	b := make([]byte, len(plainAnswer))
	if n, err := io.ReadFull(conn, b); err != nil {
		t.Errorf("client got %q, %v", b[:n], err)
	}
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
