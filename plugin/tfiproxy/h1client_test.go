package tfiproxy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestClient has the sidecar's own client read answers of all forms.
func TestClient(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int // 0: none that can be used
		body         string
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc"},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n", 200, "abcde"},
		{"to the end", "HTTP/1.0 200 OK\r\n\r\nabc", 200, "abc"},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"half", "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nabc", 0, ""},
		{"malformed", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", 0, ""},
		{"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 0, ""},
		{"head too large", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100<<10), 0, ""},
		{"too large", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("a", maxReply+1), 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &client{address: rawServer(t, func(conn *net.TCPConn, _ int) {
				_, _ = conn.Read(make([]byte, 1000))
				_, _ = io.WriteString(conn, c.answer)
			}), connect: time.Second}
			defer l.close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 { // the second finds the connection closed, or closes one
				r, err := l.do(ctx, "GET", "/", "a", "", nil)
				if (err == nil) != (c.status != 0) || r.status != c.status || string(r.body) != c.body {
					t.Errorf("%d %.20q, %v", r.status, r.body, err)
				}
			}
		})
	}
}

// TestClientUnasked says that what a server says to a kept connection is no answer.
func TestClientUnasked(t *testing.T) {
	const farewell = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
	for _, together := range []bool{true, false} {
		heard, said := make(chan struct{}, 1), make(chan error, 1)
		l := &client{address: rawServer(t, func(conn *net.TCPConn, _ int) {
			for {
				if _, err := conn.Read(make([]byte, 1000)); err != nil {
					return
				}
				answer := plainAnswer
				if together {
					answer += farewell
				}
				_, err := io.WriteString(conn, answer)
				if !together {
					<-heard // it is behind the answer, not with it
					_, err = io.WriteString(conn, farewell)
				}
				said <- err
			}
		}), connect: time.Second}
		for range 3 {
			r, err := l.do(t.Context(), "GET", "/", "a", "", nil)
			if err != nil || r.status != 200 {
				t.Errorf("together %v: %d, %v", together, r.status, err)
			}
			if !together {
				heard <- struct{}{}
			}
			if err := <-said; err != nil {
				t.Fatal(err)
			}
		}
		l.close()
	}
}
