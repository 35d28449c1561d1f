package policypoll

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
)

// startSidecar runs a real sidecar that polls plane.
func startSidecar(t *testing.T, plane, token string) *tfiproxy.Proxy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := tfiproxy.New(&tfiproxy.Config{
		Service: "cart", Instance: "cart-1", Version: "9.8.7", Admin: "127.0.0.1:0",
		Listeners: []tfiproxy.Listener{{Role: tfi.RoleServer, Listen: "127.0.0.1:0", Upstream: "127.0.0.1:9"}},
		Policy:    tfiproxy.PolicySource{Address: plane, TokenFile: file},
		Timeouts:  tfiproxy.Timeouts{Tick: 20 * time.Millisecond},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

type shown struct {
	Version     string   `json:"version"`
	Activations []string `json:"activations"`
}

// await reads the sidecar's admin port until it shows what is wanted.
func await(t *testing.T, p *tfiproxy.Proxy, what string, want func(shown) bool) {
	t.Helper()
	var last shown
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.AdminAddr().String()+"/policy", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		last = shown{}
		err = json.NewDecoder(resp.Body).Decode(&last)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if want(last) {
			return
		}
	}
	t.Fatalf("sidecar shows %+v, want %s", last, what)
}

// TestNamesakes runs two real sidecars under one name: they cut each other off often enough
// to be told from one.
func TestNamesakes(t *testing.T) {
	s := newPlane(t, 15*time.Second)
	server := start(t, s)
	for range 2 {
		startSidecar(t, server.Listener.Addr().String(), "secret")
	}
	timeout := time.After(30 * time.Second)
	for changed := s.Changed(); ; changed = s.Changed() {
		rows := s.Sidecars()
		if len(rows) == 1 && strings.Contains(rows[0].Refused, `"cart-1"`) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("nobody is told: %+v", rows)
		}
	}
}

// TestSidecar takes a real sidecar through the life of a policy: it gets it, keeps
// it while the plane lives, changes it, loses it when the plane dies, gets it again
// from a new plane, and drops it when it is taken away.
func TestSidecar(t *testing.T) {
	s := newPlane(t, time.Second)
	server := start(t, s)
	address := server.Listener.Addr().String()
	p := startSidecar(t, address, "secret")
	is := func(version string) func(shown) bool {
		return func(s shown) bool { return s.Version == version && len(s.Activations) == 1 }
	}
	nothing := func(s shown) bool { return s.Version == "" }
	await(t, p, "no policy", nothing)
	for _, key := range []string{"1234567", "7654321"} {
		v := apply(t, s, key)
		inForce(t, s, v)
		await(t, p, v, is(v))
	}
	row := s.Sidecars()[0]
	if row.Service != "cart" || row.Instance != "cart-1" || row.Proxy != "tfiproxy" || row.ProxyVersion != "9.8.7" {
		t.Errorf("%+v", row)
	}

	// Two lifetimes of the policy go by, but the plane is alive.
	v := row.Acked
	for kept := time.Now(); time.Since(kept) < 2*time.Second; {
		await(t, p, "the policy still", is(v))
	}

	// The plane dies without a word; after the TTL the policy is gone.
	died := time.Now()
	server.CloseClientConnections()
	server.Close()
	await(t, p, "nothing", nothing)
	if after := time.Since(died); after > 3*time.Second {
		t.Errorf("dropped %v after the plane died, its TTL is 1s", after)
	}

	// It comes back under the same address and sends the policy whole.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(newHandler(t, s))
	_ = again.Listener.Close() // its own
	again.Listener = listener
	again.Start()
	t.Cleanup(again.Close)
	await(t, p, "the policy again", is(v))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		t.Error(err)
	}
	await(t, p, "nothing", nothing)
}

// inForce waits until the plane knows that cart has the version.
func inForce(t *testing.T, s *ecds.Server, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Wait(ctx, version, []string{"cart"}); err != nil {
		t.Fatal(err)
	}
}

// spoiled is a plane whose answers are broken on the way.
type spoiled struct {
	*ecds.Server
	broken atomic.Bool
}

func (s *spoiled) Poll(ctx context.Context, p ecds.Poll) (ecds.Told, error) {
	told, err := s.Server.Poll(ctx, p)
	if s.broken.Load() && told.Version != "" {
		told.Policy = []byte("nonsense")
	}
	return told, err
}

// TestSidecarRefuses has a sidecar that cannot read its policy: the plane hears of it, so
// that no trial counts, the last good policy lapses, and a good one ends it.
func TestSidecarRefuses(t *testing.T) {
	s := &spoiled{Server: newPlane(t, 2*time.Second)}
	server := httptest.NewServer(newHandler(t, s))
	t.Cleanup(server.Close)
	p := startSidecar(t, server.Listener.Addr().String(), "secret")
	v := apply(t, s.Server, "1234567")
	inForce(t, s.Server, v)
	s.broken.Store(true)
	bad := apply(t, s.Server, "7654321")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var nack *ecds.NackError
	if err := s.Wait(ctx, bad, []string{"cart"}); !errors.As(err, &nack) || nack.Version != bad || !strings.Contains(nack.Message, tfi.ErrPolicy.Error()) {
		t.Errorf("Wait: %v", err)
	}
	if row := s.Sidecars()[0]; row.Acked != v {
		t.Errorf("%+v", row)
	}
	await(t, p, "nothing", func(s shown) bool { return s.Version == "" })
	s.broken.Store(false)
	if again := apply(t, s.Server, "7654321"); again != bad {
		t.Errorf("the same policy has version %q, had %q", again, bad)
	}
	inForce(t, s.Server, bad)
}

// TestSidecarToken says that a sidecar without the token gets nothing, and goes
// on asking without haste.
func TestSidecarToken(t *testing.T) {
	s := newPlane(t, 0)
	apply(t, s, "1234567")
	h := newHandler(t, s)
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		asked <- struct{}{}
	}))
	t.Cleanup(server.Close)
	begun := time.Now()
	p := startSidecar(t, server.Listener.Addr().String(), "wrong")
	for range 4 {
		<-asked
	}
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("asked four times in %v", took)
	}
	await(t, p, "no policy", func(s shown) bool { return s.Version == "" })
	if rows := s.Sidecars(); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
}
