package tfiproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// numbered returns size bytes of which no eight recur, with those of another seed neither.
func numbered(seed, size int) []byte {
	b := make([]byte, 0, size+8)
	for n := uint64(seed) << 32; len(b) < size; n++ {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b[:size]
}

// emptyPipes closes the pipes that wait for their next use.
func emptyPipes() {
	idlePipes.Lock()
	defer idlePipes.Unlock()
	for _, p := range idlePipes.pipes {
		_ = syscall.Close(int(p.r))
		_ = syscall.Close(int(p.w))
	}
	idlePipes.open -= len(idlePipes.pipes)
	idlePipes.pipes = nil
}

// wasSpliced tells whether a pipe has been used, and given back, since emptyPipes.
func wasSpliced() bool {
	idlePipes.Lock()
	defer idlePipes.Unlock()
	return len(idlePipes.pipes) > 0
}

// openPipes counts the ends of pipes that the process has open.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// framed is a body in one of the ways to frame it.
func framed(how string, body []byte) string {
	switch how {
	case "length":
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	case "one chunk":
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	default: // a large one between two small ones, and a trailer
		last := len(body) - 3
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n3\r\n%s\r\n%x;x=y\r\n%s\r\n3\r\n%s\r\n0\r\nSum: 1\r\n\r\n",
			body[:3], last-3, body[3:last], body[last:])
	}
}

// echoBodies answers each request with its body, framed as the query says.
func echoBodies(t *testing.T) string {
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+framed(req.Header.Get("X-Framed"), body)); err != nil {
				return
			}
		}
	})
}

// echoed sends a body and wants it back.
func echoed(conn net.Conn, r *bufio.Reader, trace tfi.TraceID, up, down string, body []byte) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nX-Framed: "+down+"\r\ntraceparent: 00-"+trace.String()+"-00f067aa0ba902b7-01\r\n"+framed(up, body))
		sent <- err
	}()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, body):
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(body))
	case down == "many" && resp.Trailer.Get("Sum") != "1":
		return fmt.Errorf("trailers %v", resp.Trailer)
	}
	return <-sent
}

// TestSplice says that large bodies come whole however they are framed, several at a time
// and after each other, of a trial and of none.
func TestSplice(t *testing.T) {
	p, key := reportingProxy(t, "cart", echoBodies(t))
	for _, up := range []string{"length", "one chunk", "many"} {
		for _, down := range []string{"length", "one chunk", "many"} {
			t.Run(up+" up, "+down+" down", func(t *testing.T) {
				emptyPipes()
				var wg sync.WaitGroup
				for n := range 4 {
					conn := dialProxy(t, p)
					wg.Go(func() {
						trace := behaviour.OrdinaryTrace
						if n%2 == 0 {
							trace = tfi.NewTraceID(key, uint64(n))
						}
						r := bufio.NewReader(conn)
						for i, size := range []int{3 << 20, 100, spliceLeast + smallBuffer, 70 << 10, 1} {
							if size < 7 {
								size = 7
							}
							if err := echoed(conn, r, trace, up, down, numbered(n<<8+i, size)); err != nil {
								t.Errorf("connection %d, body %d: %v", n, i, err)
								return
							}
						}
					})
				}
				wg.Wait()
				if !wasSpliced() {
					t.Error("all has been copied")
				}
			})
		}
	}
}

// TestSpliceWays says that requests and answers are both spliced.
func TestSpliceWays(t *testing.T) {
	long := string(numbered(7, 1<<20))
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", strconv.Itoa(len(long)))
			_, _ = io.WriteString(w, long) // the client misses what does not come
		}
	})))
	for way, request := range map[string]string{
		"request": "POST / HTTP/1.1\r\nHost: a\r\n" + framed("length", []byte(long)),
		"answer":  "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		emptyPipes()
		conn := dialProxy(t, p)
		r := bufio.NewReader(conn)
		// When the second is served the first's pipe is given back.
		for _, request := range []string{request, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"} {
			say(t, conn, request)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Errorf("%s: %v", way, err)
			}
			_ = resp.Body.Close()
		}
		if !wasSpliced() {
			t.Errorf("a long %s is copied", way)
		}
	}
}

// TestSpliceLeavers says that what a client has not taken comes out nowhere else, and
// that no pipe stays open for it.
func TestSpliceLeavers(t *testing.T) {
	emptyPipes()
	before := openPipes(t)
	p := startProxy(t, outboundTo(echoBodies(t)))
	for n := range 20 {
		hungry := dialProxy(t, p)
		_ = hungry.SetReadBuffer(4 << 10)
		// More than all sockets hold, so that some of it waits in a pipe.
		say(t, hungry, "POST / HTTP/1.1\r\nHost: a\r\nX-Framed: length\r\n"+framed("length", numbered(2000+n, 16<<20)))
		if _, err := hungry.Read(make([]byte, 1)); err != nil { // the answer is under way
			t.Fatal(err)
		}
		_ = hungry.SetLinger(0)
		_ = hungry.Close()
		conn := dialProxy(t, p)
		if err := echoed(conn, bufio.NewReader(conn), behaviour.OrdinaryTrace, "length", "length", numbered(n, 1<<20)); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
		_ = conn.Close()
	}
	for end := time.Now().Add(5 * time.Second); p.metrics.open.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are still open", p.metrics.open.Load())
		}
	}
	if n := p.metrics.get(metricUpstreamErrors); n != 0 {
		t.Errorf("%d upstream errors where clients have left", n)
	}
	emptyPipes()
	if after := openPipes(t); after != before {
		t.Errorf("%d ends of pipes are open, before %d", after, before)
	}
}

// TestSpliceBroken says that a body that ends in the middle of what is spliced is not
// taken for whole, whichever end breaks off.
func TestSpliceBroken(t *testing.T) {
	for _, how := range []string{"length", "one chunk"} {
		whole := "HTTP/1.1 200 OK\r\n" + framed(how, numbered(1, 1<<20))
		p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = conn.Read(make([]byte, 1000))
			_, _ = io.WriteString(conn, whole[:len(whole)/2])
		})))
		conn := dialProxy(t, p)
		say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("half an answer of %s was taken for whole: %d bytes", how, len(b))
		}
		_ = resp.Body.Close()
		if n := p.metrics.get(metricUpstreamErrors); n != 1 {
			t.Errorf("%d upstream errors, want 1", n)
		}

		heard := make(chan error, 1)
		p = startProxy(t, outboundTo(httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			heard <- err
		})))
		conn = dialProxy(t, p)
		upload := "POST / HTTP/1.1\r\nHost: a\r\n" + framed(how, numbered(2, 1<<20))
		say(t, conn, upload[:len(upload)/2])
		_ = conn.Close()
		if err := <-heard; err == nil {
			t.Errorf("half a request of %s was taken for whole", how)
		}
	}
}

// TestSpliceDoomed says that an answer which a fault breaks at its end lacks it, however
// long it is.
func TestSpliceDoomed(t *testing.T) {
	body := numbered(4, 48<<10) // all that is sent before a reset is received
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+framed("length", body))
	}))
	p, trace := kindProxy(t, cfg, "GET /", tfiv1.Phase_PHASE_RESP, errorFault(418, nil), tfiv1.AnswerKind_ANSWER_KIND_STREAMING)
	conn := dialProxy(t, p)
	say(t, conn, "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: "+trace+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err == nil || len(got) >= len(body) {
		t.Errorf("%d bytes of %d came, error %v", len(got), len(body), err)
	}
	_ = resp.Body.Close()
}

// TestSpliceProgress says that whatever is taken of a piece counts as progress, so that a
// client that is slow is not held for one that has stopped.
func TestSpliceProgress(t *testing.T) {
	body := numbered(5, 64<<10)
	taken := make(chan []byte, 1)
	open := func(s *sock, serve func(*net.TCPConn)) {
		tcp, err := net.Dial("tcp", rawServer(t, func(conn *net.TCPConn, _ int) { serve(conn) }))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.open(tcp.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
	}
	begin := make(chan struct{})
	var from, to sock
	open(&from, func(conn *net.TCPConn) {
		_, _ = conn.Write(body)
		_, _ = io.Copy(io.Discard, conn) // to the end of the test
	})
	open(&to, func(conn *net.TCPConn) {
		_ = conn.SetReadBuffer(4 << 10)
		<-begin
		got := make([]byte, len(body))
		_, _ = io.ReadFull(conn, got)
		taken <- got
	})
	if err := to.tcp.SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the body does not come", func() (all bool) {
		_ = from.raw.Control(func(fd uintptr) { // a closed one shows nothing
			n, _, _ := syscall.Recvfrom(int(fd), make([]byte, len(body)), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			all = n == len(body)
		})
		return all
	})
	var progress atomic.Uint32
	close(begin)
	n, err := from.spliceTo(&to, int64(len(body)), false, &progress)
	if err != nil || n != len(body) {
		t.Fatalf("%d bytes in one piece, %v", n, err)
	}
	if got := <-taken; !bytes.Equal(got, body) {
		t.Error("other bytes came")
	}
	if progress.Load() <= 2 {
		t.Errorf("a piece that was taken bit by bit counted %d times", progress.Load())
	}
}

// TestSpliceUrgent says that a byte sent as urgent, at which splicing ends, does not stop the
// body around it. The other end does not get it, as it does not where bodies are copied.
func TestSpliceUrgent(t *testing.T) {
	body := numbered(6, 200<<10)
	sendUrgent := func(conn *net.TCPConn, head string) {
		_, _ = io.WriteString(conn, head)
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		// What of it fails shows at the other end.
		_, _ = conn.Write(body[:100<<10])
		_ = raw.Write(func(fd uintptr) bool {
			return syscall.Sendto(int(fd), []byte{'!'}, syscall.MSG_OOB, nil) != syscall.EAGAIN
		})
		_, _ = conn.Write(body[100<<10:])
	}
	read := func(conn net.Conn, r *bufio.Reader, head int) []byte {
		got := make([]byte, head+len(body))
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // a closed one shows below
		n, err := io.ReadFull(r, got)
		if err != nil {
			t.Errorf("%d bytes of %d came, then %v", n, len(got), err)
		}
		return got[min(n, head):n]
	}
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 204800\r\n\r\n"
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		r := bufio.NewReader(conn)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		if got := read(conn, r, 0); !bytes.Equal(got, body) {
			t.Error("the request's body is another one")
		}
		sendUrgent(conn, answer)
		_, _ = io.Copy(io.Discard, conn) // to the end of the test
	})))
	conn := dialProxy(t, p)
	sendUrgent(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 204800\r\n\r\n")
	if got := read(conn, bufio.NewReader(conn), len(answer)); !bytes.Equal(got, body) {
		t.Error("the answer's body is another one")
	}
}

// TestNoPipe says that without descriptors for a pipe, or a system that splices, bodies
// are copied.
func TestNoPipe(t *testing.T) {
	p := startProxy(t, outboundTo(echoBodies(t)))
	conn := dialProxy(t, p)
	r := bufio.NewReader(conn)
	call := func(n int) {
		t.Helper()
		for _, size := range []int{1 << 20, 1} { // when the second is served the first's pipes are given back
			if err := echoed(conn, r, behaviour.OrdinaryTrace, "length", "length", numbered(n, size)); err != nil {
				t.Error(err)
			}
		}
	}
	call(1)
	emptyPipes()
	free, err := syscall.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(free)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = uint64(free)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	call(2)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if wasSpliced() {
		t.Error("there was a descriptor left")
	}
	call(3)
	if !wasSpliced() {
		t.Error("it does not splice again")
	}
	emptyPipes()
	unspliced.Store(true)
	defer unspliced.Store(false)
	call(4)
	if wasSpliced() {
		t.Error("it splices where it cannot")
	}
}

// TestPipeLimit says that pipes leave descriptors to connections, however many clients are
// slow, and that those which are given back or closed make room.
func TestPipeLimit(t *testing.T) {
	const limit = maxIdlePipes + 8 // so that some are closed, though nothing is in them
	found := pipeLimit
	pipeLimit = func() int { return limit }
	defer func() { pipeLimit = found }()
	emptyPipes()
	before := openPipes(t)
	for range 2 {
		var taken []*pipe
		for len(taken) <= limit {
			p := takePipe()
			if p == nil {
				break
			}
			taken = append(taken, p)
		}
		for n, p := range taken {
			p.held = n % 2 // closed, or kept
			putPipe(p)
		}
		if len(taken) != limit {
			t.Errorf("%d pipes at once, want %d", len(taken), limit)
		}
		emptyPipes()
	}
	if after := openPipes(t); after != before {
		t.Errorf("%d ends of pipes are open, before %d", after, before)
	}
}

// TestBodyPass says that bytes that are passed unseen leave a body as if they had been
// looked at.
func TestBodyPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		var seen, unseen body
		if rapid.Bool().Draw(t, "chunked") {
			for _, size := range rapid.SliceOfN(rapid.IntRange(1, 40), 0, 5).Draw(t, "chunks") {
				wire = fmt.Appendf(wire, "%x\r\n%s\r\n", size, strings.Repeat("a", size))
			}
			wire = append(wire, "0\r\nT: 1\r\n\r\n"...)
			seen.begin(lengthChunked)
			unseen.begin(lengthChunked)
		} else {
			wire = bytes.Repeat([]byte("a"), rapid.IntRange(1, 100).Draw(t, "length"))
			seen.begin(int64(len(wire)))
			unseen.begin(int64(len(wire)))
		}
		for len(wire) > 0 {
			n := rapid.IntRange(1, min(20, len(wire))).Draw(t, "piece")
			plain := unseen.plain()
			if plain > 0 && rapid.Bool().Draw(t, "unseen") {
				n = int(min(int64(n), plain))
				unseen.pass(n)
			} else if _, err := unseen.consume(wire[:n]); err != nil {
				t.Fatal(err)
			}
			if _, err := seen.consume(wire[:n]); err != nil {
				t.Fatal(err)
			}
			if seen != unseen {
				t.Fatalf("%+v, looked at %+v", unseen, seen)
			}
			wire = wire[n:]
		}
		if !seen.done || unseen.plain() != 0 {
			t.Fatalf("%+v", unseen)
		}
	})
}

// TestPipesOf says that most descriptors are left to connections.
func TestPipesOf(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 0, 15: 0, 20: 1, 128: 8, 1024: 64, 8192: 512, 1 << 20: 512, math.MaxUint64: 512} {
		if got := pipesOf(descriptors); got != want {
			t.Errorf("%d of %d descriptors, want %d", got, descriptors, want)
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 960
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	got := findPipeLimit()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if got != 60 {
		t.Errorf("%d pipes with 960 descriptors, want 60", got)
	}
}
