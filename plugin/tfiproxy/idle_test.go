package tfiproxy

import (
	"io"
	"sync"
	"testing"
	"time"
)

// TestNudge nudges connections all the time while they work, and while they do
// not: no request is lost, and none is cut short.
func TestNudge(t *testing.T) {
	p := startProxy(t, outboundTo(echoHTTP1(t, plainAnswer)))
	stop := make(chan struct{})
	var nudger sync.WaitGroup
	nudger.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.conns.nudge()
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		conn := dialProxy(t, p)
		wg.Go(func() {
			b := make([]byte, len(plainAnswer))
			for range 300 {
				if i == 0 {
					time.Sleep(time.Millisecond) // idle for a while
				}
				if _, err := io.WriteString(conn, ordinaryRequest); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(conn, b); err != nil || string(b) != plainAnswer {
					t.Errorf("%q, %v", b, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	nudger.Wait()
}
