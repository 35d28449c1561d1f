package tfiproxy

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

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
