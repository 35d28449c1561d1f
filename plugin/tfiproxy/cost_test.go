package tfiproxy

import (
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

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
				if f.kind == frameData {
					out = appendWindowUpdate(out, 0, f.length)
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

// h2caller makes calls over one connection, a number of them at once, and allocates
// nothing while it does.
type h2caller struct {
	conn    *net.TCPConn
	message []byte   // of all calls of a round
	streams [][]byte // frames in it
	in      []byte
	id      uint32
}

func newH2Caller(t testing.TB, p *Proxy, trace tfi.TraceID, calls int) *h2caller {
	t.Helper()
	c := &h2caller{conn: dialProxy(t, p), in: make([]byte, 0, 64<<10), id: 1}
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	peer := &h2peer{}
	peer.enc = hpack.NewEncoder(&peer.b)
	peer.enc.SetMaxDynamicTableSize(0)
	block := peer.block("content-type", "application/grpc", "te", "trailers",
		"traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
	say(t, c.conn, preface)
	hello := appendFrameHeader(nil, frameHeader{kind: frameSettings})
	hello = appendWindowUpdate(hello, 0, 1<<30)
	if _, err := c.conn.Write(appendFrameHeader(hello, frameHeader{kind: frameSettings, flags: flagAck})); err != nil {
		t.Fatal(err)
	}
	one := appendHeaders(nil, 1, block, false)
	split := len(one)
	one = appendData(one, 1, []byte("\x00\x00\x00\x00\x05hello"))
	for range calls {
		c.message = append(c.message, one...)
	}
	for b := c.message; len(b) > 0; b = b[len(one):] {
		c.streams = append(c.streams, b[:split], b[split:len(one)])
	}
	return c
}

// round makes all calls and takes their answers.
func (c *h2caller) round(t testing.TB) {
	for i, frame := range c.streams {
		renumber(frame, c.id)
		if i%2 == 1 {
			c.id += 2
		}
	}
	if _, err := c.conn.Write(c.message); err != nil {
		t.Error(err)
		return
	}
	for left := len(c.streams) / 2; left > 0; {
		n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
		if err != nil {
			t.Error(err)
			return
		}
		c.in = c.in[:len(c.in)+n]
		at := 0
		for len(c.in)-at >= frameHeaderSize {
			f := parseFrameHeader(c.in[at:])
			if len(c.in)-at < frameHeaderSize+f.length {
				break
			}
			if f.kind == frameHeaders && f.has(flagEndStream) {
				left--
			}
			at += frameHeaderSize + f.length
		}
		c.in = c.in[:copy(c.in, c.in[at:])]
	}
}

// h1caller makes calls over one connection, one after the other.
type h1caller struct {
	conn    net.Conn
	request []byte
	in      []byte
}

func newH1Caller(t testing.TB, p *Proxy, trace tfi.TraceID) *h1caller {
	t.Helper()
	conn := dialProxy(t, p)
	if err := conn.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	request := "GET /items HTTP/1.1\r\nhost: test\r\nuser-agent: test\r\naccept: */*\r\n" +
		"traceparent: 00-" + trace.String() + "-00f067aa0ba902b7-01\r\n\r\n"
	return &h1caller{conn: conn, request: []byte(request), in: make([]byte, len(plainAnswer))}
}

func (c *h1caller) round(t testing.TB) {
	if _, err := c.conn.Write(c.request); err != nil {
		t.Error(err)
		return
	}
	if _, err := io.ReadFull(c.conn, c.in); err != nil {
		t.Error(err)
	}
}

// cpu is the time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchmarkCalls has each of the callers make rounds of calls. cpu-ns/call is of the
// whole process: client and callee do the same for every request, so that what
// differs between two benchmarks is the sidecar's.
func benchmarkCalls(b *testing.B, callers []func(testing.TB), calls int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, round := range callers {
		round(b)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	var wg sync.WaitGroup
	for _, round := range callers {
		wg.Go(func() {
			for left.Add(-int64(calls)) > -int64(calls) {
				round(b)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/call")
}

// BenchmarkCall compares calls of no trial with a trial's, reports included.
func BenchmarkCall(b *testing.B) {
	p1, key1 := reportingProxy(b, behaviour.PeerHTTP1, echoHTTP1(b, plainAnswer))
	p2, key2 := reportingProxy(b, behaviour.PeerHTTP2, echoHTTP2(b, ":status", "200", "content-type", "application/grpc"))
	for _, connections := range []int{1, 8} {
		for _, kind := range []string{"ordinary", "trial"} {
			trace1, trace2 := behaviour.OrdinaryTrace, behaviour.OrdinaryTrace
			if kind == "trial" {
				trace1, trace2 = tfi.NewTraceID(key1, 1), tfi.NewTraceID(key2, 1)
			}
			name := "/connections=" + strconv.Itoa(connections) + "/" + kind
			b.Run("http1"+name, func(b *testing.B) {
				var callers []func(testing.TB)
				for range connections {
					callers = append(callers, newH1Caller(b, p1, trace1).round)
				}
				benchmarkCalls(b, callers, 1)
			})
			b.Run("http2"+name, func(b *testing.B) {
				const streams = 10
				var callers []func(testing.TB)
				for range connections {
					callers = append(callers, newH2Caller(b, p2, trace2, streams).round)
				}
				benchmarkCalls(b, callers, streams)
			})
		}
	}
}
