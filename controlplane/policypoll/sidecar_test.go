package policypoll

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// startSidecar runs a real sidecar that polls plane.
func startSidecar(t *testing.T, plane, token string) *tfiproxy.Proxy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := tfiproxy.New(&tfiproxy.Config{
		Service: "cart", Instance: "cart-1", Admin: "127.0.0.1:0",
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

// TestSidecar takes a real sidecar through the life of a policy: it gets it, keeps
// it while the plane lives, changes it, loses it when the plane dies, gets it again
// from a new plane, and drops it when it is taken away.
func TestSidecar(t *testing.T) {
	b := newBoard()
	b.waiting = make(chan struct{}, 1<<16)
	h, err := New(Config{Source: b, Token: "secret", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	address := server.Listener.Addr().String()
	p := startSidecar(t, address, "secret")

	put := func(version string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.policies["cart"] = &tfiv1.Policy{Service: "cart", Version: version, Activations: []*tfiv1.Activation{{
			Key: []byte("1234567"), Remaining: durationpb.New(time.Minute), Services: []string{"cart"},
		}}}
		close(b.changed)
		b.changed = make(chan struct{})
	}
	is := func(version string) func(shown) bool {
		return func(s shown) bool { return s.Version == version && len(s.Activations) == 1 }
	}
	await(t, p, "no policy", func(s shown) bool { return s.Version == "" })
	put("v1")
	await(t, p, "v1", is("v1"))
	put("v2")
	await(t, p, "v2", is("v2"))

	// Two lifetimes of the policy go by, but the plane is alive.
	polls := len(b.waiting)
	for end := time.Now().Add(10 * time.Second); len(b.waiting) < polls+7 && time.Now().Before(end); {
		await(t, p, "v2 still", is("v2"))
	}

	// The plane dies without a word; after the TTL the policy is gone.
	died := time.Now()
	server.CloseClientConnections()
	server.Close()
	await(t, p, "nothing", func(s shown) bool { return s.Version == "" })
	if after := time.Since(died); after > 2*time.Second {
		t.Errorf("dropped %v after the plane died, its TTL is 1s", after)
	}

	// It comes back under the same address and sends the policy whole.
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(h)
	_ = again.Listener.Close()
	again.Listener = listener
	again.Start()
	t.Cleanup(again.Close)
	await(t, p, "v2 again", is("v2"))
	b.set("cart", "")
	await(t, p, "nothing", func(s shown) bool { return s.Version == "" })
}

// TestSidecarToken says that a sidecar without the token gets nothing, and goes
// on asking without haste.
func TestSidecarToken(t *testing.T) {
	b := newBoard()
	b.set("cart", "v1")
	h, err := New(Config{Source: b, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.polled) != 0 {
		t.Errorf("polled %v", b.polled)
	}
}
