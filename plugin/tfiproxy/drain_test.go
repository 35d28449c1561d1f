package tfiproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestDrainHTTP1 says that a client is told when its answer is the last one, and
// that what it has sent already is still answered.
func TestDrainHTTP1(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(reached)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})))
	conn := dialProxy(t, p)
	r := bufio.NewReader(conn)
	get := func() (body string, closes bool) {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err != nil {
			t.Fatal(err)
		}
		return string(b), resp.Close
	}
	say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if body, closes := get(); body != "done" || closes {
		t.Errorf("before: %q, closes %v", body, closes)
	}
	say(t, conn, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-reached
	idle := dialProxy(t, p)
	p.Drain()
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection goes on")
	}
	close(release)
	if body, closes := get(); body != "done" || !closes {
		t.Errorf("while it drains: %q, closes %v", body, closes)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDrainHeld says that a fault which was to be made of an answer is not, or is let go,
// where a drain has run out before there was one: nobody gets it.
func TestDrainHeld(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, begins := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %v, answer begun %v", http2, begins), func(t *testing.T) {
				asked := make(chan struct{})
				upstream := rawServer(t, func(conn *net.TCPConn, _ int) {
					r := bufio.NewReader(conn)
					_, _ = r.Peek(len(preface) + 3*frameHeaderSize) // SETTINGS, and a request
					if begins {
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
					}
					close(asked)
					_, _ = io.Copy(io.Discard, r) // to the sidecar's end
				})
				if http2 && begins {
					upstream = beginningServer(t, 3, false)
				}
				cfg := outboundTo(upstream)
				cfg.Timeouts.Hold, cfg.Timeouts.Drain = time.Minute, 50*time.Millisecond
				p, trace := faultProxy(t, cfg, "GET /", tfiv1.Phase_PHASE_RESP, errorFault(418, nil))
				if http2 {
					if err := newH2Peer(t, p).ask(1, true, "traceparent", trace); err != nil {
						t.Fatal(err)
					}
				} else {
					say(t, dialProxy(t, p), "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: "+trace+"\r\n\r\n")
				}
				want := uint64(0)
				if begins {
					want = 1
					eventually(t, "it is not held", func() bool { return p.metrics.get(metricErrors) == 1 })
				} else {
					<-asked
				}
				p.Drain()
				eventually(t, "it is not gone", func() bool { return p.metrics.open.Load() == 0 })
				if n := p.metrics.get(metricErrors); n != want {
					t.Errorf("%d faults", n)
				}
				if n := p.metrics.get(metricLetGo); n != want {
					t.Errorf("%d let go, want %d", n, want)
				}
			})
		}
	}
}

// TestBareLF says that a head whose lines end in bare LFs is refused at once: its end
// would never come.
func TestBareLF(t *testing.T) {
	answer := "HTTP/1.1 200 OK\nContent-Length: 0\n\n"
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = conn.Read(make([]byte, 1000))
		_, _ = io.WriteString(conn, answer)
		_, _ = conn.Read(make([]byte, 1000))
	})))
	for _, c := range []struct {
		name   string
		pieces []string
		status int
	}{
		{"all", []string{"GET / HTTP/1.0\n\n"}, 400},
		{"a line", []string{"GET / HTTP/1.1\r\nHost: a\n"}, 400},
		{"in pieces", []string{"GET / HTTP/1.1\r", "\nHost: a", "\n"}, 400},
		{"answer", []string{"GET / HTTP/1.1\r", "\nHost: a\r\n\r", "\n"}, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialProxy(t, p)
			for _, piece := range c.pieces {
				say(t, conn, piece)
				time.Sleep(2 * time.Millisecond) // in a packet of its own
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
		})
	}
}
