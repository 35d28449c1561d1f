package tfiproxy

import (
	"io"
	"net"
	"testing"
	"time"
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
