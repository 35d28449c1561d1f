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

// TestTrim says after which numbers of connections memory is given back.
func TestTrim(t *testing.T) {
	var p Proxy
	p.conns.init()
	seconds := 0
	for i, step := range []struct {
		connections, seconds int
		trims                int
		why                  string
	}{
		{100, 20, 0, "few"},
		{600, 1, 1, "many at once"},
		{700, 20, 1, "not many more, but they stay"},
		{701, 20, 0, "hardly more"},
		{1000, 1, 1, "many more"},
		{8000, 4, 0, "too soon after the last time"},
		{8000, 2, 1, "now"},
		{9500, 4, 0, "they may grow on"},
		{9500, 8, 1, "they have not"},
		{9000, 20, 1, "fewer, and they stay away"},
		{10, 1, 1, "nearly none"},
		{10, 60, 0, "nothing has changed"},
	} {
		trims := 0
		for range step.seconds {
			seconds++
			before := p.trimmedAt
			p.trim(step.connections, time.Duration(seconds)*time.Second)
			if p.trimmedAt != before {
				trims++
			}
		}
		if trims != step.trims {
			t.Errorf("step %d, %d connections: given back %d times, want %d: %s", i, step.connections, trims, step.trims, step.why)
		}
	}
}
