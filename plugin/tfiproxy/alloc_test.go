package tfiproxy

import (
	"io"
	"net"
	"runtime"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// echoHTTP1 answers every read on every connection with the same bytes, and
// allocates nothing while it does.
func echoHTTP1(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, answer := make([]byte, 4096), []byte(answer)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// allocations counts what the whole process allocates a round, a client's
// write and read included, which allocate nothing.
func allocations(t *testing.T, rounds int, round func()) float64 {
	t.Helper()
	for range 200 {
		round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(rounds)
}

const ordinaryRequest = "GET /items HTTP/1.1\r\nhost: test\r\nuser-agent: test\r\naccept: */*\r\n" +
	"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n"

const plainAnswer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: text/plain\r\n\r\nhello"

func TestAllocationsHTTP1(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := startProxy(t, &Config{Listeners: []Listener{{
		Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: echoHTTP1(t, plainAnswer), Cluster: behaviour.PeerHTTP1,
	}}, Clusters: map[string]string{behaviour.ReportCluster: echoHTTP1(t, plainAnswer)}})
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	trial := "GET /items HTTP/1.1\r\nhost: test\r\nuser-agent: test\r\naccept: */*\r\n" +
		"traceparent: 00-" + tfi.NewTraceID(key, 1).String() + "-00f067aa0ba902b7-01\r\n\r\n"
	for _, c := range []struct {
		name, request string
		limit         float64
	}{
		{"no trial", ordinaryRequest, 0.05}, // the sweeper's ticks are counted too
		{"trial", trial, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", p.Addr(0).String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			request, b := []byte(c.request), make([]byte, 4096)
			n := allocations(t, 2000, func() {
				if _, err := conn.Write(request); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(conn, b[:len(plainAnswer)]); err != nil {
					t.Fatal(err)
				}
			})
			if n > c.limit {
				t.Errorf("%.2f allocations a request, want at most %v", n, c.limit)
			}
			t.Logf("%.3f allocations a request", n)
		})
	}
}

// echoHTTP2 answers every request with the same bytes and allocates nothing.
func echoHTTP2(t testing.TB, fields ...string) string {
	t.Helper()
	return rawServer(t, func(c *net.TCPConn, _ int) {
		in, out := make([]byte, 0, 64<<10), make([]byte, 0, 4096)
		for len(in) < len(preface) {
			n, err := c.Read(in[len(in):cap(in)])
			if err != nil {
				return
			}
			in = in[:len(in)+n]
		}
		in = in[:copy(in, in[len(preface):])]
		var head, end []byte
		for i := 0; i < len(fields); i += 2 {
			head = appendLiteral(head, fields[i], fields[i+1])
		}
		end = appendLiteral(end, "grpc-status", "0")
		out = appendFrameHeader(out, frameHeader{kind: frameSettings})
		for {
			for len(in) >= frameHeaderSize {
				f := parseFrameHeader(in)
				if len(in) < frameHeaderSize+f.length {
					break
				}
				switch {
				case f.kind == frameSettings && !f.has(flagAck):
					out = appendFrameHeader(out, frameHeader{kind: frameSettings, flags: flagAck})
				case f.has(flagEndStream) && (f.kind == frameHeaders || f.kind == frameData):
					for _, b := range [...]struct {
						kind  frameType
						flags uint8
						b     []byte
					}{{frameHeaders, flagEndHeaders, head}, {frameData, 0, []byte("hello")}, {frameHeaders, flagEndHeaders | flagEndStream, end}} {
						out = appendFrameHeader(out, frameHeader{kind: b.kind, flags: b.flags, stream: f.stream, length: len(b.b)})
						out = append(out, b.b...)
					}
				}
				in = in[:copy(in, in[frameHeaderSize+f.length:])]
			}
			if len(out) > 0 {
				if _, err := c.Write(out); err != nil {
					return
				}
				out = out[:0]
			}
			n, err := c.Read(in[len(in):cap(in)])
			if err != nil {
				return
			}
			in = in[:len(in)+n]
		}
	})
}

func TestAllocationsHTTP2(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := startProxy(t, &Config{Listeners: []Listener{{
		Role: tfi.RoleClient, Listen: "127.0.0.1:0", Cluster: behaviour.PeerHTTP2,
		Upstream: echoHTTP2(t, ":status", "200", "content-type", "application/grpc"),
	}}, Clusters: map[string]string{behaviour.ReportCluster: echoHTTP1(t, plainAnswer)}})
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		trace tfi.TraceID
		limit float64
	}{
		{"no trial", behaviour.OrdinaryTrace, 0.05},
		{"trial", tfi.NewTraceID(key, 1), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialProxy(t, p)
			peer := &h2peer{}
			peer.enc = hpack.NewEncoder(&peer.b)
			peer.enc.SetMaxDynamicTableSize(0)
			block := peer.block("content-type", "application/grpc", "te", "trailers",
				"traceparent", "00-"+c.trace.String()+"-00f067aa0ba902b7-01")
			say(t, conn, preface)
			hello := appendFrameHeader(nil, frameHeader{kind: frameSettings})
			if _, err := conn.Write(appendFrameHeader(hello, frameHeader{kind: frameSettings, flags: flagAck})); err != nil {
				t.Fatal(err)
			}
			message := appendHeaders(nil, 1, block, false)
			split := len(message)
			message = appendData(message, 1, []byte("\x00\x00\x00\x00\x05hello"))
			in, id := make([]byte, 0, 64<<10), uint32(1)
			n := allocations(t, 2000, func() {
				renumber(message, id)
				renumber(message[split:], id)
				id += 2
				if _, err := conn.Write(message); err != nil {
					t.Fatal(err)
				}
				for ended := false; !ended; {
					n, err := conn.Read(in[len(in):cap(in)])
					if err != nil {
						t.Fatal(err)
					}
					in = in[:len(in)+n]
					for len(in) >= frameHeaderSize {
						f := parseFrameHeader(in)
						if len(in) < frameHeaderSize+f.length {
							break
						}
						ended = ended || f.kind == frameHeaders && f.has(flagEndStream)
						in = in[:copy(in, in[frameHeaderSize+f.length:])]
					}
				}
			})
			if n > c.limit {
				t.Errorf("%.2f allocations a request, want at most %v", n, c.limit)
			}
			t.Logf("%.3f allocations a request", n)
		})
	}
}
