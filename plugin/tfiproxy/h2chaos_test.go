package tfiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// chaosBody is the answer to request n.
func chaosBody(n int) string { return strings.Repeat(strconv.Itoa(n)+" ", 1+n%3000) }

// badH2Callee answers HTTP/2 requests by what their id says: mostly well, and in
// every way that a stream, or its connection, can go wrong.
type badH2Callee struct {
	*http2.Framer
	conn ends
	b    bytes.Buffer
	enc  *hpack.Encoder
}

func serveBadH2(conn ends, _ int) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	c := &badH2Callee{Framer: http2.NewFramer(conn, conn), conn: conn}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.SetMaxReadFrameSize(1 << 20)
	c.AllowIllegalWrites = true
	c.enc = hpack.NewEncoder(&c.b)
	c.enc.SetMaxDynamicTableSize(0)
	if c.WriteSettings() != nil {
		return
	}
	streams := map[uint32]int{}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		ended := false
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() && c.WriteSettingsAck() != nil {
				return
			}
		case *http2.PingFrame:
			if !f.IsAck() && c.WritePing(true, f.Data) != nil {
				return
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.RegularFields() {
				if h.Name == "x-id" {
					streams[id], _ = strconv.Atoi(h.Value)
				}
			}
			ended = f.StreamEnded() || streams[id]%29 == 3 // before it has read all
		case *http2.DataFrame:
			if n := f.Header().Length; n > 0 && errors.Join(c.WriteWindowUpdate(0, n), c.WriteWindowUpdate(id, n)) != nil {
				return
			}
			ended = f.StreamEnded()
		case *http2.RSTStreamFrame:
			delete(streams, id)
		}
		if n, ok := streams[id]; ok && ended {
			delete(streams, id)
			if !c.answer(id, n) {
				return
			}
		}
	}
}

func (c *badH2Callee) head(id uint32, end bool, fields ...string) {
	c.b.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer takes it
	}
	block := c.b.Bytes()
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], EndStream: end}) // what fails is seen by the reader
	_ = c.WriteContinuation(id, true, block[1:])
}

// answer answers request n. It returns false if the connection is to end.
func (c *badH2Callee) answer(id uint32, n int) bool {
	body := []byte(chaosBody(n))
	length := strconv.Itoa(len(body))
	data := func(end bool, b []byte) {
		for ; len(b) > 1<<14; b = b[1<<14:] {
			_ = c.WriteData(id, false, b[:1<<14]) // what fails is seen by the reader
		}
		_ = c.WriteData(id, end, b)
	}
	switch n % 211 { // the whole connection
	case 1:
		_ = c.conn.SetLinger(0)
		return false
	case 2:
		c.head(id, false, ":status", "200", "content-length", length)
		_ = c.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
	case 3:
		_, _ = io.WriteString(c.conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return false
	case 4:
		_ = c.WriteData(id+100000, false, body) // of a stream that nobody opened
		return true
	case 5:
		c.head(id, false, ":status", "200")
		_ = c.WriteRawFrame(http2.FrameData, 0, id, body[:1])
		_, _ = c.conn.Write([]byte{0, 0xff, 0xff, 0, 0, 0}) // stops in the middle of a frame
		_ = c.conn.CloseWrite()
		_, _ = io.Copy(io.Discard, c.conn)
		return false
	case 6:
		c.head(id, true, ":status", "200", "bad", strings.Repeat("x", 70000))
		return true
	default:
		switch n % 31 { // the stream
		case 1:
			_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
			return true
		case 2:
			c.head(id, false, ":status", "200", "content-length", length)
			data(false, body[:len(body)/2])
			_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
			return true
		case 4:
			return true // never answers
		case 5:
			c.head(id, false, ":status", "200", "content-length", "1") // says more than it promised
		case 6:
			c.head(id, false, ":status", "103", "link", "</a>")
			c.head(id, false, ":status", "200")
			_ = c.WriteDataPadded(id, false, nil, make([]byte, 200))
			_ = c.WritePriority(id, http2.PriorityParam{StreamDep: id, Weight: 3})
			_ = c.WriteRawFrame(0xcc, 0xff, id, []byte("unknown"))
		case 7:
			c.head(id, false, ":status", "200")
			data(false, body)
			c.head(id, true, "x-sum", length)
			return true
		case 8:
			c.head(id, false, ":status", "200")
			data(true, body)
			_ = c.WriteData(id, true, body) // goes on after the end
			return true
		default:
			c.head(id, false, ":status", "200", "content-length", length)
		}
	}
	data(true, body)
	if n%29 == 3 {
		_ = c.WriteRSTStream(id, http2.ErrCodeNo)
	}
	return true
}

// chaosFaults are what becomes of requests below a path in the trial.
var chaosFaults = []struct {
	path  string
	phase tfiv1.Phase
	fault *tfiv1.Fault
}{
	{"/req/error", tfiv1.Phase_PHASE_REQ, &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 418, Body: []byte("no")}}}},
	{"/resp/error", tfiv1.Phase_PHASE_RESP, &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 418, Body: []byte("no")}}}},
	{"/resp/abort", tfiv1.Phase_PHASE_RESP, &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
	{"/req/delay", tfiv1.Phase_PHASE_REQ, &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(2 * time.Millisecond)}}}}},
	{"/resp/drop", tfiv1.Phase_PHASE_RESP, &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(2 * time.Millisecond)}}}},
}

// TestChaosHTTP2 is TestChaos for HTTP/2: many streams on few connections, beside
// clients that break theirs.
func TestChaosHTTP2(t *testing.T) {
	for _, m := range chaosModes(t, alpnHTTP2) {
		t.Run(m.name, func(t *testing.T) { chaosHTTP2(t, &m) })
	}
}

func chaosHTTP2(t *testing.T, m *chaosMode) {
	cfg := m.config(t, serveBadH2)
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	cfg.Timeouts = Timeouts{Head: time.Second, Idle: time.Second, Hold: 200 * time.Millisecond, Tick: 20 * time.Millisecond}
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	a := behaviour.Activation(key, 50*time.Minute)
	for _, f := range chaosFaults {
		a.Tfics = append(a.Tfics, &tfiv1.Tfic{
			Id: strings.ReplaceAll(f.path[1:], "/", "-"), Fault: f.fault, MaxInjections: 1 << 20, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY,
			Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "POST " + f.path + "/{id}", Phase: f.phase},
		})
	}
	policy, err := proto.Marshal(behaviour.Policy("v1", a))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	transports := make([]*http.Transport, 4)
	for i := range transports {
		transports[i] = protocolClient(t, true, m.client())
	}
	before := heapInUse()
	var next, whole, broken atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > m.requests {
					return
				}
				switch {
				case m.a != nil && n%37 == 8:
					m.chaosHandshake(t, p, n)
				case n%37 < 8 && n%37 > 0:
					m.chaosClient(t, p, n)
				default:
					switch connected, ok := m.chaosH2Call(t, transports[n%len(transports)], p, n, key); {
					case ok:
						whole.Add(1)
					case connected:
						broken.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d whole, %d broken", whole.Load(), broken.Load())
	if calls := whole.Load() + broken.Load(); whole.Load() < m.atLeast(calls) || calls == 0 {
		t.Errorf("only %d of %d came whole", whole.Load(), calls)
	}
	for _, tr := range transports {
		tr.CloseIdleConnections()
	}
	for end := time.Now().Add(10 * time.Second); p.metrics.open.Load() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d connections are stuck\n%s", p.metrics.open.Load(), b[:runtime.Stack(b, true)])
		}
	}
	if n := p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d internal errors", n)
	}
	m.handshakes(t, p)
	after := heapInUse()
	t.Logf("heap of %d KiB before, %d after", before>>10, after>>10)
	if after > before+16<<20 {
		t.Error("memory does not come back")
	}
}

// heapInUse is the heap without what pools keep.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // pools let go in two steps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// chaosH2Call makes call n, and reports whether there was a connection for it, and whether
// its answer came whole.
func (m *chaosMode) chaosH2Call(t *testing.T, transport *http.Transport, p *Proxy, n int, key tfi.Key) (connected, ok bool) {
	var got atomic.Bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	ok = m.chaosH2Answer(ctx, t, transport, p, n, key)
	return got.Load(), ok
}

// chaosH2Answer is chaosH2Call of a call that is traced.
func (m *chaosMode) chaosH2Answer(ctx context.Context, t *testing.T, transport *http.Transport, p *Proxy, n int, key tfi.Key) bool {
	patience := 15 * time.Second
	if n%31 == 4 && n%211 > 6 || n%211 == 4 { // the callee will not answer
		patience = 5 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, trace := fmt.Sprintf("/%d", n), behaviour.OrdinaryTrace
	fault := ""
	if n%3 == 0 {
		trace = tfi.NewTraceID(key, uint64(n))
		if n%5 == 0 {
			fault = chaosFaults[n/15%len(chaosFaults)].path
			path = fault + path
		}
	}
	var body io.Reader = strings.NewReader(strings.Repeat("x", n*7%3000*(n%5)))
	if n%4 == 0 {
		body = io.MultiReader(body) // whose length is not known
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.scheme()+"://"+p.Addr(0).String()+path, body)
	if err != nil {
		t.Error(err)
		return false
	}
	r.Header.Set("X-Id", strconv.Itoa(n))
	r.Header.Set("traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
	if n%23 == 0 {
		defer time.AfterFunc(time.Duration(n%7)*time.Millisecond, cancel).Stop() // gives up
	}
	stuck := func(err error) bool {
		if patience > time.Second && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("request %d is stuck", n)
		}
		return false
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return stuck(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return stuck(err)
	}
	switch {
	case resp.StatusCode == 418 && strings.HasSuffix(fault, "error"):
		if string(got) != "no" {
			t.Errorf("request %d got %.60q", n, got)
		}
		return true
	case resp.StatusCode == 503:
		return false // its connection had no callee any more
	case resp.StatusCode != 200:
		t.Errorf("request %d got status %d", n, resp.StatusCode)
		return false
	case fault == "/resp/drop", fault == "/resp/abort", strings.HasSuffix(fault, "error"):
		t.Errorf("request %d was not faulted by %s", n, fault)
	}
	if string(got) != chaosBody(n) {
		t.Errorf("request %d got %.60q", n, got)
	}
	return true
}

// chaosClient breaks a connection of its own in the manner that n says.
func (m *chaosMode) chaosClient(t *testing.T, p *Proxy, n int) {
	conn, err := m.dial(p)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(15*time.Second)) != nil {
		return
	}
	say := appendFrameHeader([]byte(preface), frameHeader{kind: frameSettings})
	begun := len(say)
	say = appendHeaders(say, 1, fuzzBlock(":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "x-id", strconv.Itoa(n)), false)
	readOn := true
	switch n % 37 {
	case 1: // leaves in the middle of its request
		say, readOn = say[:(begun+len(say))/2], false
	case 2: // breaks
		readOn = false
		defer func() { _ = conn.SetLinger(0) }()
	case 3: // stops in the middle of a frame, and says its end
		say = append(say, 0, 3, 0, 0, 0, 0, 0, 0, 1, 'x')
	case 4: // says nonsense
		say = append(say[:begun], bytes.Repeat([]byte{0xff}, 100)...)
	case 5: // stalls in the middle of a head, without a stream
		say = say[:len(say)-1]
	case 6: // lies about windows
		say = appendWindowUpdate(appendWindowUpdate(say, 0, maxWindow), 0, maxWindow)
		say = appendGoAway(say, 0, codeFlowControl)
	case 7: // goes on after it has reset
		say = appendData(appendReset(say, 1, codeCancel), 1, []byte("x"))
		say = append(say, 0, 0, 0, 1, 0, 0, 0, 0, 1)
	}
	_, _ = conn.Write(say) // or it has been cut
	if !readOn {
		return
	}
	if n%37 != 4 && n%37 != 5 {
		_ = conn.CloseWrite()
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("client %d is stuck", n)
		}
	}
}
