package tfiproxy

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// stuck is an end that, once it is on, does not take its next write until it is released.
type stuck struct {
	script
	on               bool
	reached, release chan struct{}
}

func (s *stuck) write(b []byte) error {
	if s.on {
		s.on = false
		close(s.reached)
		<-s.release
	}
	return s.script.write(b)
}

// TestHTTP2Delivered says that an answer is reported as delivered only when it has been
// written, whoever deals with its stream meanwhile; and that what the client sends does not
// wait for that.
func TestHTTP2Delivered(t *testing.T) {
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(fuzzKey, 0)))
	if err != nil {
		t.Fatal(err)
	}
	settings := appendFrameHeader(appendFrameHeader(nil, frameHeader{kind: frameSettings}), frameHeader{kind: frameSettings, flags: flagAck})
	down := &stuck{script: script{say: settings, piece: 1 << 10}, reached: make(chan struct{}), release: make(chan struct{})}
	up := &script{say: bytes.Clone(settings), piece: 1 << 10}
	h := fuzzHTTP2(fuzzConn(t, policy, down, up))
	h.proxy.report.address = "nowhere"
	turn := func(r *h2half) {
		t.Helper()
		if err := onePiece(r); err != nil {
			t.Fatal(err)
		}
	}
	open := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.byClient)
	}
	delivered := func() (is bool) {
		h.proxy.report.mu.Lock()
		defer h.proxy.report.mu.Unlock()
		for _, b := range h.proxy.report.batch.blocks {
			is = is || bytes.Contains(b.data(), []byte(span.DeliveredSeq))
		}
		return is
	}
	turn(&h.up)
	turn(&h.down)
	request := fuzzBlock(":method", "POST", ":scheme", "http", ":path", "/x", "traceparent", "00-5f1c0102030405060700000000000001-00f067aa0ba902b7-01")
	down.say = appendHeaders(nil, 1, request, false)
	turn(&h.up)
	up.say = appendData(appendHeaders(nil, 1, []byte{0x88}, false), 1, []byte("the answer"))
	down.on = true
	written := make(chan error, 1)
	go func() { written <- onePiece(&h.down) }()
	<-down.reached // the whole answer is being written
	down.say = appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, flags: flagEndStream})
	turn(&h.up) // the client ends its request
	down.say = appendHeaders(nil, 3, request, true)
	before := len(up.heard)
	turn(&h.up)
	if len(up.heard) == before {
		t.Error("the next request waits for the answer")
	}
	if n := open(); n != 2 || delivered() {
		t.Errorf("%d calls are open, delivered %v, while the client has heard nothing", n, delivered())
	}
	close(down.release)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not delivered", func() bool { return open() == 1 && delivered() })
	h.end()
	h.conn.end()
}
