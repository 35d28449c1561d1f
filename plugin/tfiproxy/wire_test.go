package tfiproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// rawServer runs serve on every connection to it.
func rawServer(t testing.TB, serve func(c *net.TCPConn, n int)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn), n)
			}()
		}
	}()
	return l.Addr().String()
}

// httpServer answers requests by Go's own server.
func httpServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &both}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return l.Addr().String()
}

func outboundTo(upstream string) *Config {
	return &Config{Listeners: []Listener{{Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: upstream, Cluster: "cart"}}}
}

func dialProxy(t testing.TB, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr(0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func say(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedRequests sends what must not reach the callee.
func TestRefusedRequests(t *testing.T) {
	var calls atomic.Int32
	p := startProxy(t, outboundTo(httpServer(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })))
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		{"length and chunked", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"folded", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400},
		{"other coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		{"version", "GET / HTTP/1.9\r\nHost: a\r\n\r\n", 505},
		{"bad chunk at once", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"head too large", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialProxy(t, p)
			go func() { _, _ = io.WriteString(conn, c.request) }() // it may be cut off
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.status || !resp.Close {
				t.Errorf("status %d, closes %v; want %d", resp.StatusCode, resp.Close, c.status)
			}
			if _, err := r.ReadByte(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the callee saw %d requests", n)
	}
}

// TestBytesForBytes passes messages through and compares every byte.
func TestBytesForBytes(t *testing.T) {
	for _, c := range []struct{ name, request, answer string }{
		{"odd but legal head", "GET /a?b=%zz HTTP/1.1\r\nhOsT:a\r\nX-Odd:\t 1 \r\nX-Odd: 2\r\n\r\n", "HTTP/1.1 299 Odd  phrase\r\nServer:  x\r\ncontent-LENGTH: 2\r\n\r\nab"},
		{"chunks and trailers", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;q=\"x\"\r\na\r\n0\r\nT: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n02\r\nab\r\n0\r\nT: 2\r\n\r\n"},
		{"absolute target", "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"interim answers", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"},
	} {
		t.Run(c.name, func(t *testing.T) {
			saw := make(chan string, 1)
			p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
				b := make([]byte, len(c.request))
				n, _ := io.ReadFull(conn, b)
				saw <- string(b[:n])
				_, _ = io.WriteString(conn, c.answer)
				_, _ = conn.Read(b)
			})))
			conn := dialProxy(t, p)
			say(t, conn, c.request)
			b := make([]byte, len(c.answer))
			if n, err := io.ReadFull(conn, b); err != nil || string(b) != c.answer {
				t.Errorf("client got %q, %v", b[:n], err)
			}
			if got := <-saw; got != c.request {
				t.Errorf("callee got %q", got)
			}
		})
	}
}

func TestPipelining(t *testing.T) {
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.URL.Path+":"), r.Body))
	})))
	conn := dialProxy(t, p)
	var b strings.Builder
	const n = 200
	for i := range n {
		fmt.Fprintf(&b, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n%04d", i, i)
	}
	go func() { _, _ = io.WriteString(conn, b.String()) }()
	r := bufio.NewReader(conn)
	for i := range n {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if want := fmt.Sprintf("/%d:%04d", i, i); err != nil || string(body) != want {
			t.Fatalf("answer %d is %q, %v", i, body, err)
		}
	}
}

// TestHalfClose says that a client that has sent its end still gets its answer.
func TestHalfClose(t *testing.T) {
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = io.ReadAll(conn) // to the client's end
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nlate")
	})))
	conn := dialProxy(t, p)
	say(t, conn, "GET / HTTP/1.0\r\n\r\n")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || !bytes.HasSuffix(b, []byte("late")) {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestCancel says that the callee sees a client that goes away while it waits.
func TestCancel(t *testing.T) {
	reached, gone := make(chan struct{}), make(chan struct{})
	p := startProxy(t, outboundTo(httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
		close(gone)
	})))
	conn := dialProxy(t, p)
	say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-reached
	_ = conn.Close()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the callee works on for nobody")
	}
}

// TestStaleUpstream says that a connection that the callee closed while idle costs
// no request, whatever its method.
func TestStaleUpstream(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			closed := make(chan struct{}, 10)
			p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
				_ = conn.Close()
				closed <- struct{}{}
			})))
			conn := dialProxy(t, p)
			r := bufio.NewReader(conn)
			for i := range 3 {
				say(t, conn, method+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab")
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(i, err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close() // it has been read
				if err != nil || string(b) != "x" || resp.StatusCode != 200 {
					t.Fatalf("answer %d: %d %q %v", i, resp.StatusCode, b, err)
				}
				<-closed
			}
		})
	}
}

func TestUpstreamFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	_ = l.Close()
	for _, c := range []struct {
		name   string
		config *Config
		status int
	}{
		{"nobody listens", outboundTo(nowhere), 503},
		{"closes at once", outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) { _, _ = conn.Read(make([]byte, 1000)) })), 503},
		{"talks nonsense", outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = conn.Read(make([]byte, 1000))
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH\r\n\r\n")
		})), 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialProxy(t, startProxy(t, c.config))
			r := bufio.NewReader(conn)
			for range 2 { // the connection goes on
				say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != c.status {
					t.Errorf("status %d, want %d", resp.StatusCode, c.status)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// TestBrokenAnswer says that half an answer is never taken for a whole one.
func TestBrokenAnswer(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
	} {
		p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = conn.Read(make([]byte, 1000))
			_, _ = io.WriteString(conn, answer)
		})))
		conn := dialProxy(t, p)
		say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			continue // nothing came at all: as good
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err == nil {
			t.Errorf("%q was taken for whole: %q", answer, b)
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	cfg := outboundTo(echoHTTP1(t, plainAnswer))
	cfg.Limits.Connections = 2
	p := startProxy(t, cfg)
	for range 2 {
		conn := dialProxy(t, p)
		say(t, conn, ordinaryRequest)
		if _, err := io.ReadFull(conn, make([]byte, len(plainAnswer))); err != nil {
			t.Fatal(err)
		}
	}
	third := dialProxy(t, p)
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("the third got %d bytes", n)
	}
	if got := p.metrics.get(metricRefused); got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
}

// TestUnseen passes TLS through as bytes, both ways, each end with its own close.
func TestUnseen(t *testing.T) {
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		b, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(b))
	})))
	conn := dialProxy(t, p)
	say(t, conn, "\x16\x03\x01hello")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || string(b) != "\x16\x03\x01HELLO" {
		t.Errorf("got %q, %v", b, err)
	}
	if got := p.metrics.get(metricUnseen); got != 1 {
		t.Errorf("%d unseen, want 1", got)
	}
}
