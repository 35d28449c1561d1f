package tfiproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// beginningServer is an HTTP/2 upstream that sends the head of each answer and size bytes,
// and then resets the stream if it breaks.
func beginningServer(t *testing.T, size int, breaks bool) string {
	return rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings() // a read tells
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch x := frame.(type) {
			case *http2.SettingsFrame:
				if !x.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				var b bytes.Buffer
				_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // a buffer takes it
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: x.StreamID, BlockFragment: b.Bytes(), EndHeaders: true})
				for rest := size; rest > 0; rest -= ownFrameSize {
					_ = f.WriteData(x.StreamID, false, make([]byte, min(rest, ownFrameSize)))
				}
				if breaks {
					_ = f.WriteRSTStream(x.StreamID, http2.ErrCodeInternal)
				}
			}
		}
	})
}

// TestHTTP2FaultThatIsNotMade says that a fault which was to be made at the end of an answer
// is let go if that does not come, since the callee has broken off, or the client has left.
func TestHTTP2FaultThatIsNotMade(t *testing.T) {
	for _, c := range []struct {
		state flowState
		size  int
		kind  tfiv1.AnswerKind
	}{
		{holding, 3, tfiv1.AnswerKind_ANSWER_KIND_UNARY},
		{discarding, keepBytes + 1, tfiv1.AnswerKind_ANSWER_KIND_UNARY},
		{doomed, 3, tfiv1.AnswerKind_ANSWER_KIND_STREAMING},
	} {
		for _, end := range []string{"the callee breaks off", "the client resets", "the client leaves"} {
			t.Run(fmt.Sprintf("%d, %s", c.state, end), func(t *testing.T) {
				cfg := outboundTo(beginningServer(t, c.size, end == "the callee breaks off"))
				cfg.Timeouts.Hold = time.Minute
				p, trace := kindProxy(t, cfg, "GET /", tfiv1.Phase_PHASE_RESP, errorFault(418, nil), c.kind)
				peer := newH2Peer(t, p)
				if err := peer.ask(1, true, "traceparent", trace); err != nil {
					t.Fatal(err)
				}
				if end == "the callee breaks off" {
					peer.until(t, func(f http2.Frame) bool {
						r, ok := f.(*http2.RSTStreamFrame)
						return ok && r.StreamID == 1
					})
				} else {
					h := &theConn(t, p).h2
					eventually(t, "it is not held", func() bool {
						h := h.Load()
						if h == nil {
							return false
						}
						h.mu.Lock()
						defer h.mu.Unlock()
						s := h.byClient[1]
						return s != nil && s.trial != nil && s.trial.down.state == c.state && s.trial.bytes == int64(c.size)
					})
					if end == "the client resets" {
						if err := peer.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
							t.Fatal(err)
						}
					} else {
						_ = peer.conn.Close()
					}
				}
				eventually(t, "the fault is not let go", func() bool { return p.metrics.get(metricLetGo) == 1 })
			})
		}
	}
}
