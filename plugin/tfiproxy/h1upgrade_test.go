package tfiproxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
)

func TestDeclineHTTP2(t *testing.T) {
	const settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
	for _, c := range []struct{ name, head, want string }{
		{"as curl asks", "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + settings + "X: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl\r\nX: 1\r\n\r\n"},
		{"with other options", "GET / HTTP/1.1\r\nHost: a\r\nconnection:keep-alive , HTTP2-Settings,Upgrade,, te \r\n" + settings + "upgrade:\tH2C\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nconnection:keep-alive,te\r\n\r\n"},
		{"two Connections", "GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "GET / HTTP/1.1\r\nConnection:close\r\nHost: a\r\n\r\n"},
		{"without settings", "GET / HTTP/1.0\r\nUpgrade: h2c\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"},
		{"websocket", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ""},
		{"one of several", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection:Upgrade\r\nUpgrade:websocket\r\n\r\n"},
		{"twice in a list", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, h2c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"on two lines", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"several", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection:Upgrade\r\nUpgrade:websocket\r\n\r\n"},
		{"HTTP/2 over TLS", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2\r\n\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h requestHead
			if err := h.scan([]byte(c.head), ""); err != nil || h.h2c != (c.want != "") {
				t.Fatalf("offers HTTP/2: %v, %v", h.h2c, err)
			}
			if c.want == "" {
				return
			}
			const rest = "body and GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n"
			b := []byte(c.head + rest)
			if got := string(b[:declineHTTP2(b, len(c.head))]); got != c.want+rest {
				t.Errorf("%q, want %q", got, c.want+rest)
			}
		})
	}
}

// TestUpgradeHTTP2 says that a client that offers to go on with HTTP/2 goes on with
// HTTP/1.1, and stays seen, whatever the callee would have liked.
func TestUpgradeHTTP2(t *testing.T) {
	saw := make(chan string, 2)
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			saw <- string(b[:n])
			answer := plainAnswer
			if bytes.Contains(bytes.ToLower(b[:n]), []byte("h2c")) {
				answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
			}
			_, _ = io.WriteString(conn, answer)
		}
	})))
	conn := dialProxy(t, p)
	for range 2 {
		say(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nContent-Length: 3\r\n\r\nabc")
		b := make([]byte, len(plainAnswer))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != plainAnswer {
			t.Fatalf("%q, %v", b, err)
		}
		if got := <-saw; got != "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" {
			t.Errorf("callee got %q", got)
		}
	}
	if seen, unseen := p.metrics.get(metricRequests), p.metrics.get(metricUnseen); seen != 2 || unseen != 0 {
		t.Errorf("%d seen, %d unseen", seen, unseen)
	}
}

func FuzzDeclineHTTP2(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", "rest")
	f.Add("GET / HTTP/1.1\r\nHost: a\r\nConnection: ,x,upgrade\r\nUpgrade: h2c\r\nConnection:\r\n\r\n", "")
	f.Fuzz(func(t *testing.T, head, rest string) {
		var before, after requestHead
		if headEnd([]byte(head), 0) != len(head) || before.scan([]byte(head), "") != nil || !before.h2c {
			return
		}
		b := []byte(head + rest)
		b = b[:declineHTTP2(b, len(head))]
		if !strings.HasSuffix(string(b), rest) {
			t.Fatalf("%q lost what follows", b)
		}
		now := b[:len(b)-len(rest)]
		if headEnd(now, 0) != len(now) {
			t.Fatalf("%q is no head", now)
		}
		if err := after.scan(now, ""); err != nil || after.upgrade || after.length != before.length || after.closing != before.closing ||
			after.keepAlive != before.keepAlive || string(after.target) != string(before.target) || after.hosts != before.hosts {
			t.Fatalf("%q became %q: %v", head, now, err)
		}
	})
}
