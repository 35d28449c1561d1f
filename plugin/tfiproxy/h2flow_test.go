package tfiproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/durationpb"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// hugeBody is more than calls may keep back, and more than may wait to be written.
const hugeBody = maxPending + 4<<20

func delayFault(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(d)}}}}
}

// connOf is the sidecar's side of its only connection.
func connOf(p *Proxy) (h *h2conn) {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	for s := range p.conns.all {
		h = s.(*conn).h2.Load()
	}
	return h
}

// hasToStop looks at a direction until it keeps back as much as it may, and then closes
// its channel; it fails the test if that is more, or never so.
func hasToStop(t *testing.T, p *Proxy, direction func(*h2conn) *h2half) <-chan struct{} {
	done := make(chan struct{})
	look := func(h *h2conn) int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return direction(h).kept
	}
	go func() {
		defer close(done)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			h := connOf(p)
			if h == nil {
				continue
			}
			if n := look(h); n > maxKept {
				t.Errorf("%d bytes are kept back", n)
			} else if n > maxKept-frameHeaderSize-maxFrameSize {
				return
			}
		}
		t.Error("it never had to stop")
	}()
	return done
}

// TestHTTP2DelayLarge says that a delayed answer of any size arrives whole, is not kept in
// memory beyond a bound, and costs other calls of its connection nothing but time.
func TestHTTP2DelayLarge(t *testing.T) {
	release := make(chan struct{})
	p, trace := faultProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			<-release
			return
		}
		b := make([]byte, 1<<20)
		for n, err := 0, error(nil); n < hugeBody && err == nil; n += len(b) {
			_, err = w.Write(b)
		}
	})), "GET /", tfiv1.Phase_PHASE_RESP, delayFault(time.Second))
	c := newH2Peer(t, p)
	ask := errors.Join(
		c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 28}), c.WriteWindowUpdate(0, 1<<28),
		c.ask(1, true, "x-wait", "1"), c.ask(3, true, "traceparent", trace))
	if ask != nil {
		t.Fatal(ask)
	}
	full := hasToStop(t, p, func(h *h2conn) *h2half { return &h.down })
	total := 0
	c.until(t, func(f http2.Frame) bool {
		d, ok := f.(*http2.DataFrame)
		if ok {
			total += len(d.Data())
		}
		return ok && d.StreamEnded()
	})
	if total != hugeBody {
		t.Errorf("%d bytes of %d", total, hugeBody)
	}
	<-full
	close(release)
	c.until(t, func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		return ok && h.StreamID == 1 && h.StreamEnded()
	})
	h := connOf(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.kept != 0 {
		t.Errorf("%d bytes are still kept", h.down.kept)
	}
}

// TestHTTP2DelayUpload is the same of a request.
func TestHTTP2DelayUpload(t *testing.T) {
	got := make(chan int, 1)
	p, trace := faultProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = errors.Join(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 28}),
			framer.WriteSettingsAck(), framer.WriteWindowUpdate(0, 1<<28)) // its loss
		for n := 0; ; {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := f.(*http2.DataFrame); ok {
				if n += len(d.Data()); d.StreamEnded() {
					got <- n
				}
			}
		}
	})), "GET /", tfiv1.Phase_PHASE_REQ, delayFault(time.Second))
	c := newH2Peer(t, p)
	if err := c.ask(1, false, "traceparent", trace); err != nil {
		t.Fatal(err)
	}
	full := hasToStop(t, p, func(h *h2conn) *h2half { return &h.up })
	b := make([]byte, ownFrameSize)
	for n := 0; n < hugeBody; n += len(b) {
		if err := c.WriteData(1, n+len(b) == hugeBody, b); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-got; n != hugeBody {
		t.Errorf("%d bytes of %d", n, hugeBody)
	}
	<-full
}

// TestHTTP2TrialWindow says that a trial's answer keeps to the client's window, although
// the callee does not know what of it a fault's body has taken.
func TestHTTP2TrialWindow(t *testing.T) {
	const made = 4000
	p, trace := faultProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, defaultWindow))
	})), "GET /", tfiv1.Phase_PHASE_REQ, errorFault(500, make([]byte, made)))
	c := newH2Peer(t, p)
	answer := func() (total int) {
		c.until(t, func(f http2.Frame) bool {
			d, ok := f.(*http2.DataFrame)
			if ok {
				total += int(d.Length)
			}
			return ok && d.StreamEnded()
		})
		return total
	}
	if err := c.ask(1, true, "traceparent", trace); err != nil {
		t.Fatal(err)
	}
	if n := answer(); n != made {
		t.Fatalf("a body of %d bytes", n)
	}
	other := fuzzBlock(":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/other", "traceparent", trace)
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: other, EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	h := connOf(p)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		parched, window := h.parched, h.window.Load()
		h.mu.Unlock()
		if window < 0 {
			t.Fatalf("the window is overrun: %d", window)
		}
		if parched == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the answer does not wait")
		}
	}
	if err := c.WriteWindowUpdate(0, made+ownFrameSize); err != nil {
		t.Fatal(err)
	}
	if n := answer(); n != defaultWindow {
		t.Errorf("%d bytes of %d", n, defaultWindow)
	}
}

// TestHTTP2DelayEarlyAnswer says that a delayed answer arrives although its callee has
// reset the stream behind it, as one does that wants no more of the request (RFC 9113, 8.1).
func TestHTTP2DelayEarlyAnswer(t *testing.T) {
	p, trace := faultProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "enough")
	})), "GET /", tfiv1.Phase_PHASE_RESP, delayFault(100*time.Millisecond))
	c := newH2Peer(t, p)
	if err := errors.Join(c.ask(1, false, "traceparent", trace), c.WriteData(1, false, make([]byte, 1000))); err != nil {
		t.Fatal(err)
	}
	var heard []http2.FrameType
	c.until(t, func(f http2.Frame) bool {
		if f.Header().StreamID == 1 && f.Header().Type != http2.FrameWindowUpdate {
			heard = append(heard, f.Header().Type)
		}
		return f.Header().Type == http2.FrameRSTStream
	})
	if want := []http2.FrameType{http2.FrameHeaders, http2.FrameData, http2.FrameRSTStream}; !slices.Equal(heard, want) {
		t.Errorf("%v, want %v", heard, want)
	}
	// What is on its way is swallowed, and others do not feel it.
	if err := errors.Join(c.WriteData(1, true, make([]byte, 1000)), c.ask(3, true)); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool { return f.Header().StreamID == 3 })
	if n := p.metrics.get(metricMalformed); n != 0 {
		t.Errorf("%d errors", n)
	}
}
