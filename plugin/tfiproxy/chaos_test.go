package tfiproxy

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

var chaosRequests = flag.Int("chaos", 4000, "requests of the chaos test; 100000 for the whole of it")

// chaosAnswer is the body of the answer to request n; one in eleven is long enough to go
// past the sidecar's memory.
func chaosAnswer(n int) string {
	times := 1 + n%3000
	if n%11 == 0 {
		times *= 10
	}
	return strings.Repeat(strconv.Itoa(n)+" ", times)
}

// chaosUpload is a body of request n, and as long in one of thirteen.
func chaosUpload(n int) []byte {
	size := rand.N(3000) * (n % 5)
	if n%13 == 0 {
		size *= 10
	}
	return bytes.Repeat([]byte(strconv.Itoa(n)+" "), size)[:size]
}

// badCallee answers HTTP/1 requests by what their id says: mostly well, and in
// every way that a peer can go wrong.
func badCallee(conn ends, _ int) {
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		id := req.Header.Get("X-Id")
		n, _ := strconv.Atoi(id)
		if n%29 != 3 { // else it answers before it has read
			upload, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if !bytes.HasPrefix(bytes.Repeat([]byte(id+" "), len(upload)), upload) {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmixed")
				return
			}
		}
		body := chaosAnswer(n)
		switch n % 31 {
		case 1: // resets
			_ = conn.SetLinger(0)
			return
		case 2: // stops in the middle
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body)+10, body)
			return
		case 4: // never answers
			_, _ = r.Peek(1)
			return
		case 5: // says more than it promised
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", len(body), body)
		case 6: // lies about chunks
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntoo long for five\r\n0\r\n\r\n")
		case 7: // two lengths
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc")
		case 8: // half-closes and answers
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+body)
			_ = conn.CloseWrite()
			_, _ = io.Copy(io.Discard, r)
			return
		case 9: // resets in the middle of a chunk
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc")
			_ = conn.SetLinger(0)
			return
		case 10, 11, 12:
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", len(body), body)
		default:
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	}
}

// TestChaos: no request is stuck, none gets another's answer, and afterwards all is
// as before.
func TestChaos(t *testing.T) {
	for _, m := range chaosModes(t, alpnHTTP1) {
		t.Run(m.name, func(t *testing.T) { chaos(t, &m) })
	}
}

func chaos(t *testing.T, m *chaosMode) {
	cfg := m.config(t, badCallee)
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
	cfg.Timeouts = Timeouts{Head: time.Second, Stall: 500 * time.Millisecond, Hold: 200 * time.Millisecond, Tick: 20 * time.Millisecond}
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	var next, whole, broken atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			var conn ends
			var r *bufio.Reader
			for {
				n := int(next.Add(1))
				if n > m.requests {
					break
				}
				if m.a != nil && n%37 == 7 {
					m.chaosHandshake(t, p, n)
					continue
				}
				if conn == nil {
					c, err := m.dial(p)
					if err != nil {
						t.Error(err)
						return
					}
					if !m.shakes(c) {
						_ = c.Close() // it has been cut
						continue
					}
					conn, r = c, bufio.NewReader(c)
				}
				again, ok := chaosCall(t, conn, r, n, key)
				if ok {
					whole.Add(1)
				} else {
					broken.Add(1)
				}
				if !again {
					_ = conn.Close()
					conn = nil
				}
			}
			if conn != nil {
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	t.Logf("%d whole, %d broken", whole.Load(), broken.Load())
	if calls := whole.Load() + broken.Load(); whole.Load() < m.atLeast(calls) || calls == 0 {
		t.Errorf("only %d of %d came whole", whole.Load(), calls)
	}
	for end := time.Now().Add(10 * time.Second); p.metrics.open.Load() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d connections are stuck\n%s", p.metrics.open.Load(), b[:runtime.Stack(b, true)])
		}
	}
	if n := p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d internal errors", n)
	}
	m.handshakes(t, p)
	runtime.GC()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if after.HeapInuse > 64<<20 {
		t.Errorf("heap of %d MiB", after.HeapInuse>>20)
	}
}

// chaosCall makes one call in the manner that n says. again: the connection can
// be used again; ok: the answer came whole, and is right.
func chaosCall(t *testing.T, conn ends, r *bufio.Reader, n int, key tfi.Key) (again, ok bool) {
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return false, false
	}
	trace, evidence := behaviour.OrdinaryTrace, ""
	switch n % 3 {
	case 0:
		trace = tfi.NewTraceID(key, uint64(n))
	case 1: // of a trial that is not here
		trace = tfi.NewTraceID(behaviour.NewKey(), uint64(n))
	}
	if n%2 == 0 {
		evidence = "x-fic-evidence: AQEBAQ\r\n"
	}
	body := chaosUpload(n)
	head := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: a\r\nX-Id: %d\r\ntraceparent: 00-%s-00f067aa0ba902b7-01\r\n%s", n, n, trace, evidence)
	var message string
	if n%4 == 0 {
		message = head + "Transfer-Encoding: chunked\r\n\r\n"
		if len(body) > 0 {
			message += fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
		}
		message += "0\r\n\r\n"
	} else {
		message = head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	switch n % 37 {
	case 1: // leaves in the middle of its request
		_, _ = io.WriteString(conn, message[:len(message)/2])
		return false, false
	case 2: // leaves without its answer
		_, _ = io.WriteString(conn, message)
		return false, false
	case 3: // breaks
		_, _ = io.WriteString(conn, message)
		_ = conn.SetLinger(0)
		return false, false
	case 5: // says nonsense
		_, _ = io.WriteString(conn, "\x00\x01\x02\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		return false, false
	case 6: // stalls
		_, _ = io.WriteString(conn, message[:len(message)-1])
		_, _ = io.Copy(io.Discard, conn)
		return false, false
	}
	if n%31 == 4 { // the callee will not answer
		_, _ = io.WriteString(conn, message)
		time.Sleep(time.Millisecond)
		return false, false
	}
	if n%7 == 0 {
		at := rand.N(len(message))
		if _, err := io.WriteString(conn, message[:at]); err != nil {
			return false, false
		}
		runtime.Gosched()
		message = message[at:]
	}
	if _, err := io.WriteString(conn, message); err != nil {
		return false, false
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("request %d is stuck", n)
		}
		return false, false
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	if err != nil {
		return false, false
	}
	if resp.StatusCode != 200 {
		return !resp.Close, false
	}
	if string(got) != chaosAnswer(n) {
		t.Errorf("request %d got %.60q", n, got)
	}
	return !resp.Close, true
}
