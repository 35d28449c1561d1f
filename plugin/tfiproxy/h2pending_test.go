package tfiproxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// lateData is n frames of DATA of a byte each on streams that are over for the sidecar.
func lateData(n int) (b []byte) {
	for range n {
		b = appendFrameHeader(b, frameHeader{length: 1, kind: frameData, stream: 1})
		b = append(b, 'x')
	}
	return b
}

// overH2 is a client whose stream 1 is over, and so long ago that late frames are merely
// dropped; and the sidecar's side of its connection. The callee says nothing.
func overH2(t *testing.T) (*Proxy, *h2peer, *h2conn) {
	t.Helper()
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) { _, _ = io.Copy(io.Discard, conn) })))
	c := newH2Peer(t, p)
	c.burst(t, func() (err error) {
		for id := uint32(1); id < 81; id += 2 {
			err = errors.Join(err, c.ask(id, false), c.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		return err
	})
	var h *h2conn
	eventually(t, "its streams are not over", func() bool {
		h = connOf(p)
		return h != nil && h.isOver()
	})
	return p, c, h
}

// isOver reports whether all streams of overH2 are.
func (h *h2conn) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastClient == 79 && len(h.byClient) == 0
}

// TestHTTP2LateData says that paying back what comes too late takes no memory, although
// the callee has not begun; and that there is a bound to it.
func TestHTTP2LateData(t *testing.T) {
	p, c, h := overH2(t)
	const some = maxLates / 4
	say(t, c.conn, string(lateData(some)))
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		h.down.guard.Lock()
		credit, pending := h.down.credit, h.down.pending
		h.down.guard.Unlock()
		if pending != nil {
			t.Fatalf("%d bytes wait", len(pending.b))
		}
		if credit == some {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d paid back, want %d", credit, some)
		}
	}
	say(t, c.conn, string(lateData(2*maxLates+1)))
	if code, n := c.ends(t), p.metrics.get(metricFloods); code != http2.ErrCodeEnhanceYourCalm || n != 1 {
		t.Errorf("the connection ends with %v, %d floods counted", code, n)
	}
}

// TestHTTP2Pending says that what waits to be written has a bound, also while the other end
// has not begun.
func TestHTTP2Pending(t *testing.T) {
	policy, err := proto.Marshal(behaviour.Policy("v1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]func(*h2half){
		"not begun": func(*h2half) {},
		"begun":     func(r *h2half) { r.started = true },
	} {
		c := fuzzConn(t, policy, &script{}, &script{})
		r := &fuzzHTTP2(c).down
		state(r)
		frame := appendData(nil, 1, make([]byte, ownFrameSize))
		n := 0
		for ; n <= maxPending; n += len(frame) {
			if r.isExcessive() {
				t.Fatalf("%s: it fails after %d bytes", name, n)
			}
			r.enqueue(frame)
		}
		if size := len(r.pending.b); size > maxPending {
			t.Errorf("%s: %d bytes wait", name, size)
		}
		var v *protocolError
		if err := r.flush(); !errors.As(err, &v) || v.code != codeCalm {
			t.Errorf("%s: %v", name, err)
		}
		c.end()
	}
}
