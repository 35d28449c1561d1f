package tfiproxy

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestPythonPeer has a gRPC client that is built on another HTTP/2 (gRPC's C core),
// whose encoder keeps tables as it likes.
func TestPythonPeer(t *testing.T) {
	python, err := filepath.Abs("../../.tools/grpcio/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no Python with grpcio: make grpcio")
		}
		t.Skip("no Python with grpcio: make grpcio")
	}
	cfg := outboundTo(echoGRPC(t, make(chan struct{}, 1)))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "g1", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{GrpcStatus: 8, GrpcMessage: "full — up"}}},
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "s/Faulted", Phase: tfiv1.Phase_PHASE_RESP},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		trace   tfi.TraceID
		faulted string
	}{
		{"ordinary", behaviour.OrdinaryTrace, "OK 5"},
		{"trial", tfi.NewTraceID(key, 1), "RESOURCE_EXHAUSTED full — up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), python, "testdata/peer.py", p.Addr(0).String(), "00-"+c.trace.String()+"-00f067aa0ba902b7-01")
			cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := []string{"OK 5", "OK 3000000", "NOT_FOUND nothing — here", c.faulted, "OK 5", "OK 50"}
			lines := bufio.NewScanner(strings.NewReader(string(out)))
			for i := 0; lines.Scan(); i++ {
				if i >= len(want) || lines.Text() != want[i] {
					t.Errorf("call %d: %q\n%s", i, lines.Text(), out)
				}
			}
		})
	}
}

// TestCurl has curl as a client, over both protocols.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no curl: apt-get install curl")
		}
		t.Skip("no curl: apt-get install curl")
	}
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
