package testbed_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestSmallBuffers shows that a held or delayed answer never becomes Envoy's own
// 500, however small the buffers are.
func TestSmallBuffers(t *testing.T) {
	bed := start(t, testbed.Options{Settings: "hold=500ms", BufferBytes: 16 << 10, Workers: 2})
	large := []string{strings.Repeat("a", 64<<10), strings.Repeat("b", 200<<10), strings.Repeat("c", 64<<10)}
	for _, c := range []struct {
		name   string
		fault  *tfiv1.Fault
		http2  bool
		status int
		letGo  bool
	}{
		{"error HTTP/1.1", failure, false, 500, false},
		{"error HTTP/2", failure, true, 500, false},
		{"delay HTTP/1.1", delay(50 * time.Millisecond), false, 200, false},
		{"delay HTTP/2", delay(50 * time.Millisecond), true, 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := behaviour.NewKey()
			apply(t, bed, behaviour.Policy("b-"+key.String(), behaviour.Activation(key, 0, &tfiv1.Tfic{
				Id: "f", Target: target(tfiv1.Phase_PHASE_RESP), Fault: c.fault, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
			})))
			call := get()
			call.HTTP2 = c.http2
			call.Answer.Chunks = large
			seen := do(t, bed, call, key)
			injected, _ := behaviour.Get(seen.Headers, tfi.InjectedHeader)
			spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
			if len(spans) == 0 {
				t.Fatal("no span")
			}
			gone := spans[len(spans)-1].Attributes[span.LetGo] == true
			t.Logf("status %d, %d bytes, injected %q, let go %v", seen.Status, len(seen.Body), injected, gone)
			switch {
			case gone && seen.Status == 200 && seen.Body == strings.Join(large, ""):
				// Kept back by a buffer smaller than what is kept: let go whole.
			case seen.Status != c.status, c.status == 500 && injected != "f", c.status == 200 && seen.Body != strings.Join(large, ""):
				t.Errorf("status %d, body of %d bytes, injected %q", seen.Status, len(seen.Body), injected)
			}
		})
	}
}

func TestReportsThatFail(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	p := behaviour.Policy("r-"+key.String(), behaviour.Activation(key, 0))
	p.Reporting.Cluster = "no-such-cluster"
	apply(t, bed, p)
	before, dropped := stats(t, bed, "export_errors"), stats(t, bed, "spans_dropped")
	for range 3 {
		if seen := do(t, bed, get(), key); seen.Status != 200 {
			t.Errorf("status %d", seen.Status)
		}
	}
	eventually(t, "errors are counted", func() bool {
		return stats(t, bed, "export_errors") > before && stats(t, bed, "spans_dropped") >= dropped+3
	})
	p.Reporting.Cluster, p.Version = behaviour.PeerHTTP1, "s-"+key.String() // it answers 200, but with nothing of use
	p.Reporting.Path, p.Reporting.Authority = "/own/path", "own.authority"
	apply(t, bed, p)
	before = stats(t, bed, "spans")
	do(t, bed, get(), key)
	eventually(t, "sent to another cluster", func() bool { return stats(t, bed, "spans") > before })
}

func TestOtherTraceHeaders(t *testing.T) {
	bed := share(t)
	key := behaviour.NewKey()
	apply(t, bed, behaviour.Policy("h-"+key.String(), behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "f", Target: target(tfiv1.Phase_PHASE_REQ), Fault: failure, MaxInjections: 100,
	})))
	id := tfi.NewTraceID(key, 5).String()
	for name, value := range map[string]string{
		"b3":            id + "-00f067aa0ba902b7-1",
		"x-b3-traceid":  id,
		"uber-trace-id": id + ":00f067aa0ba902b7:0:1",
	} {
		call := get()
		call.Request.Headers = []behaviour.Header{{Name: name, Value: value}}
		seen, err := bed.Do(t.Context(), &call, behaviour.OrdinaryTrace)
		if err != nil {
			t.Fatal(err)
		}
		if seen.Status != 500 {
			t.Errorf("%s: status %d, want 500", name, seen.Status)
		}
	}
}

// TestCalleeBreaks shows how a broken callee is reported: Envoy answers in its
// place where nothing has been sent yet, and breaks off as well where something has.
func TestCalleeBreaks(t *testing.T) {
	bed := share(t)
	for _, c := range []struct {
		name   string
		http2  bool
		grpc   bool
		chunks []string
		// What the span says, of an event that there must be.
		made, broken any
		status       any
	}{
		{"HTTP/1.1 before an answer", false, false, nil, true, nil, int64(503)},
		{"HTTP/2 before an answer", true, false, nil, true, nil, int64(503)},
		{"HTTP/1.1 in its answer", false, false, []string{"a", "b"}, nil, nil, int64(200)},
		{"gRPC before an answer", true, true, nil, true, nil, int64(14)},
		{"gRPC in its answer", true, true, []string{"a", "b"}, nil, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := behaviour.NewKey()
			apply(t, bed, behaviour.Policy("k-"+key.String(), behaviour.Activation(key, 0)))
			call := get()
			call.HTTP2 = c.http2
			call.Answer = behaviour.Message{Status: 200, Chunks: c.chunks, Break: true}
			if c.grpc {
				call.GRPC = true
				call.Request = behaviour.Message{Method: "POST", Path: "/cart.Cart/Add", Headers: []behaviour.Header{
					{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
				}}
				call.Answer.Headers = []behaviour.Header{{Name: "content-type", Value: "application/grpc"}}
			}
			seen := do(t, bed, call, key)
			if whole := c.chunks == nil; seen.Broken == whole {
				t.Errorf("client: broken %v, status %d", seen.Broken, seen.Status)
			}
			spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
			if len(spans) != 1 {
				t.Fatalf("%d spans", len(spans))
			}
			a := spans[0].Attributes
			if a[span.RespSeq] == nil || a[span.Made] != c.made || a[span.Broken] != c.broken || a[span.Status] != c.status {
				t.Errorf("span says number %v, made %v, broken %v, status %v; want made %v, broken %v, status %v",
					a[span.RespSeq], a[span.Made], a[span.Broken], a[span.Status], c.made, c.broken, c.status)
			}
			if seen.Broken && a[span.DeliveredSeq] != nil {
				t.Error("a broken answer is reported as delivered")
			}
		})
	}
}

// TestHeldAnswerEndsEarly: where the callee breaks off an answer that is held, Envoy
// answers itself, past the filter; and a client that has left gets no fault, either.
func TestHeldAnswerEndsEarly(t *testing.T) {
	bed := share(t)
	for _, http2 := range []bool{false, true} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 %v, client leaves %v", http2, leaves), func(t *testing.T) {
				key := behaviour.NewKey()
				apply(t, bed, behaviour.Policy("e-"+key.String(), behaviour.Activation(key, 0, &tfiv1.Tfic{
					Id: "f", Target: target(tfiv1.Phase_PHASE_RESP), Fault: failure, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
				})))
				call := get()
				call.HTTP2 = http2
				call.Answer.Chunks = []string{"a", "b"}
				if leaves {
					call.Lockstep, call.LeaveAfter = true, 300*time.Millisecond // the second chunk never comes
				} else {
					call.Answer.Break = true
				}
				seen := do(t, bed, call, key)
				if _, injected := behaviour.Get(seen.Headers, tfi.InjectedHeader); !leaves && (seen.Status < 502 || injected) {
					t.Errorf("client: status %d, injected %v; want an answer of Envoy's own", seen.Status, injected)
				}
				spans := bed.Spans(t.Context(), key, func(s []behaviour.Span) bool { return count(s, "call") > 0 })
				if len(spans) == 0 {
					t.Fatal("no span")
				}
				if a := spans[len(spans)-1].Attributes; a[span.Fired] != "f" || a[span.LetGo] != true || a[span.DeliveredSeq] != nil {
					t.Errorf("span says fired %v, let go %v, delivered %v; want a fault that was let go", a[span.Fired], a[span.LetGo], a[span.DeliveredSeq])
				}
			})
		}
	}
}
