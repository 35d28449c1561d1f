package tfiproxy

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
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

// trialRequestHead is the block of a request of [fuzzKey]'s trial.
var trialRequestHead = fuzzBlock(":method", "POST", ":scheme", "http", ":path", "/x",
	"traceparent", "00-5f1c0102030405060700000000000001-00f067aa0ba902b7-01")

// delayedAnswer delays the first answer to such a request for longer than any test takes.
var delayedAnswer = &tfiv1.Tfic{
	Id: "f", Fault: delayFault(5 * time.Minute), MaxInjections: 1,
	Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "POST /x", Phase: tfiv1.Phase_PHASE_RESP},
}

// stuckConn is a connection of scripts, with a client that can be stuck, on which both ends
// have begun.
type stuckConn struct {
	*h2conn
	client *stuck
	callee *script
}

func newStuckConn(t *testing.T, tfics ...*tfiv1.Tfic) *stuckConn {
	t.Helper()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(fuzzKey, 0, tfics...)))
	if err != nil {
		t.Fatal(err)
	}
	settings := appendFrameHeader(appendFrameHeader(nil, frameHeader{kind: frameSettings}), frameHeader{kind: frameSettings, flags: flagAck})
	client := &stuck{script: script{say: settings, piece: 1 << 10}, reached: make(chan struct{}), release: make(chan struct{})}
	callee := &script{say: bytes.Clone(settings), piece: 1 << 10}
	c := &stuckConn{fuzzHTTP2(fuzzConn(t, policy, client, callee)), client, callee}
	c.proxy.report.address = "nowhere"
	t.Cleanup(func() {
		c.end()
		c.conn.end()
	})
	c.clientSays(t, nil)
	c.calleeSays(t, nil)
	return c
}

func (c *stuckConn) clientSays(t *testing.T, frames []byte) {
	t.Helper()
	c.client.say = append(c.client.say, frames...)
	if err := onePiece(&c.up); err != nil {
		t.Fatal(err)
	}
}

func (c *stuckConn) calleeSays(t *testing.T, frames []byte) {
	t.Helper()
	c.callee.say = append(c.callee.say, frames...)
	if err := onePiece(&c.down); err != nil {
		t.Fatal(err)
	}
}

// calls is how many are under way.
func (c *stuckConn) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byClient)
}

// hasDelivered tells whether any answer has been reported as delivered.
func (c *stuckConn) hasDelivered() (has bool) {
	c.proxy.report.mu.Lock()
	defer c.proxy.report.mu.Unlock()
	for _, b := range c.proxy.report.batch.blocks {
		has = has || bytes.Contains(b.data(), []byte(span.DeliveredSeq))
	}
	return has
}

// TestHTTP2Delivered says that an answer is reported as delivered only when it has been
// written, whoever deals with its stream meanwhile; and that what the client sends does not
// wait for that.
func TestHTTP2Delivered(t *testing.T) {
	c := newStuckConn(t)
	c.clientSays(t, appendHeaders(nil, 1, trialRequestHead, false))
	c.callee.say = appendData(appendHeaders(nil, 1, []byte{0x88}, false), 1, []byte("the answer"))
	c.client.on = true
	written := make(chan error, 1)
	go func() { written <- onePiece(&c.down) }()
	<-c.client.reached // the whole answer is being written
	c.clientSays(t, appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, flags: flagEndStream}))
	before := len(c.callee.heard)
	c.clientSays(t, appendHeaders(nil, 3, trialRequestHead, true))
	if len(c.callee.heard) == before {
		t.Error("the next request waits for the answer")
	}
	if n, is := c.calls(), c.hasDelivered(); n != 2 || is {
		t.Errorf("%d calls are open, delivered %v, while the client has heard nothing", n, is)
	}
	close(c.client.release)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not delivered", func() bool { return c.calls() == 1 && c.hasDelivered() })
}

// TestHTTP2DelayDelivered says the same of an answer that a fault has delayed: its timer sends
// it, and is the last to deal with its stream.
func TestHTTP2DelayDelivered(t *testing.T) {
	c := newStuckConn(t, delayedAnswer)
	c.clientSays(t, appendHeaders(nil, 1, trialRequestHead, true))
	c.calleeSays(t, appendData(appendHeaders(nil, 1, []byte{0x88}, false), 1, []byte("the answer")))
	if n, is := c.calls(), c.hasDelivered(); n != 1 || is {
		t.Fatalf("%d calls are open, delivered %v, before the timer has run out", n, is)
	}
	c.client.on = true
	fired := make(chan struct{})
	go func() { defer close(fired); fireAll(c.h2conn) }()
	<-c.client.reached // the whole answer is being written
	if n, is := c.calls(), c.hasDelivered(); n != 1 || is {
		t.Errorf("%d calls are open, delivered %v, while the client has heard nothing", n, is)
	}
	close(c.client.release)
	<-fired
	if got := heardStreams(t, c.client.heard)[1]; got.data != "the answer" || got.ends != 1 {
		t.Errorf("the client heard %+v", got)
	}
	if n, is := c.calls(), c.hasDelivered(); n != 0 || !is {
		t.Errorf("%d calls are open, delivered %v, of an answer that the client has", n, is)
	}
}
