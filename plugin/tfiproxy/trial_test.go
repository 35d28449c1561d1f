package tfiproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// applyTrial puts one trial in force whose TFIC makes a fault of every answer to GET /x.
func applyTrial(t *testing.T, p *Proxy, f *tfiv1.Fault) tfi.Key {
	t.Helper()
	key := behaviour.NewKey()
	b, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "x", Fault: f, MaxInjections: 1 << 20, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /x", Phase: tfiv1.Phase_PHASE_RESP},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(b); err != nil {
		t.Fatal(err)
	}
	return key
}

func madeError(body string) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 502, Body: []byte(body)}}}
}

// tracedGet is a request of a trace with further header lines.
func tracedGet(path string, trace tfi.TraceID, lines string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a\r\ntraceparent: 00-" + trace.String() + "-00f067aa0ba902b7-01\r\n" + lines + "\r\n"
}

// TestTrialLeavesNothing says that nothing of a call stays for the next one that gets its
// trial, which may be another client's.
func TestTrialLeavesNothing(t *testing.T) {
	p := startProxy(t, outboundTo("127.0.0.1:1"))
	x := &trial{
		proxy: p,
		trialState: trialState{
			engine: new(tfi.Engine), fault: new(tfi.TFIC), decided: tfi.Decision{Strip: true}, held: 1, lost: true,
			bytes: 1, chunks: 1, length: true,
		},
		head: headView{head: []byte("a"), fields: make([]fieldSpan, 1)}, out: []byte("a"), trailers: []byte("a"),
		contentType: []byte("a"),
	}
	x.close()
	x.out, x.trailers, x.contentType, x.head.fields = nil, nil, nil, nil // room that stays
	if want := (&trial{proxy: p}); !reflect.DeepEqual(x, want) {
		t.Errorf("%+v is left", x)
	}
	h := &h2conn{}
	flow := h2flow{state: swallowed, frames: []byte("a"), data: 1, ended: true, window: 1}
	y := &h2trial{
		trial: x,
		up:    flow, down: flow, round: 1,
		h2callState: h2callState{
			h: h, s: &h2stream{}, grpc: true, isHead: true, status: 200, begun: true, answered: true, last: true, left: 1,
			then: (*h2trial).pour,
		},
	}
	y.reset()
	y.up.frames, y.down.frames = nil, nil
	if want := (&h2trial{trial: x, round: 1}); !reflect.DeepEqual(y, want) {
		t.Errorf("%+v is left", y)
	}
}

// TestHTTP2Clock says that the clock is read once for what came at once, and again once
// something has been written, or more has come.
func TestHTTP2Clock(t *testing.T) {
	r := &h2half{h: &h2conn{proxy: startProxy(t, outboundTo("127.0.0.1:1"))}}
	for i, moves := range []func(){func() { r.writes.Add(2) }, r.comes} {
		was := r.clock()
		for r.h.proxy.now() == was {
		}
		if r.clock() != was {
			t.Errorf("%d: read again", i)
		}
		moves()
		if r.clock() == was {
			t.Errorf("%d: not read again", i)
		}
	}
}

// TestHTTP2ClockAfterWindow says that it is read again once the client's window has been
// waited for, although nothing has been written: the answer before is kept back, and the one
// behind has come at once with it.
func TestHTTP2ClockAfterWindow(t *testing.T) {
	c := newStuckConn(t, delayedAnswer)
	opened := make(chan struct{}) // who sends knows that it is waited for
	c.opened, c.closed = opened, make(chan struct{})
	requests := appendHeaders(nil, 1, trialRequestHead, false)
	requests = appendHeaders(requests, 3, []byte{0x83, 0x86, 0x84}, true)
	c.clientSays(t, appendHeaders(requests, 5, trialRequestHead, false))
	c.calleeSays(t, appendHeaders(nil, 3, []byte{0x88}, false))
	c.window.Store(-1)
	answers := appendHeaders(nil, 1, []byte{0x88}, true)
	answers = appendData(answers, 3, []byte("waits"))
	c.callee.say = appendHeaders(answers, 5, []byte{0x88}, false)
	written := make(chan error, 1)
	go func() { written <- onePiece(&c.down) }()
	select {
	case opened <- struct{}{}:
	case err := <-written:
		t.Fatalf("the window is not waited for: %v", err)
	}
	waiting := c.proxy.now()
	c.window.Store(defaultWindow)
	for waits := true; waits; {
		select {
		case opened <- struct{}{}: // unless it has looked again meanwhile
		case err := <-written:
			if waits = false; err != nil {
				t.Fatal(err)
			}
		}
	}
	before, behind := c.byClient[1].trial.call.Record(), c.byClient[5].trial.call.Record()
	if before.Resp.Seq == 0 || before.Resp.At >= waiting || behind.Resp.At < waiting {
		t.Errorf("waited until %v, answers came %v and %v", waiting, before.Resp.At, behind.Resp.At)
	}
}

// TestStrayAnswers says that a call of no live trial, which bears evidence, gets its own
// answer after one that was held.
func TestStrayAnswers(t *testing.T) {
	body := strings.Repeat("x", 3000)
	cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
	p := startProxy(t, cfg)
	trace := tfi.NewTraceID(applyTrial(t, p, madeError("no")), 1)
	conn := dialProxy(t, p)
	r := bufio.NewReader(conn)
	for i, want := range []string{"no", body, "no", body} {
		if want == "no" {
			say(t, conn, tracedGet("/x", trace, ""))
		} else {
			say(t, conn, tracedGet("/y", tfi.NewTraceID(behaviour.NewKey(), 1), "x-fic-evidence: AQEBAQ\r\n"))
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		if err != nil || string(b) != want {
			t.Fatalf("answer %d: %d, %d bytes, want %d, %v", i, resp.StatusCode, len(b), len(want), err)
		}
	}
}

// TestHeldAnswerWithoutEnd says that an answer which does not end, and is held all the
// same, ends when its client goes, and for one that stays when its time is over.
func TestHeldAnswerWithoutEnd(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		began, ended := make(chan struct{}), make(chan struct{})
		cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			close(began)
			for {
				if _, err := w.Write(make([]byte, 8000)); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}))
		cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
		cfg.Timeouts.Hold = 50 * time.Millisecond
		p := startProxy(t, cfg)
		conn := dialProxy(t, p)
		say(t, conn, tracedGet("/x", tfi.NewTraceID(applyTrial(t, p, madeError("no")), 1), ""))
		<-began
		limit := maxHolds*cfg.Timeouts.Hold + 3*time.Second
		if leaves {
			_ = conn.Close()
			limit = 0
		} else if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Error(err)
		} else {
			_ = resp.Body.Close() // its status says it all
			if resp.StatusCode != 502 {
				t.Errorf("status %d", resp.StatusCode)
			}
		}
		select {
		case <-ended:
		case <-time.After(limit + 300*time.Millisecond): // before maxHolds if it left
			t.Errorf("the callee works on, client left: %v", leaves)
		}
		eventually(t, "it is open", func() bool { return p.metrics.open.Load() == 0 || !leaves })
		if n := p.metrics.get(metricLetGo); (n == 1) != leaves {
			t.Errorf("%d faults were let go, client left: %v", n, leaves)
		}
	}
}

// TestHeldAnswerCancel says that a callee sees a client go away whose answer is held, and
// that the fault is let go if it breaks off then.
func TestHeldAnswerCancel(t *testing.T) {
	began := make(chan struct{})
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		r := bufio.NewReader(conn)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
		close(began)
		_, _ = r.Peek(1) // to the client's end
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
	cfg.Timeouts.Hold, cfg.Timeouts.Tick = time.Minute, 20*time.Millisecond
	p := startProxy(t, cfg)
	conn := dialProxy(t, p)
	say(t, conn, tracedGet("/x", tfi.NewTraceID(applyTrial(t, p, madeError("no")), 1), ""))
	<-began
	eventually(t, "it is not held", func() bool { return p.metrics.get(metricErrors) == 1 })
	_ = conn.Close()
	eventually(t, "the fault is not let go", func() bool { return p.metrics.get(metricLetGo) == 1 })
}
