package tfiproxy

import (
	"encoding/binary"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// script is an end of a connection that exists in memory: it says what it was
// given, piece by piece, and keeps what it hears.
type script struct {
	say   []byte
	piece int // how much a read gets at most
	// shy: it says nothing to who does not wait, as a callee that has not been asked.
	shy   bool
	heard []byte
}

var _ layer = (*script)(nil)

func (s *script) read(b *buffer, try bool) (*buffer, error) {
	if try && s.shy {
		return b, errNothing
	}
	if len(s.say) == 0 {
		return b, io.EOF
	}
	if b == nil {
		b = takeBuffer()
	}
	n := copy(b.b[b.w:], s.say[:min(len(s.say), s.piece)])
	b.w += n
	s.say = s.say[n:]
	return b, nil
}

func (s *script) write(b []byte) error { s.heard = append(s.heard, b...); return nil }
func (s *script) closeWrite() error    { return nil }
func (s *script) close()               {}

// fuzzKey is the trial of the connections that are fuzzed.
var fuzzKey = tfi.Key{1, 2, 3, 4, 5, 6, 7}

// fuzzPolicy makes every fault in both phases; delays and drops take that long, 0:
// there are none.
func fuzzPolicy(f *testing.F, long time.Duration) []byte {
	delay := &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(long)}}}}
	drop := &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(long)}}}
	a := behaviour.Activation(fuzzKey, 0)
	for api, x := range map[string]*tfiv1.Tfic{
		"POST /req/error":  {Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 502}}}},
		"POST /req/abort":  {Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
		"POST /resp/error": {Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 502}}}, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY},
		"POST /resp/abort": {Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
		"POST /req/delay":  {Fault: delay},
		"POST /resp/delay": {Fault: delay},
		"POST /req/drop":   {Fault: drop},
		"POST /resp/drop":  {Fault: drop},
		"s/Delay":          {Fault: delay},
		"s/Error":          {Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{GrpcStatus: 8}}}},
	} {
		phase := tfiv1.Phase_PHASE_RESP
		if strings.HasPrefix(api, "POST /req") {
			phase = tfiv1.Phase_PHASE_REQ
		}
		if long == 0 && (x.Fault == delay || x.Fault == drop) {
			continue
		}
		x.Id, x.MaxInjections = strings.NewReplacer(" ", "-", "/", "-").Replace(api), 1000
		x.Target = &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: api, Phase: phase}
		a.Tfics = append(a.Tfics, x)
	}
	b, err := proto.Marshal(behaviour.Policy("v1", a))
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// fuzzConn is a connection in a sidecar of its own, whose ends are scripts.
func fuzzConn(t testing.TB, policy []byte, client, callee layer) *conn {
	p, err := New(&Config{Service: behaviour.Service}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	c := &conn{
		proxy: p, cluster: behaviour.PeerHTTP2, target: "none",
		listener: &listener{proxy: p, cfg: &Listener{Role: tfi.RoleClient}},
	}
	c.down.over, c.up.over = client, callee
	c.down.tcp, c.up.tcp = looseTCP(t), looseTCP(t)
	return c
}

// fuzzHTTP2 makes it speak HTTP/2, one turn at a time.
func fuzzHTTP2(c *conn) *h2conn {
	h := &h2conn{
		conn: c, proxy: c.proxy,
		byClient: map[uint32]*h2stream{}, byServer: map[uint32]*h2stream{},
		nextServer: 1, opened: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	close(h.closed) // nobody opens a window while this goroutine waits
	h.window.Store(defaultWindow)
	h.clientWindow.Store(defaultWindow)
	h.up.begin(h, &c.down, &c.up, true)
	h.down.begin(h, &c.up, &c.down, false)
	return h
}

// looseTCP is a connection that leads nowhere, for deadlines.
func looseTCP(t testing.TB) *net.TCPConn {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// fuzzBlock is a header block without a table.
func fuzzBlock(fields ...string) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		b = appendLiteral(b, fields[i], fields[i+1])
	}
	return b
}

// FuzzHTTP2 plays both ends of a connection, frame by frame or in pieces of them,
// through the sidecar. Whatever they say, what each hears are whole frames, in an order that
// HTTP/2 allows, on streams that it knows; and no byte of a window is lost.
func FuzzHTTP2(f *testing.F) {
	policy := fuzzPolicy(f, 20*time.Second) // longer than any run: timers are fired below
	settings := appendFrameHeader(nil, frameHeader{kind: frameSettings})
	settings = slices.Clip(appendFrameHeader(settings, frameHeader{kind: frameSettings, flags: flagAck}))
	ask := func(id uint32, path, kind string, end bool) []byte {
		return appendHeaders(nil, id, fuzzBlock(":method", "POST", ":scheme", "http", ":path", path, "content-type", kind,
			"traceparent", "00-"+tfi.NewTraceID(fuzzKey, uint64(id)).String()+"-00f067aa0ba902b7-01"), end)
	}
	paths := []string{"/", "/req/error", "/req/abort", "/req/delay", "/req/drop", "/resp/error", "/resp/abort", "/resp/delay", "/resp/drop"}
	for _, path := range paths {
		client := slices.Concat(settings, ask(1, path, "text/plain", false))
		client = append(appendData(client, 1, []byte("question")), ask(3, path, "text/plain", true)...)
		callee := appendHeaders(settings, 1, fuzzBlock(":status", "200", "content-length", "6"), false)
		callee = appendData(callee, 1, []byte("answer"))
		callee = appendReset(callee, 3, codeCancel)
		f.Add(client, callee, []byte{0xfe, 0xff, 0xfe, 0xff})
		f.Add(client, callee, []byte{0x2a, 0x31, 0x2a, 0x31, 0x08, 0x15})
		f.Add(client, callee, []byte{0xfe, stepTimers, 0xff, stepTimers})
	}
	for _, path := range []string{"/s/Echo", "/s/Error", "/s/Delay"} {
		client := slices.Concat(settings, ask(1, path, "application/grpc", false))
		client = appendData(client, 1, []byte("\x00\x00\x00\x00\x01x"))
		callee := appendHeaders(settings, 1, fuzzBlock(":status", "200", "content-type", "application/grpc"), false)
		callee = append(callee, 0, 0, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 'y')
		callee = appendHeaders(callee, 1, fuzzBlock("grpc-status", "0"), true)
		callee = appendGoAway(appendWindowUpdate(callee, 0, 100), 1, codeNone)
		f.Add(client, callee, []byte{0xfe, 0xff, 0xfe, 0xff})
		f.Add(client, callee, []byte{0x10, 0x11, 0x22, 0x33})
		f.Add(client, callee, []byte{0xfe, 0xff, stepTimers})
	}
	// An ordinary call, and the same before the ends have acknowledged anything.
	plain := appendHeaders(nil, 1, []byte{0x83, 0x86, 0x84}, false)
	plain = append(plain, 0, 0, 3, 0, flagPadded|flagEndStream, 0, 0, 0, 1, 1, 'x', 0)
	f.Add(append(settings, plain...), appendHeaders(settings, 1, []byte{0x88}, true), []byte{0xfe, 0xff})
	f.Add(append(settings[:9:9], plain...), appendHeaders(settings[:9:9], 1, []byte{0x88}, true), []byte{0xfe, 0xff})

	// A held request that goes on while a frame of another is under way.
	held := append(ask(1, "/req/delay", "text/plain", true), appendHeaders(nil, 3, []byte{0x83, 0x86, 0x84}, false)...)
	held = appendData(held, 3, make([]byte, 600))
	f.Add(slices.Concat(settings, held, appendHeaders(nil, 5, []byte{0x83, 0x86, 0x84}, true)), settings, []byte{0xff, 0xfe, stepTimers, 0xfe})

	f.Fuzz(func(t *testing.T, client, callee, steps []byte) {
		down, up := &script{say: client}, &script{say: callee}
		c := fuzzConn(t, policy, down, up)
		h := fuzzHTTP2(c)
		var broken error
		for len(steps)+len(down.say)+len(up.say) > 0 && broken == nil {
			step := byte(0xfe)
			if len(steps) > 0 {
				step, steps = steps[0], steps[1:]
			} else if len(down.say) == 0 {
				step = 0xff
			}
			if step == stepTimers {
				fireAll(h)
				continue
			}
			r, from := &h.up, down
			if step&1 == 1 {
				r, from = &h.down, up
			}
			from.piece = int(step)/2*4 + 1
			broken = onePiece(r)
		}
		if c.proxy.metrics.get(metricInternal) != 0 {
			t.Fatal("internal error")
		}
		sent := checkFrames(t, up.heard, &h.down)
		got := checkFrames(t, down.heard, &h.up)
		if broken == nil {
			checkWindows(t, h, client[:len(client)-len(h.up.in.data())], callee[:len(callee)-len(h.down.in.data())], sent, got)
		}
		h.end()
		c.end()
	})
}

// stepTimers lets all timers run out.
const stepTimers = 0

func fireAll(h *h2conn) {
	ids := slices.Sorted(maps.Keys(h.byClient))
	for _, id := range ids {
		if s := h.byClient[id]; s != nil && s.trial != nil && s.trial.timer != nil {
			h.fire(s, s.trial, s.trial.round)
		}
	}
}

// onePiece is a turn of [h2half.run].
func onePiece(r *h2half) error {
	r.makeRoom()
	var err error
	if r.in, err = r.from.read(r.in); err != nil {
		if err == io.EOF { //nolint:errorlint // returned as it is
			return nil
		}
		return err
	}
	return r.process()
}

// frameCount is what a series of frames said of the connection's window.
type frameCount struct {
	data, windows int64
	frames        int
}

// count reads frames, the last of which may be cut off.
func (n *frameCount) count(b []byte) {
	for len(b) >= frameHeaderSize {
		f := parseFrameHeader(b)
		b = b[frameHeaderSize:]
		n.frames++
		switch {
		case f.kind == frameData:
			n.data += int64(f.length)
		case f.kind == frameWindowUpdate && f.stream == 0 && len(b) >= 4:
			n.windows += int64(binary.BigEndian.Uint32(b) & maxWindow)
		}
		b = b[min(f.length, len(b)):]
	}
}

// checkFrames says that an end heard what it may; back is the direction that comes
// from it.
func checkFrames(t *testing.T, heard []byte, back *h2half) (n frameCount) {
	n.count(heard)
	toCallee := !back.fromClient
	last, block := uint32(0), uint32(0)
	for b := heard; len(b) > 0; {
		if len(b) < frameHeaderSize {
			t.Fatalf("ends in the middle of a frame's header: %x", heard)
		}
		f := parseFrameHeader(b)
		if err := f.check(maxFrameSize); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		b = b[frameHeaderSize:]
		if len(b) < f.length {
			t.Fatalf("ends in the middle of %+v", f)
		}
		payload := b[:f.length]
		b = b[f.length:]
		if (block != 0) != (f.kind == frameContinuation) || block != 0 && f.stream != block {
			t.Fatalf("%+v in the middle of a header block, or without one", f)
		}
		if f.stream != 0 {
			if back.idle(f.stream) {
				t.Fatalf("%+v on a stream that is not known (toward the callee: %v)", f, toCallee)
			}
			if toCallee && f.kind == frameHeaders && f.stream > last {
				if f.stream != last+2 && last != 0 || last == 0 && f.stream != 1 {
					t.Fatalf("stream %d after %d", f.stream, last)
				}
				last = f.stream
			}
			if toCallee && f.kind != frameHeaders && f.stream > last {
				t.Fatalf("%+v before its stream was opened", f)
			}
		}
		switch f.kind {
		case frameHeaders, frameContinuation:
			block = f.stream
			if f.has(flagEndHeaders) {
				block = 0
			}
			if f.kind == frameHeaders {
				if _, err := headerFragment(f, payload); err != nil {
					t.Fatal(err)
				}
			}
		case frameSettings:
			table := f.has(flagAck)
			for ; len(payload) > 0; payload = payload[settingSize:] {
				v := binary.BigEndian.Uint32(payload[2:])
				switch binary.BigEndian.Uint16(payload) {
				case settingTableSize:
					table = v == 0
				case settingEnablePush:
					if v != 0 {
						t.Fatal("push allowed")
					}
				}
			}
			if !table && f.length > 0 {
				t.Fatal("a table is allowed")
			}
		case framePriority, framePushPromise:
			t.Fatalf("%+v was passed on", f)
		default:
			if f.kind > frameContinuation {
				t.Fatalf("%+v was passed on", f)
			}
		}
	}
	if block != 0 {
		t.Fatal("ends in the middle of a header block")
	}
	return n
}

// checkWindows says that the connection's window is that of what both ends agree
// on: what was sent and not passed on has been given back or is still kept.
func checkWindows(t *testing.T, h *h2conn, client, callee []byte, toCallee, toClient frameCount) {
	t.Helper()
	var fromClient, fromCallee frameCount
	fromClient.count(client)
	fromCallee.count(callee)
	// What waits for an end's own SETTINGS to go first counts as sent.
	for r, n := range map[*h2half]*frameCount{&h.up: &toCallee, &h.down: &toClient} {
		if r.pending != nil {
			n.count(r.pending.b)
		}
		n.windows += int64(r.credit)
		if r.pass { // what of a frame is still to come counts as sent, too
			n.data += int64(r.left)
		}
	}
	keptUp, keptDown := int64(0), int64(0)
	for _, s := range h.byClient {
		if s.trial != nil {
			keptUp += int64(s.trial.up.data)
			keptDown += int64(s.trial.down.data)
		}
	}
	if given := toClient.windows - fromCallee.windows; fromClient.data != toCallee.data+given+keptUp {
		t.Fatalf("client sent %d bytes; %d passed on, %d given back, %d kept", fromClient.data, toCallee.data, given, keptUp)
	}
	if given := toCallee.windows - fromClient.windows; fromCallee.data != toClient.data+given+keptDown {
		t.Fatalf("callee sent %d bytes; %d passed on, %d given back, %d kept", fromCallee.data, toClient.data, given, keptDown)
	}
	if want := defaultWindow + fromClient.windows - toClient.data; h.window.Load() != want {
		t.Fatalf("the client's window is %d, should be %d", h.window.Load(), want)
	}
}
