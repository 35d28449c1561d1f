package tfiproxy

import (
	"errors"
	"testing"

	"golang.org/x/net/http2"
)

// TestHTTP2FloodEnds says that an end's answers do not count against the other: as many
// PINGs as are allowed have as many acknowledgements.
func TestHTTP2FloodEnds(t *testing.T) {
	p := startProxy(t, outboundTo(plainServer(t)))
	c := newH2Peer(t, p)
	c.burst(t, func() (err error) {
		for range maxPings {
			err = errors.Join(err, c.WritePing(false, [8]byte{}))
		}
		return err
	})
	n := 0
	c.until(t, func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.PingFrame:
			n++
		case *http2.GoAwayFrame:
			t.Fatalf("%v after %d", f, n)
		}
		return n == maxPings
	})
}
