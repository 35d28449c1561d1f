package tfiproxy

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// heardStream is what an end heard of a stream.
type heardStream struct {
	data string
	flow int // what of the window it took
	ends int
}

// heardStreams sorts frames by their streams.
func heardStreams(t *testing.T, frames []byte) map[uint32]heardStream {
	t.Helper()
	all := map[uint32]heardStream{}
	for b := frames; len(b) > 0; {
		f := parseFrameHeader(b)
		payload := b[frameHeaderSize : frameHeaderSize+f.length]
		b = b[frameHeaderSize+f.length:]
		s := all[f.stream]
		if f.kind == frameData {
			if s.ends > 0 {
				t.Fatalf("%+v after the end", f)
			}
			s.flow += f.length
			if f.has(flagPadded) {
				payload = payload[1 : len(payload)-int(payload[0])]
			}
			s.data += string(payload)
		}
		if (f.kind == frameData || f.kind == frameHeaders) && f.has(flagEndStream) {
			s.ends++
		}
		all[f.stream] = s
	}
	return all
}

// TestHTTP2Pieces says that DATA is the same to the other end however it comes: the bytes
// and the end of each stream, and what it takes of the windows.
func TestHTTP2Pieces(t *testing.T) {
	policy, err := proto.Marshal(behaviour.Policy("v1"))
	if err != nil {
		t.Fatal(err)
	}
	settings := appendFrameHeader(appendFrameHeader(nil, frameHeader{kind: frameSettings}), frameHeader{kind: frameSettings, flags: flagAck})
	data := func(b []byte, stream uint32, size, pad int, flags uint8) []byte {
		f := frameHeader{kind: frameData, stream: stream, length: size, flags: flags}
		if pad >= 0 {
			f.flags |= flagPadded
			f.length += 1 + pad
		}
		b = appendFrameHeader(b, f)
		if pad >= 0 {
			b = append(b, byte(pad))
		}
		for i := range size {
			b = append(b, byte('a'+(len(b)+i)%26))
		}
		return append(b, make([]byte, max(pad, 0))...)
	}
	both := func(block []byte) []byte {
		b := appendHeaders(slices.Clone(settings), 1, block, false)
		b = appendHeaders(b, 3, block, false)
		b = data(b, 1, 100, -1, 0)
		b = data(b, 3, 30, 20, 0)
		b = data(b, 3, 1, -1, 0)
		b = data(b, 1, 0, 9, 0)
		b = data(b, 1, 200, -1, flagEndStream)
		b = appendHeaders(b, 5, block, false)
		b = data(b, 3, 40, 0, flagEndStream)
		return data(b, 5, 0, -1, flagEndStream)
	}
	asked, answered := both([]byte{0x83, 0x86, 0x84}), both([]byte{0x88})
	for piece := 1; piece <= len(asked); piece++ {
		down, up := &script{say: asked, piece: piece}, &script{say: answered, piece: piece}
		h := fuzzHTTP2(fuzzConn(t, policy, down, up))
		for len(down.say) > 0 {
			if err := onePiece(&h.up); err != nil {
				t.Fatal(err)
			}
		}
		for len(up.say) > 0 {
			if err := onePiece(&h.down); err != nil {
				t.Fatal(err)
			}
		}
		for name, x := range map[string]struct {
			said, heard []byte
			back        *h2half
		}{"callee": {asked, up.heard, &h.down}, "client": {answered, down.heard, &h.up}} {
			checkFrames(t, x.heard, x.back)
			want, got := heardStreams(t, x.said), heardStreams(t, x.heard)
			for id, s := range want {
				if id != 0 && got[id] != s {
					t.Fatalf("pieces of %d: the %s heard %+v on stream %d, want %+v", piece, name, got[id], id, s)
				}
			}
		}
		h.end()
		h.conn.end()
	}
}

// TestHTTP2StalledFrame says that what the sidecar itself has to say does not wait for the
// rest of a DATA frame that goes the same way: a request that a fault has delayed, an answer
// that it makes, a goodbye.
func TestHTTP2StalledFrame(t *testing.T) {
	half := appendFrameHeader(nil, frameHeader{kind: frameData, stream: 1, length: 1000})
	half = append(half, "half"...)
	t.Run("of a request", func(t *testing.T) {
		delay := &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(300 * time.Millisecond)}}}}
		p, trace := faultProxy(t, outboundTo(answeringServer(t)), "GET /", tfiv1.Phase_PHASE_REQ, delay)
		peer := newH2Peer(t, p)
		err := errors.Join(peer.ask(1, false), peer.ask(3, true, "traceparent", trace))
		if _, e := peer.conn.Write(half); err != nil || e != nil {
			t.Fatal(err, e)
		}
		peer.until(t, func(f http2.Frame) bool {
			h, ok := f.(*http2.MetaHeadersFrame)
			return ok && h.StreamID == 3
		})
	})
	t.Run("of an answer", func(t *testing.T) {
		p, trace := faultProxy(t, outboundTo(halfFrames(t)), "GET /", tfiv1.Phase_PHASE_REQ, errorFault(502, nil))
		peer := newH2Peer(t, p)
		if err := peer.ask(1, true); err != nil {
			t.Fatal(err)
		}
		peer.until(t, func(f http2.Frame) bool {
			d, ok := f.(*http2.DataFrame)
			return ok && string(d.Data()) == "half"
		})
		if err := peer.ask(3, true, "traceparent", trace); err != nil {
			t.Fatal(err)
		}
		peer.until(t, func(f http2.Frame) bool {
			h, ok := f.(*http2.MetaHeadersFrame)
			return ok && h.StreamID == 3 && h.PseudoValue("status") == "502"
		})
		p.Drain()
		peer.until(t, func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
	})
}

// answeringServer is an HTTP/2 upstream that answers requests at once, whatever of them has
// come.
func answeringServer(t *testing.T) string {
	return frameServer(t, func(_ *net.TCPConn, framer *http2.Framer, f http2.Frame) {
		if f.Header().Type == http2.FrameHeaders && f.Header().StreamID == 3 {
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
		}
	})
}
