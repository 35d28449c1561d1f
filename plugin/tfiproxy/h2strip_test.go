package tfiproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestHTTP2StrayEvidence says that no application sees evidence in any header block of
// an answer, be the call's trial known here or not.
func TestHTTP2StrayEvidence(t *testing.T) {
	stray := []string{tfi.EvidenceHeader, "AQEBAQ"}
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = errors.Join(framer.WriteSettings(), framer.WriteSettingsAck()) // its loss
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if id := f.Header().StreamID; f.Header().Type == http2.FrameHeaders {
				b := appendHeaders(nil, id, fuzzBlock(append(stray, ":status", "103")...), false)
				b = appendHeaders(b, id, fuzzBlock(append(stray, ":status", "200", "content-type", "application/grpc")...), false)
				b = appendHeaders(b, id, fuzzBlock(append(stray, "x-trailer", "1")...), true)
				_, _ = conn.Write(b)
			}
		}
	}))
	p, live := faultProxy(t, cfg, "GET /none", tfiv1.Phase_PHASE_REQ, errorFault(500, nil))
	c := newH2Peer(t, p)
	c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && !s.IsAck() })
	c.ReadMetaHeaders = nil
	foreign := "00-" + tfi.NewTraceID(behaviour.NewKey(), 1).String() + "-00f067aa0ba902b7-01"
	for i, fields := range [][]string{
		{"traceparent", live},
		{"traceparent", foreign},
		{"traceparent", live, "content-type", "application/grpc"},
		{"traceparent", foreign, "content-type", "application/grpc"},
	} {
		if err := c.ask(uint32(1+2*i), true, fields...); err != nil {
			t.Fatal(err)
		}
		n := 0
		c.until(t, func(f http2.Frame) bool {
			h, ok := f.(*http2.HeadersFrame)
			if !ok {
				return false
			}
			n++
			var fields h2fields
			if err := fields.index(h.HeaderBlockFragment()); err != nil {
				t.Fatal(err)
			}
			if v, ok := fields.Header(tfi.EvidenceHeader); ok {
				t.Errorf("call %d, block %d: the client sees evidence %q", i, n, v)
			}
			return h.StreamEnded()
		})
		if n != 3 {
			t.Errorf("%d blocks", n)
		}
	}
}

// TestHTTP2RequestTrailers says that no callee sees evidence in a request's trailers, be
// the call of a trial or not, and all else.
func TestHTTP2RequestTrailers(t *testing.T) {
	saw := make(chan http.Header, 1)
	p, live := faultProxy(t, outboundTo(httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the trailers come after it
		saw <- r.Trailer
	})), "GET /delayed", tfiv1.Phase_PHASE_REQ, &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{
		Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(10 * time.Millisecond)},
	}}})
	c := newH2Peer(t, p)
	for i, fields := range [][]string{
		{":path", "/", "traceparent", live},
		{":path", "/delayed", "traceparent", live},
		{":path", "/", "traceparent", "00-" + tfi.NewTraceID(behaviour.NewKey(), 1).String() + "-00f067aa0ba902b7-01"},
		{":path", "/", "traceparent", "00-" + behaviour.OrdinaryTrace.String() + "-00f067aa0ba902b7-01"},
	} {
		id := uint32(1 + 2*i)
		b := appendHeaders(nil, id, fuzzBlock(append([]string{":method", "GET", ":scheme", "http", ":authority", "a"}, append(fields, "trailer", "x-a, "+tfi.EvidenceHeader)...)...), false)
		b = appendFrameHeader(b, frameHeader{kind: frameData, stream: id, length: 1})
		b = append(b, 'x')
		b = appendHeaders(b, id, fuzzBlock(tfi.EvidenceHeader, "AQEBAQ", "x-a", "1"), true)
		if _, err := c.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		c.until(t, func(f http2.Frame) bool {
			h, ok := f.(*http2.MetaHeadersFrame)
			return ok && h.StreamID == id
		})
		if got := <-saw; got.Get(tfi.EvidenceHeader) != "" || got.Get("X-A") != "1" {
			t.Errorf("%v: the callee sees %v", fields, got)
		}
	}
}
