package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/deploy/process"
	native "github.com/sequencefi/sequencefi/deploy/tfiproxy"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// TestNewConnectionsDoNotOvertake has a client that sends ten requests at once, two of
// them over connections that it had open: those come first, so one of them has rank 1.
// Go's client repeats a call that breaks such a connection, and none that breaks a new one.
func TestNewConnectionsDoNotOvertake(t *testing.T) {
	callee := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(5 * time.Millisecond) // so that all are under way together
		_, _ = io.WriteString(w, "hello")
	}))
	defer callee.Close()
	key := behaviour.NewKey()
	activation := behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "first",
		Target: &tfiv1.StaticConfiguration{
			Caller: behaviour.Service, Callee: behaviour.Peer, Api: "GET /items", Phase: tfiv1.Phase_PHASE_REQ, K: 1, EnforceK: true,
		},
		Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
	})
	activation.Scope = tfiv1.Scope_SCOPE_TRACE
	b, err := proto.Marshal(behaviour.Policy("v1", activation))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary, policy := filepath.Join(dir, "tfiproxy"), filepath.Join(dir, "policy")
	if err := os.WriteFile(policy, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addresses, err := process.FreeAddrs(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	// One worker, and a process of its own, so that it finds all of them at once.
	sidecar, err := native.Start(t.Context(), native.Options{
		Path: binary, Admin: addresses[0], Dir: dir, Config: fmt.Appendf(nil,
			`{"service": %q, "admin": %q, "workers": 1, "outbound": [{"listen": %q, "upstream": %q, "cluster": %q}], "policy": {"file": %q}}`,
			behaviour.Service, addresses[0], addresses[1], callee.Listener.Addr(), behaviour.PeerHTTP1, policy),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sidecar.Stop()
	if err := sidecar.WaitReady(t.Context(), func(ctx context.Context) error {
		if v, err := sidecar.Policy(ctx); err != nil || v != "v1" {
			return fmt.Errorf("policy %q: %w", v, cmp.Or(err, errors.New("not in force")))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const rounds = 30
	mended := 0
	for i := range rounds {
		transport := &http.Transport{}
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		failed := func(trace tfi.TraceID) int64 {
			var wg sync.WaitGroup
			var failures atomic.Int64
			for range 10 {
				wg.Go(func() {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addresses[1]+"/items", nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
					resp, err := client.Do(r)
					if err != nil {
						failures.Add(1)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body) // what it is does not matter
					_ = resp.Body.Close()
				})
			}
			wg.Wait()
			return failures.Load()
		}
		if n := failed(behaviour.OrdinaryTrace); n > 0 {
			t.Fatalf("%d ordinary requests failed", n)
		}
		if failed(tfi.NewTraceID(key, uint64(i+1))) == 0 {
			mended++
		}
		transport.CloseIdleConnections()
	}
	t.Logf("%d of %d", mended, rounds)
	if mended < rounds*2/3 {
		t.Errorf("a used connection had rank 1 in %d of %d rounds", mended, rounds)
	}
}
