package tfiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2peer is a bare HTTP/2 client.
type h2peer struct {
	*http2.Framer
	conn *net.TCPConn
	b    bytes.Buffer
	enc  *hpack.Encoder
}

func newH2Peer(t *testing.T, p *Proxy) *h2peer {
	t.Helper()
	c := &h2peer{conn: dialProxy(t, p)}
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.b)
	say(t, c.conn, http2.ClientPreface)
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *h2peer) block(fields ...string) []byte {
	c.b.Reset()
	all := append([]string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"}, fields...)
	for i := 0; i < len(all); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // a buffer takes it
	}
	return c.b.Bytes()
}

func (c *h2peer) ask(id uint32, end bool, fields ...string) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block(fields...), EndStream: end, EndHeaders: true})
}

// until reads frames until f returns true, and acknowledges SETTINGS.
func (c *h2peer) until(t *testing.T, f func(http2.Frame) bool) {
	t.Helper()
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			if err := c.WriteSettingsAck(); err != nil {
				t.Fatal(err)
			}
			c.enc.SetMaxDynamicTableSize(0) // as it was told
		}
		if f(frame) {
			return
		}
	}
}

// ends reports how the connection ends: the code of its GOAWAY.
func (c *h2peer) ends(t *testing.T) http2.ErrCode {
	t.Helper()
	code := http2.ErrCode(0xffff)
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatal("the connection goes on")
			}
			return code
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			code = g.ErrCode
		}
	}
}

// burst sends what do writes at once, and nothing more: a reset would overtake the GOAWAY
// on its way to a peer that still sends.
func (c *h2peer) burst(t *testing.T, do func() error) {
	t.Helper()
	var b bytes.Buffer
	framer := c.Framer
	c.Framer = http2.NewFramer(&b, nil)
	err := do()
	c.Framer = framer
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

func plainServer(t *testing.T) string {
	return httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(w, r.Header.Get("X-Say"))
	})
}

// waitingServer answers requests with x-wait only when they are given up.
func waitingServer(t *testing.T) string {
	return httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			<-r.Context().Done()
		}
	})
}

// TestHTTP2Violations provokes the sidecar; the connection must end with the right code.
func TestHTTP2Violations(t *testing.T) {
	for _, c := range []struct {
		name string
		code http2.ErrCode
		do   func(c *h2peer) error
	}{
		{"rapid reset", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			for id := uint32(1); id < 6*maxResets; id += 2 {
				if err := errors.Join(c.ask(id, false), c.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"pings", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			for range 3 * maxPings {
				if err := c.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		}},
		{"settings", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			for range 3 * maxOthers {
				if err := c.WriteSettings(); err != nil {
					return err
				}
			}
			return nil
		}},
		{"priorities", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			for range 3 * maxOthers {
				if err := c.WritePriority(1, http2.PriorityParam{Weight: 1}); err != nil {
					return err
				}
			}
			return nil
		}},
		{"empty frames", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			if err := c.ask(1, false); err != nil {
				return err
			}
			for range 3 * maxEmpties {
				if err := c.WriteData(1, false, nil); err != nil {
					return err
				}
			}
			return nil
		}},
		{"continuations", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()})
			for i := 0; i < 1000 && err == nil; i++ {
				err = c.WriteContinuation(1, false, nil)
			}
			return err
		}},
		{"header block too large", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()})
			for i := 0; i < 8 && err == nil; i++ {
				err = c.WriteContinuation(1, false, appendLiteral(nil, "x", strings.Repeat("a", 15000)))
			}
			return err
		}},
		{"bomb", http2.ErrCodeEnhanceYourCalm, func(c *h2peer) error {
			// One entry of the table, named again and again.
			b := bytes.Clone(c.block("x-bomb", strings.Repeat("a", 3000)))
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: append(b, bytes.Repeat([]byte{0xbe}, 10000)...)})
		}},
		{"interrupted block", http2.ErrCodeProtocol, func(c *h2peer) error {
			return errors.Join(
				c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()}),
				c.WritePing(false, [8]byte{}))
		}},
		{"even stream", http2.ErrCodeProtocol, func(c *h2peer) error { return c.ask(2, true) }},
		{"DATA on an idle stream", http2.ErrCodeProtocol, func(c *h2peer) error { return c.WriteData(7, true, []byte("x")) }},
		{"reset of an idle stream", http2.ErrCodeProtocol, func(c *h2peer) error { return c.WriteRSTStream(7, http2.ErrCodeCancel) }},
		{"malformed block", http2.ErrCodeCompression, func(c *h2peer) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, EndHeaders: true})
		}},
		{"frame too large", http2.ErrCodeFrameSize, func(c *h2peer) error {
			return c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxFrameSize+1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, outboundTo(plainServer(t)))
			peer := newH2Peer(t, p)
			peer.burst(t, func() error { return c.do(peer) })
			if code := peer.ends(t); code != c.code {
				t.Errorf("code %v, want %v", code, c.code)
			}
			if n := p.metrics.get(metricMalformed); n != 1 {
				t.Errorf("%d counted, want 1", n)
			}
			if n := p.metrics.get(metricFloods); (n == 1) != (c.code == http2.ErrCodeEnhanceYourCalm) {
				t.Errorf("%d floods counted", n)
			}
		})
	}
}

// TestHTTP2Tables lets the client use its HPACK table until it has acknowledged
// that there is none, with blocks whole and in pieces; values must arrive.
func TestHTTP2Tables(t *testing.T) {
	p := startProxy(t, outboundTo(plainServer(t)))
	c := newH2Peer(t, p)
	sent := map[uint32]string{}
	send := func(value string, pieces bool) {
		t.Helper()
		id := uint32(2*len(sent) + 1)
		sent[id] = value
		block := bytes.Clone(c.block("x-say", value))
		h := http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true, PadLength: 3,
			Priority: http2.PriorityParam{StreamDep: 1, Weight: 3},
		}
		var err error
		if pieces {
			h.BlockFragment, h.EndHeaders = block[:2], false
			err = errors.Join(c.WriteHeaders(h), c.WriteContinuation(id, false, block[2:3]), c.WriteContinuation(id, true, block[3:]))
		} else {
			err = c.WriteHeaders(h)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := map[uint32]string{}
	receive := func() {
		t.Helper()
		for ended := len(got); ended < len(sent); {
			c.until(t, func(f http2.Frame) bool {
				if d, ok := f.(*http2.DataFrame); ok {
					got[d.StreamID] += string(d.Data())
					if d.StreamEnded() {
						ended++
						return true
					}
				}
				return false
			})
		}
	}
	// Nothing has been read, so the sidecar's SETTINGS are unknown here.
	for i := range 4 {
		send(strings.Repeat("long value ", 3), i%2 == 1)
	}
	receive()
	c.enc.SetMaxDynamicTableSize(0)
	send("without a table", false)
	send("without a table", true)
	receive()
	for id, want := range sent {
		if got[id] != want {
			t.Errorf("stream %d: got %q, want %q", id, got[id], want)
		}
	}
}

// TestHTTP2Settings says what ends are told that say nothing themselves.
func TestHTTP2Settings(t *testing.T) {
	told := make(chan map[http2.SettingID]uint32, 1)
	cfg := outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings() // its loss
		f, err := framer.ReadFrame()
		s, ok := f.(*http2.SettingsFrame)
		if err != nil || !ok {
			return
		}
		told <- settingsOf(s)
		_, _ = io.Copy(io.Discard, conn)
	}))
	cfg.Limits.Streams = 7
	c := newH2Peer(t, startProxy(t, cfg))
	c.until(t, func(f http2.Frame) bool {
		s, ok := f.(*http2.SettingsFrame)
		if got := fmt.Sprint(settingsOf(s)); ok && got != "map[HEADER_TABLE_SIZE:0 MAX_CONCURRENT_STREAMS:7]" {
			t.Errorf("the client was told %s", got)
		}
		return ok
	})
	if got := fmt.Sprint(<-told); got != "map[HEADER_TABLE_SIZE:0 ENABLE_PUSH:0]" {
		t.Errorf("the callee was told %s", got)
	}
}

func settingsOf(f *http2.SettingsFrame) map[http2.SettingID]uint32 {
	all := map[http2.SettingID]uint32{}
	if f != nil {
		_ = f.ForeachSetting(func(s http2.Setting) error { all[s.ID] = s.Val; return nil }) // it returns what this does
	}
	return all
}

// TestHTTP2GoAway says that a sidecar that drains tells its clients, finishes
// their calls and ends.
func TestHTTP2GoAway(t *testing.T) {
	release := make(chan struct{})
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = io.WriteString(w, "done")
	})))
	c := newH2Peer(t, p)
	if err := c.ask(1, true); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool { s, ok := f.(*http2.SettingsFrame); return ok && s.IsAck() })
	p.Drain()
	c.until(t, func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		if ok && (g.ErrCode != http2.ErrCodeNo || g.LastStreamID != 1) {
			t.Errorf("%v", g)
		}
		return ok
	})
	close(release)
	c.until(t, func(f http2.Frame) bool { d, ok := f.(*http2.DataFrame); return ok && d.StreamEnded() })
	c.ends(t)
}

// TestHTTP2Hammer runs many calls at once over few connections and compares what
// each gets with what it sent.
func TestHTTP2Hammer(t *testing.T) {
	p := startProxy(t, outboundTo(plainServer(t)))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	var calls atomic.Int64
	for range 3 {
		transport := &http.Transport{Protocols: &protocols}
		t.Cleanup(transport.CloseIdleConnections)
		for w := range 8 {
			wg.Go(func() {
				for i := range 30 {
					calls.Add(1)
					body := strings.Repeat(fmt.Sprintf("%d-%d ", w, i), 1+i*i*i)
					ctx, cancel := context.WithCancel(t.Context())
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr(0).String()+"/", strings.NewReader(body))
					if err != nil {
						t.Error(err)
					}
					resp, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						cancel()
						return
					}
					if i%7 == 6 {
						cancel() // in the middle
						_ = resp.Body.Close()
						continue
					}
					b, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || string(b) != body {
						t.Errorf("%d bytes back of %d, %v", len(b), len(body), err)
					}
					cancel()
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	// Under the race detector on a busy machine all calls may take minutes, so that what
	// counts is whether any goes on.
	for before := int64(0); ; {
		select {
		case <-done:
			return
		case <-time.After(30 * time.Second):
		}
		n := calls.Load()
		if n == before {
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1) // the log takes it
			t.Fatalf("stuck after %d calls", n)
		}
		before = n
	}
}

// TestHTTP2FirstFrame says that a client that does not begin with its SETTINGS gets
// nothing through: what it says could overtake its own requests.
func TestHTTP2FirstFrame(t *testing.T) {
	p := startProxy(t, outboundTo(plainServer(t)))
	c := &h2peer{conn: dialProxy(t, p)}
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.enc = hpack.NewEncoder(&c.b)
	say(t, c.conn, http2.ClientPreface)
	if err := c.ask(1, true); err != nil {
		t.Fatal(err)
	}
	if code := c.ends(t); code != http2.ErrCodeProtocol {
		t.Errorf("code %v, want %v", code, http2.ErrCodeProtocol)
	}
}
