package tfiproxy

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestLeftTwice says that a callee hears of a client that has left also if the
// upstream connection by which one was told has been replaced since.
func TestLeftTwice(t *testing.T) {
	heard := make(chan int, 2)
	callee := rawServer(t, func(conn *net.TCPConn, n int) {
		_, _ = io.Copy(io.Discard, conn) // to its end
		heard <- n
	})
	p := startProxy(t, outboundTo(callee))
	client, err := net.Dial("tcp", rawServer(t, func(conn *net.TCPConn, _ int) { _ = conn.CloseWrite(); _, _ = io.Copy(io.Discard, conn) }))
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{proxy: p, listener: p.listeners[0], target: callee}
	if err := c.down.open(client.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
	defer c.end()
	c.enter(phaseAnswer)
	for n := range 2 {
		if err := c.connectUp(false); err != nil {
			t.Fatal(err)
		}
		told := false
		for end := time.Now().Add(5 * time.Second); !told && time.Now().Before(end); {
			c.sweep(p.now())
			select {
			case got := <-heard:
				told = got == n
			case <-time.After(time.Millisecond):
			}
		}
		if !told {
			t.Fatalf("the callee of upstream connection %d was not told", n)
		}
		c.closeUp() // as if it had turned out to be dead
	}
}

// TestHeldAnswerLeft says that a fault is let go whose client has left, or half-closed, while
// its answer was held: by the sweeper, though the callee takes no notice of it, and at the
// answer's end, if that is sooner.
func TestHeldAnswerLeft(t *testing.T) {
	for _, half := range []bool{false, true} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("half-closed %v, answer ends %v", half, ends), func(t *testing.T) {
				end := make(chan struct{})
				cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
					if _, err := conn.Read(make([]byte, 4096)); err != nil {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx")
					<-end
					_, _ = io.WriteString(conn, "x")
				}))
				cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
				cfg.Timeouts.Hold, cfg.Timeouts.Tick = time.Minute, 20*time.Millisecond
				if ends {
					cfg.Timeouts.Tick = time.Minute
				}
				p := startProxy(t, cfg)
				client := dialProxy(t, p)
				say(t, client, tracedGet("/x", tfi.NewTraceID(applyTrial(t, p, madeError("no")), 1), ""))
				eventually(t, "it is not held", func() bool { return p.metrics.get(metricErrors) == 1 })
				down := theConn(t, p).down.shared.Load()
				if half {
					_ = client.CloseWrite() // a broken connection would be seen, too
				} else {
					_ = client.Close()
				}
				if ends {
					eventually(t, "it has not left", func() bool { return ended(down) })
					close(end)
				} else {
					defer close(end)
				}
				eventually(t, "it is not let go", func() bool { return p.metrics.open.Load() == 0 })
				if n := p.metrics.get(metricLetGo); n != 1 {
					t.Errorf("%d faults were let go", n)
				}
			})
		}
	}
}

// TestDroppedAnswerLeft says that a client is seen to leave whose answer is dropped, although
// the callee stalls in the middle of it.
func TestDroppedAnswerLeft(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx")
		<-end
	}))
	drop := &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(time.Minute)}}}
	p, trace := faultProxy(t, cfg, "GET /", tfiv1.Phase_PHASE_RESP, drop)
	client := dialProxy(t, p)
	say(t, client, "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: "+trace+"\r\n\r\n")
	eventually(t, "it is not dropped", func() bool { return p.metrics.get(metricDrops) == 1 })
	_ = client.Close()
	eventually(t, "nobody sees the client leave", func() bool { return p.metrics.open.Load() == 0 })
}

// TestDoomedAnswerLeft says that a fault at the end of an answer that streams on is let go
// if the client has ended its side by then.
func TestDoomedAnswerLeft(t *testing.T) {
	end := make(chan struct{})
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx")
		<-end
		_, _ = io.WriteString(conn, "x")
	}))
	cfg.Timeouts.Tick = time.Minute // the sweeper would see it, too
	p, trace := kindProxy(t, cfg, "GET /", tfiv1.Phase_PHASE_RESP, errorFault(418, nil), tfiv1.AnswerKind_ANSWER_KIND_STREAMING)
	client := dialProxy(t, p)
	say(t, client, "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: "+trace+"\r\n\r\n")
	eventually(t, "it is not doomed", func() bool { return p.metrics.get(metricErrors) == 1 })
	down := theConn(t, p).down.shared.Load()
	_ = client.CloseWrite() // a broken connection would be seen
	eventually(t, "it has not left", func() bool { return ended(down) })
	close(end)
	eventually(t, "it does not end", func() bool { return p.metrics.open.Load() == 0 })
	if n := p.metrics.get(metricLetGo); n != 1 {
		t.Errorf("%d faults were let go", n)
	}
}

// TestDroppedUploadLeft says that a client is seen to leave whose request is dropped, however
// large that is.
func TestDroppedUploadLeft(t *testing.T) {
	const size = 16 << 20
	drop := &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(time.Minute)}}}
	p, trace := faultProxy(t, outboundTo("127.0.0.1:1"), "POST /", tfiv1.Phase_PHASE_REQ, drop)
	client := dialProxy(t, p)
	say(t, client, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\ntraceparent: %s\r\nContent-Length: %d\r\n\r\n", trace, size))
	if _, err := client.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if n := p.metrics.get(metricDrops); n != 1 {
		t.Errorf("%d dropped", n)
	}
	_ = client.Close()
	eventually(t, "it has not been seen to leave", func() bool { return p.metrics.open.Load() == 0 })
}
