package tfiproxy

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestHTTP2TableUpdateOfDelayed says that the block which goes on first begins with a table
// size, though a fault has swallowed the sender's first one and kept this one back.
func TestHTTP2TableUpdateOfDelayed(t *testing.T) {
	for name, phase := range map[string]tfiv1.Phase{"request": tfiv1.Phase_PHASE_REQ, "answer": tfiv1.Phase_PHASE_RESP} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan []byte, 3)
			cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
				if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
					return
				}
				framer := http2.NewFramer(conn, conn)
				_ = framer.WriteSettings()         // a read tells
				block := []byte{tableUpdate, 0x88} // :status 200
				for {
					f, err := framer.ReadFrame()
					if err != nil {
						return
					}
					switch x := f.(type) {
					case *http2.SettingsFrame:
						if !x.IsAck() {
							_ = framer.WriteSettingsAck()
						}
					case *http2.HeadersFrame:
						asked <- bytes.Clone(x.HeaderBlockFragment())
						_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: x.StreamID, BlockFragment: block, EndHeaders: true, EndStream: true})
						block = block[len(block)-1:]
					}
				}
			}))
			cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
			p := startProxy(t, cfg)
			key := behaviour.NewKey()
			tfic := func(id string, f *tfiv1.Fault) *tfiv1.Tfic {
				return &tfiv1.Tfic{Id: id, Fault: f, Target: &tfiv1.StaticConfiguration{
					Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /" + id, Phase: phase,
				}}
			}
			policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0,
				tfic("swallow", &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}),
				tfic("delay", &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{
					Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(20 * time.Millisecond)},
				}}}))))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Apply(policy); err != nil {
				t.Fatal(err)
			}
			c := newH2Peer(t, p)
			c.ReadMetaHeaders = nil
			c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && !s.IsAck() })
			var got [][]byte // the blocks that this phase's receiver gets
			for i, path := range []string{"swallow", "delay", "other"} {
				block := fuzzBlock(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"+path,
					"traceparent", "00-"+tfi.NewTraceID(key, 1).String()+"-00f067aa0ba902b7-01")
				if i == 0 {
					block = slices.Concat([]byte{tableUpdate}, block)
				}
				id := uint32(1 + 2*i)
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
					t.Fatal(err)
				}
				c.until(t, func(f http2.Frame) bool {
					if h, ok := f.(*http2.HeadersFrame); ok && phase == tfiv1.Phase_PHASE_RESP {
						got = append(got, bytes.Clone(h.HeaderBlockFragment()))
					}
					return f.Header().StreamID == id
				})
				if phase == tfiv1.Phase_PHASE_REQ && i > 0 {
					got = append(got, <-asked)
				}
			}
			for i, want := range []bool{true, false} {
				if len(got) != 2 || isUpdate(got[i]) != want {
					t.Fatalf("blocks %x: want a table size in the first only", got)
				}
			}
		})
	}
}
