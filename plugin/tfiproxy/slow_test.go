package tfiproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestEarlyAnswer says that an answer that comes before the request's body has
// ended reaches the client.
func TestEarlyAnswer(t *testing.T) {
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = conn.Read(make([]byte, 1000))
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
	})))
	conn := dialProxy(t, p)
	say(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
	go func() {
		b := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "large" || resp.StatusCode != 413 {
		t.Errorf("%d %q %v", resp.StatusCode, b, err)
	}
}

func TestTimeouts(t *testing.T) {
	stalls := rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = conn.Read(make([]byte, 1000))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		_, _ = io.ReadAll(conn)
	})
	for _, c := range []struct {
		name string
		set  func(*Timeouts)
		send string
		drip string // a byte at a time
		want uint64 // counted
	}{
		{"idle", func(t *Timeouts) { t.Idle = 50 * time.Millisecond }, "", "", 0},
		{"slow head", func(t *Timeouts) { t.Head = 100 * time.Millisecond }, "GET / HTTP/1.1\r\nX: ", strings.Repeat("a", 1000), 1},
		{"stalled answer", func(t *Timeouts) { t.Stall = 50 * time.Millisecond }, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := outboundTo(stalls)
			c.set(&cfg.Timeouts)
			p := startProxy(t, cfg)
			conn := dialProxy(t, p)
			say(t, conn, c.send)
			go func() {
				for i := range c.drip {
					if _, err := io.WriteString(conn, c.drip[i:i+1]); err != nil {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
			begun := time.Now()
			_, _ = io.Copy(io.Discard, conn)
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("cut after %v", took)
			}
			if n := p.metrics.get(metricTimeouts); n != c.want {
				t.Errorf("%d time-outs, want %d", n, c.want)
			}
		})
	}
}

// TestClientThatDoesNotRead says that it is cut, whatever it does not take.
func TestClientThatDoesNotRead(t *testing.T) {
	for _, c := range []struct{ name, upstream string }{
		{"answers", httpServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2000)) })},
		{"large answers", httpServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })},
		{"interim answers", rawServer(t, func(conn *net.TCPConn, _ int) {
			for {
				if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 4000)+"\r\n\r\n"); err != nil {
					return
				}
			}
		})},
		{"answers of the sidecar", "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := outboundTo(c.upstream)
			cfg.Timeouts.Stall = 100 * time.Millisecond
			p := startProxy(t, cfg)
			conn := dialProxy(t, p)
			many := strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1000)
			for {
				if _, err := io.WriteString(conn, many); err != nil {
					break
				}
			}
			if n := p.metrics.get(metricTimeouts); n != 1 {
				t.Errorf("%d time-outs, want 1", n)
			}
		})
	}
}

// TestDrippedPreface says that a preface has the time of a head, however it comes.
func TestDrippedPreface(t *testing.T) {
	cfg := outboundTo("127.0.0.1:1")
	cfg.Timeouts.Head = 60 * time.Millisecond
	p := startProxy(t, cfg)
	conn := dialProxy(t, p)
	for i := range len(preface) - 1 {
		_, _ = conn.Write([]byte{preface[i]}) // it may have been cut
		time.Sleep(20 * time.Millisecond)
		if p.metrics.get(metricTimeouts) == 1 {
			return
		}
	}
	t.Error("not cut")
}
