package tfiproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestUnaskedUpgrade says that a callee which goes on with another protocol though
// nobody asked is told nothing more, and its client that it failed.
func TestUnaskedUpgrade(t *testing.T) {
	var reads atomic.Int32
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		b := make([]byte, 4096)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
			reads.Add(1)
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		}
	})))
	conn := dialProxy(t, p)
	r := bufio.NewReader(conn)
	say(t, conn, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n")
	for _, want := range []int{502, 400} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // it is empty
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	if n := p.metrics.get(metricUnseen); n != 0 || reads.Load() != 1 {
		t.Errorf("%d tunnels, %d requests", n, reads.Load())
	}
}

// TestEmptyLines says that empty lines before a request are ignored (RFC 9112, 2.2): old
// clients send one after a body.
func TestEmptyLines(t *testing.T) {
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		const want = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz"
		b := make([]byte, len(want))
		for {
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			if string(b) != want {
				t.Errorf("callee got %q", b)
				return
			}
			_, _ = io.WriteString(conn, plainAnswer)
		}
	})))
	conn := dialProxy(t, p)
	const request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz\r\n"
	say(t, conn, "\r\n\r\n"+request+request)
	for _, b := range []byte("\r\n" + request) {
		say(t, conn, string(b))
	}
	if n, err := io.ReadFull(conn, make([]byte, 3*len(plainAnswer))); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// panicking is a callee that takes everything and whose answer breaks the sidecar.
type panicking struct{ script }

func (p *panicking) read(b *buffer, try bool) (*buffer, error) {
	if try {
		return b, errNothing
	}
	panic("test")
}

// stalling is a client whose upload stops until released.
type stalling struct {
	script
	stalled, released chan struct{}
}

func (s *stalling) read(b *buffer, try bool) (*buffer, error) {
	switch {
	case len(s.say) > 0:
		return s.script.read(b, try)
	case try:
		return b, errNothing
	}
	close(s.stalled)
	<-s.released
	return b, io.EOF
}

// TestPanicBesideUpload says that a connection which is given up keeps its buffers until
// nobody reads into them.
func TestPanicBesideUpload(t *testing.T) {
	f := &stalling{
		script:  script{say: []byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"), piece: 1000},
		stalled: make(chan struct{}), released: make(chan struct{}),
	}
	policy, err := proto.Marshal(behaviour.Policy("v1"))
	if err != nil {
		t.Fatal(err)
	}
	c := fuzzConn(t, policy, f, new(panicking))
	p := c.proxy
	p.busy.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.listener.run(c)
	}()
	select {
	case <-f.stalled:
	case <-done:
		t.Fatal("the connection was given up while its upload went on")
	}
	eventually(t, "no panic", func() bool { return p.metrics.get(metricInternal) == 1 })
	select {
	case <-done:
		t.Error("the buffers were given back")
	case <-time.After(50 * time.Millisecond):
	}
	close(f.released)
	<-done
}
