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

// TestUnaskedAnswer says that what a callee sends to an idle connection, as the 408
// with which some take their leave, is no answer to the next request.
func TestUnaskedAnswer(t *testing.T) {
	heard, said := make(chan struct{}, 1), make(chan error, 1)
	defer close(heard)
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
			<-heard // it is behind the answer, not with it
			_, err = io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			said <- err
		}
	}))
	cfg.Timeouts.Tick = time.Hour // the sweeper has no part in it
	p := startProxy(t, cfg)
	conn := dialProxy(t, p)
	r := bufio.NewReader(conn)
	for i, method := range []string{"GET", "GET", "POST", "GET", "late POST", "late POST", "GET"} {
		method, late := strings.CutPrefix(method, "late ")
		head := method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
		if late {
			say(t, conn, head)
			say(t, conn, "ab")
		} else {
			say(t, conn, head+"ab")
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close() // it has been read
		heard <- struct{}{}
		if resp.StatusCode != 200 {
			t.Errorf("answer %d: %d", i, resp.StatusCode)
		}
		if err := <-said; err != nil {
			t.Fatal(err)
		}
	}
}
