package behaviour

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"
)

// progress counts bytes that have arrived somewhere and lets others wait for them.
type progress struct {
	mu      sync.Mutex
	n       int
	ended   bool
	changed chan struct{}
}

func newProgress() *progress { return &progress{changed: make(chan struct{})} }

func (p *progress) add(n int) { p.change(func() { p.n += n }) }

func (p *progress) end() { p.change(func() { p.ended = true }) }

func (p *progress) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// reach waits until n bytes have arrived.
func (p *progress) reach(ctx context.Context, n int) error {
	return p.wait(ctx, func() bool { return p.n >= n })
}

// finish waits for the end.
func (p *progress) finish(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.ended })
}

func (p *progress) wait(ctx context.Context, done func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := done(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// exchange is a call under way over sockets, seen from both ends.
type exchange struct {
	call *Call
	// asked and answered count body bytes that the callee and the client have got.
	asked, answered *progress
	// served ends when the callee is done.
	served *progress
	// called is closed once the callee sees the request.
	called chan struct{}

	mu   sync.Mutex
	seen Seen
}

func newExchange(c *Call) *exchange {
	return &exchange{call: c, asked: newProgress(), answered: newProgress(), served: newProgress(), called: make(chan struct{})}
}

// upTo is the length of the first n chunks.
func upTo(chunks []string, n int) (sum int) {
	for _, c := range chunks[:min(n, len(chunks))] {
		sum += len(c)
	}
	return sum
}

// drain reads to the end and counts.
func drain(r io.Reader, p *progress) (body string, chunks int, err error) {
	var b strings.Builder
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			b.Write(buf[:n])
			chunks++
			p.add(n)
		}
		if err == io.EOF {
			p.end()
			return b.String(), chunks, nil
		}
		if err != nil {
			p.end()
			return b.String(), chunks, err
		}
	}
}

// serve is the callee.
func (x *exchange) serve(w http.ResponseWriter, r *http.Request) {
	defer x.served.end()
	x.mu.Lock()
	if !x.seen.Called {
		close(x.called)
	}
	x.seen.Called = true
	x.seen.RequestHeaders = sorted(r.Header)
	x.mu.Unlock()
	if x.call.Upgrade {
		x.serveUpgrade(w)
		return
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		body, _, _ := drain(r.Body, x.asked) // what is missing is seen by comparison
		x.mu.Lock()
		defer x.mu.Unlock()
		x.seen.RequestBody, x.seen.RequestTrailers = body, sorted(r.Trailer)
	}()
	ctx := r.Context()
	if !x.call.Duplex {
		if x.asked.finish(ctx) != nil {
			return
		}
	}
	x.serveAnswer(ctx, w)
	select {
	case <-read:
	case <-ctx.Done():
	}
}

func (x *exchange) serveAnswer(ctx context.Context, w http.ResponseWriter) {
	a := &x.call.Answer
	if a.Break {
		defer func() { panic(http.ErrAbortHandler) }()
		if len(a.Chunks) == 0 {
			return
		}
	}
	for _, h := range a.Headers {
		w.Header().Set(h.Name, h.Value)
	}
	flush := http.NewResponseController(w)
	if a.Status != 200 || len(a.Chunks) > 0 {
		w.WriteHeader(a.Status)
	}
	if x.call.Duplex {
		_ = flush.EnableFullDuplex() // HTTP/2 needs none
		_ = flush.Flush()
	}
	for i, chunk := range a.Chunks {
		if x.call.Duplex && x.asked.reach(ctx, upTo(x.call.Request.Chunks, i+1)) != nil {
			return
		}
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
		if len(a.Chunks) > 1 || x.call.GRPC {
			_ = flush.Flush() // one that fails shows at the client
		}
		if x.call.Lockstep && x.answered.reach(ctx, upTo(a.Chunks, i+1)) != nil {
			return
		}
	}
	for _, h := range a.Trailers {
		w.Header().Set(http.TrailerPrefix+h.Name, h.Value)
	}
}

func (x *exchange) serveUpgrade(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return
	}
	for i, chunk := range x.call.Request.Chunks {
		got := make([]byte, len(chunk))
		if _, err := io.ReadFull(rw, got); err != nil {
			return
		}
		x.mu.Lock()
		x.seen.RequestBody += string(got)
		x.mu.Unlock()
		if _, err := io.WriteString(conn, x.call.Answer.Chunks[i]); err != nil {
			return
		}
	}
}

// askUpgrade is the client of a websocket.
func (x *exchange) askUpgrade(ctx context.Context, addr string, headers http.Header) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	head := &strings.Builder{}
	fmt.Fprintf(head, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", x.call.Request.Path)
	_ = headers.Write(head) // into memory
	if _, err := io.WriteString(conn, head.String()+"\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	x.seen.Status, x.seen.Headers = resp.StatusCode, sorted(resp.Header)
	for i, chunk := range x.call.Request.Chunks {
		if _, err := io.WriteString(conn, chunk); err != nil {
			return err
		}
		got := make([]byte, len(x.call.Answer.Chunks[i]))
		if _, err := io.ReadFull(r, got); err != nil {
			x.seen.Broken = true
			return nil
		}
		x.seen.Body += string(got)
	}
	return nil
}

// sorted returns first values, by lower-case name.
func sorted(h http.Header) (out []Header) {
	for name, values := range h {
		if len(values) > 0 {
			out = append(out, Header{strings.ToLower(name), values[0]})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
