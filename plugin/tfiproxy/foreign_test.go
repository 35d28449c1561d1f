package tfiproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// installed returns a program of Debian's, or skips.
func installed(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no %s: apt-get install %s", name, pkg)
		}
		t.Skipf("no %s: apt-get install %s", name, pkg)
	}
	return path
}

// recorded makes a sidecar record a trial without faults, and returns its key.
func recorded(t *testing.T, p *Proxy) tfi.Key {
	t.Helper()
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	return key
}

// TestCurl has curl as a client, over both protocols.
func TestCurl(t *testing.T) {
	curl := installed(t, "curl", "curl")
	p := startProxy(t, outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what is missing is seen
		_, _ = w.Write(b)
	})))
	for _, args := range [][]string{
		{"--http1.1"},
		{"--http1.0"},
		{"--http2-prior-knowledge"},
		{"--http2"},
		{"--http1.1", "-H", "Expect: 100-continue"},
		{"--http1.1", "-H", "Transfer-Encoding: chunked"},
	} {
		body := strings.Repeat("some bytes ", 20000)
		cmd := exec.CommandContext(t.Context(), curl, append(args, "-sS", "--max-time", "10", "--data-binary", "@-", "http://"+p.Addr(0).String()+"/")...)
		cmd.Stdin = strings.NewReader(body)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != body {
			t.Errorf("%v: %d bytes of %d, %v: %.200s", args, len(out), len(body), err, out)
		}
	}
}

// TestH2load has nghttp2's load generator as a client, over both protocols: bodies
// both ways, many streams at once, traffic of a trial and of none.
func TestH2load(t *testing.T) {
	h2load := installed(t, "h2load", "nghttp2-client")
	cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what is missing is seen
		_, _ = w.Write(b)
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := recorded(t, p)
	const requests, size = 2000, 20000
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range [][]string{{"--h1"}, {"-m", "20"}} {
		for _, trace := range []tfi.TraceID{behaviour.OrdinaryTrace, tfi.NewTraceID(key, 1)} {
			args := slices.Concat(protocol, []string{
				"-n", strconv.Itoa(requests), "-c", "8", "-t", "1", "-d", body,
				"-H", "traceparent: 00-" + trace.String() + "-00f067aa0ba902b7-01", "http://" + p.Addr(0).String() + "/",
			})
			out, err := exec.CommandContext(t.Context(), h2load, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{
				fmt.Sprintf("%d succeeded, 0 failed, 0 errored, 0 timeout", requests),
				fmt.Sprintf("(%d) data", requests*size),
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("%v, %s: not %q in\n%s", protocol, trace, want, out)
				}
			}
		}
	}
	if n := p.metrics.get(metricInternal) + p.metrics.get(metricMalformed); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// TestTrailers has Go's own server and client, which send trailers both ways.
func TestTrailers(t *testing.T) {
	cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", fmt.Sprintf("%d %v %s", len(b), err, r.Trailer.Get("X-Asked")))
		w.Header().Set(http.TrailerPrefix+"X-Late", "not announced")
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := recorded(t, p)
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		var only http.Protocols
		only.SetHTTP1(!http2)
		only.SetUnencryptedHTTP2(http2)
		transport := &http.Transport{Protocols: &only}
		t.Cleanup(transport.CloseIdleConnections)
		for _, trace := range []tfi.TraceID{behaviour.OrdinaryTrace, tfi.NewTraceID(key, 1)} {
			for _, size := range []int{0, 1, 100_000} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr(0).String()+"/", io.MultiReader(strings.NewReader(strings.Repeat("x", size))))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
				r.Trailer = http.Header{"X-Asked": {"yes"}}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s, %d bytes: %v", name, size, err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close() // it has been read
				if want := fmt.Sprintf("%d <nil> yes", size); err != nil || len(b) != size || resp.Trailer.Get("X-Sum") != want || resp.Trailer.Get("X-Late") != "not announced" {
					t.Errorf("%s, %s, %d bytes: %d back, %v, trailers %v", name, trace, size, len(b), err, resp.Trailer)
				}
			}
		}
	}
}
