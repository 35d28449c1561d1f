package tfiproxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// silentServers are upstreams that end connections before they say their SETTINGS.
func silentServers(t *testing.T, a *authority) map[string]string {
	pair := a.issue(t, "upstream", "localhost")
	begun := len(preface) + frameHeaderSize
	return map[string]string{
		"ends at once": rawServer(t, func(*net.TCPConn, int) {}),
		"ends when it has read": rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = io.ReadFull(conn, make([]byte, begun))
		}),
		"ends its side and does not read": rawServer(t, func(conn *net.TCPConn, _ int) {
			_ = conn.CloseWrite()
			<-t.Context().Done()
		}),
		"resets": rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = io.ReadFull(conn, make([]byte, begun))
			_ = conn.SetLinger(0)
		}),
		"ends in the middle of a frame": rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = conn.Write([]byte{0, 0, 6, 4, 0})
			_, _ = io.ReadFull(conn, make([]byte, begun))
		}),
		"TLS": rawServer(t, func(conn *net.TCPConn, _ int) {
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{alpnHTTP2}})
			_, _ = io.ReadFull(secure, make([]byte, begun))
			_ = secure.Close()
		}),
	}
}

// TestHTTP2SilentUpstream says that calls to an upstream that ends its connection before
// it has spoken get an answer each, as those to one that is not there.
func TestHTTP2SilentUpstream(t *testing.T) {
	a := newAuthority(t)
	for name, upstream := range silentServers(t, a) {
		t.Run(name, func(t *testing.T) {
			cfg := outboundTo(upstream)
			if name == "TLS" {
				cfg.Listeners[0].UpstreamTLS = &ClientTLS{CA: a.file("ca.crt")}
			}
			p, trace := faultProxy(t, cfg, "POST /answer", tfiv1.Phase_PHASE_RESP, errorFault(418, nil))
			client := protocolClient(t, true, nil)
			url := "http://" + p.Addr(0).String() + "/"
			sidecarAnswers(t, p, client)
			for path, want := range map[string]int{"none": 503, "answer": 418} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("traceparent", trace)
				resp, err := client.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("trial's call of %s: %d, want %d", path, resp.StatusCode, want)
				}
			}
			if n := p.metrics.get(metricMalformed) + p.metrics.get(metricInternal); n != 0 {
				t.Errorf("%d errors", n)
			}
			if p.metrics.get(metricUpstreamErrors) == 0 {
				t.Error("no error is counted")
			}
		})
	}
}

// TestHTTP2SilentOnce says that the next call tries the upstream anew, and that a call
// that has been answered so is not sent again.
func TestHTTP2SilentOnce(t *testing.T) {
	served := httpServer(t, echoBody)
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, n int) {
		if n == 0 {
			return
		}
		up, err := net.Dial("tcp", served)
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		go func() { _, _ = io.Copy(up, conn) }()
		_, _ = io.Copy(conn, up)
	})))
	url := "http://" + p.Addr(0).String() + "/"
	for _, want := range []int{503, 200, 200} {
		// A client that is told to go may not have heard it by its next call.
		if got := post(t, protocolClient(t, true, nil), url, "x"); got.status != want {
			t.Errorf("%+v, want %d", got, want)
		}
	}
}

// TestHTTP2SilentBound says that a client which sends more than is remembered is told
// that its connection has broken, and nothing is kept.
func TestHTTP2SilentBound(t *testing.T) {
	release := make(chan struct{})
	p := startProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
		_, _ = io.CopyN(io.Discard, conn, maxSilent+1000)
		<-release
	})))
	c := newH2Peer(t, p)
	for i := range 24 {
		if err := c.ask(uint32(1+2*i), true, "x", fmt.Sprint(strings.Repeat("y", 14000), i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "more is kept", func() bool {
		h := theConn(t, p).h2.Load()
		if h == nil || !h.up.writing.TryLock() {
			return false
		}
		defer h.up.writing.Unlock()
		return h.silent.over && h.silent.frames == nil
	})
	close(release)
	if code := c.ends(t); code != http2.ErrCode(0xffff) {
		t.Errorf("code %v", code)
	}
	if n := p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d internal errors", n)
	}
}

// TestHTTP2SilentNote says that nothing is kept once the upstream has begun.
func TestHTTP2SilentNote(t *testing.T) {
	p := startProxy(t, outboundTo(plainServer(t)))
	c := newH2Peer(t, p)
	for id := uint32(1); id < 6; id += 2 {
		if err := c.ask(id, true); err != nil {
			t.Fatal(err)
		}
		c.until(t, func(f http2.Frame) bool {
			return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
		})
	}
	h := theConn(t, p).h2.Load()
	h.up.writing.Lock()
	defer h.up.writing.Unlock()
	if !h.silent.over || h.silent.frames != nil {
		t.Errorf("%d bytes are kept", len(h.silent.frames))
	}
}

// TestHTTP2SilentLeft says that an upstream which has not begun, and ends because its
// client has, has not failed: no error is counted, and no fault made of an answer.
func TestHTTP2SilentLeft(t *testing.T) {
	for range 20 {
		asked := make(chan struct{})
		p, trace := faultProxy(t, outboundTo(rawServer(t, func(conn *net.TCPConn, _ int) {
			_, _ = io.CopyN(io.Discard, conn, int64(len(preface)+2*frameHeaderSize)) // SETTINGS, and a request's beginning
			close(asked)
			_, _ = io.Copy(io.Discard, conn) // to the client's end
		})), "GET /", tfiv1.Phase_PHASE_RESP, errorFault(418, nil))
		c := newH2Peer(t, p)
		if err := c.ask(1, true, "traceparent", trace); err != nil {
			t.Fatal(err)
		}
		<-asked
		_ = c.conn.Close()
		eventually(t, "it is not gone", func() bool { return p.metrics.open.Load() == 0 })
		if n := p.metrics.get(metricUpstreamErrors); n != 0 {
			t.Fatalf("%d upstream errors", n)
		}
		if n := p.metrics.get(metricErrors); n != 0 {
			t.Fatalf("%d faults of an answer that is none", n)
		}
	}
}
