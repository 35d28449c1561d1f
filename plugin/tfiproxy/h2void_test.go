package tfiproxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// nowhere is an address where nobody listens.
func nowhere(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// sidecarAnswers says that calls of all kinds get an answer each in an upstream's place.
func sidecarAnswers(t *testing.T, p *Proxy, client *http.Transport) {
	t.Helper()
	for _, body := range []string{"", "x", strings.Repeat("x", 1<<20)} {
		if got := post(t, client, "http://"+p.Addr(0).String()+"/", body); got.status != 503 || got.body != "" {
			t.Errorf("%d bytes: %+v", len(body), got)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+p.Addr(0).String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			m, got := []byte("x"), []byte(nil)
			if err := conn.Invoke(ctx, "/s/Echo", &m, &got); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "sidecar") {
				t.Errorf("unary: %v", err)
			}
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/s/Bidi")
			if err == nil {
				err = stream.RecvMsg(&got)
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("stream: %v", err)
			}
		})
	}
	wg.Wait()
	if n := p.metrics.get(metricMalformed) + p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// TestHTTP2NoUpstream says that calls to an upstream that cannot be reached get an
// answer each, and that the upstream is used as soon as it is there.
func TestHTTP2NoUpstream(t *testing.T) {
	upstream := nowhere(t)
	p := startProxy(t, outboundTo(upstream))
	client := protocolClient(t, true, nil)
	url := "http://" + p.Addr(0).String() + "/"
	sidecarAnswers(t, p, client)
	if curl, err := exec.LookPath("curl"); err == nil {
		out, err := exec.CommandContext(t.Context(), curl, "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}", url, url).CombinedOutput()
		if err != nil || string(out) != "503503" && string(out) != "503" {
			t.Errorf("curl: %s, %v", out, err)
		}
	}
	l, err := net.Listen("tcp", upstream)
	if err != nil {
		t.Skip("the port has been taken by another program")
	}
	var both http.Protocols
	both.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: http.HandlerFunc(echoBody), Protocols: &both}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	if got := post(t, client, url, "x"); got.status != 200 || got.body != "x" {
		t.Errorf("now it is there: %+v", got)
	}
	if n := p.metrics.get(metricMalformed) + p.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// TestHTTP2VoidLeaves says that a client that asks for nothing is told to come back,
// and that a call that was on its way then gets its answer.
func TestHTTP2VoidLeaves(t *testing.T) {
	p := startProxy(t, outboundTo(nowhere(t)))
	c := newH2Peer(t, p)
	if err := c.WritePing(false, [8]byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	pong := false
	c.until(t, func(f http2.Frame) bool {
		if ping, ok := f.(*http2.PingFrame); ok {
			pong = ping.IsAck() && ping.Data == [8]byte{1, 2, 3}
		}
		g, ok := f.(*http2.GoAwayFrame)
		if ok && (g.ErrCode != http2.ErrCodeNo || g.LastStreamID != 1<<31-1) {
			t.Errorf("%v", g)
		}
		return ok
	})
	if !pong {
		t.Error("no answer to a PING")
	}
	if err := c.ask(1, true); err != nil {
		t.Fatal(err)
	}
	c.until(t, func(f http2.Frame) bool {
		h, ok := f.(*http2.MetaHeadersFrame)
		if ok && (h.PseudoValue("status") != "503" || !h.StreamEnded()) {
			t.Errorf("%v", h)
		}
		return ok
	})
}

// TestHTTP2VoidBound says that a client which asks and does not listen is not
// remembered for ever.
func TestHTTP2VoidBound(t *testing.T) {
	v := newH2Void()
	defer v.close()
	ping := appendFrameHeader(nil, frameHeader{kind: framePing, length: 8})
	ping = append(ping, make([]byte, 8)...)
	for range 2 * maxVoid / len(ping) {
		if err := v.write(ping); err != nil {
			if len(v.out) > maxVoid+len(ping) {
				t.Errorf("%d bytes wait", len(v.out))
			}
			return
		}
	}
	t.Errorf("%d bytes wait", len(v.out))
}

// TestHTTP2NoUpstreamTrial says that a trial's faults and reports are those of HTTP/1
// where there is no upstream.
func TestHTTP2NoUpstreamTrial(t *testing.T) {
	e, err := behaviour.NewEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	cfg := outboundTo(nowhere(t))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP1
	cfg.Service = behaviour.Service
	cfg.Clusters = map[string]string{behaviour.ReportCluster: e.Collector()}
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	names := map[tfiv1.Phase]string{tfiv1.Phase_PHASE_REQ: "/request", tfiv1.Phase_PHASE_RESP: "/answer"}
	fault := func(phase tfiv1.Phase) *tfiv1.Tfic {
		return &tfiv1.Tfic{
			Id: fmt.Sprint(phase), MaxInjections: 100, Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 418}}},
			Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "POST " + names[phase], Phase: phase},
		}
	}
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, fault(tfiv1.Phase_PHASE_REQ), fault(tfiv1.Phase_PHASE_RESP))))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	type seen struct {
		status   int
		injected string
	}
	call := func(http2 bool, path string) seen {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr(0).String()+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("traceparent", "00-"+tfi.NewTraceID(key, 1).String()+"-00f067aa0ba902b7-01")
		resp, err := protocolClient(t, http2, nil).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return seen{resp.StatusCode, resp.Header.Get(tfi.InjectedHeader)}
	}
	for path, status := range map[string]int{"/none": 503, names[tfiv1.Phase_PHASE_REQ]: 418, names[tfiv1.Phase_PHASE_RESP]: 418} {
		one, two := call(false, path), call(true, path)
		if one != two || one.status != status {
			t.Errorf("%s: HTTP/1 %+v, HTTP/2 %+v, want %d", path, one, two, status)
		}
	}
}
