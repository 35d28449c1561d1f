package tfiproxy

import (
	"bytes"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// faultProxy is a client's sidecar before a callee with HTTP/2, and a traceparent of a
// trial of that one fault.
func faultProxy(t *testing.T, cfg *Config, api string, phase tfiv1.Phase, f *tfiv1.Fault) (p *Proxy, traceparent string) {
	t.Helper()
	return kindProxy(t, cfg, api, phase, f, tfiv1.AnswerKind_ANSWER_KIND_UNARY)
}

// kindProxy is faultProxy where answers are of a kind.
func kindProxy(t *testing.T, cfg *Config, api string, phase tfiv1.Phase, f *tfiv1.Fault, kind tfiv1.AnswerKind) (p *Proxy, traceparent string) {
	t.Helper()
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p = startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "f", Fault: f, MaxInjections: 1 << 20, AnswerKind: kind,
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: api, Phase: phase},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	return p, "00-" + tfi.NewTraceID(key, 1).String() + "-00f067aa0ba902b7-01"
}

func errorFault(status uint32, body []byte) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: status, Body: body}}}
}

// TestHTTP2FaultWindow says that a fault's body takes no more of the connection's window
// than the client has given.
func TestHTTP2FaultWindow(t *testing.T) {
	p, trace := faultProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20)) // the client's window ends it
	})), "GET /", tfiv1.Phase_PHASE_REQ, errorFault(500, bytes.Repeat([]byte("a"), 1000)))
	c := newH2Peer(t, p)
	if err := c.ask(1, true); err != nil {
		t.Fatal(err)
	}
	total := 0
	c.until(t, func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			total += int(d.Length)
		}
		return total == defaultWindow
	})
	if err := c.ask(3, true, "traceparent", trace); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		if f.Header().StreamID == 3 && (!ok || h.PseudoValue("status") != "500" || !h.StreamEnded()) {
			t.Errorf("%v", f)
		}
		return f.Header().StreamID == 3
	})
}

// TestHTTP2FaultLength says which answers that a fault makes tell a length.
func TestHTTP2FaultLength(t *testing.T) {
	for status, want := range map[uint32]string{200: "3", 204: "", 304: "", 503: "3"} {
		p, trace := faultProxy(t, outboundTo(plainServer(t)), "GET /", tfiv1.Phase_PHASE_REQ, errorFault(status, []byte("abc")))
		c := newH2Peer(t, p)
		if err := c.ask(1, true, "traceparent", trace); err != nil {
			t.Fatal(err)
		}
		c.until(t, func(f http2.Frame) bool {
			h, ok := f.(*http2.MetaHeadersFrame)
			if !ok {
				return false
			}
			got := ""
			for _, x := range h.RegularFields() {
				if x.Name == "content-length" {
					got = x.Value
				}
			}
			if got != want || h.StreamEnded() != (want == "") {
				t.Errorf("%d: a length of %q, want %q; the end: %v", status, got, want, h.StreamEnded())
			}
			return true
		})
	}
}
