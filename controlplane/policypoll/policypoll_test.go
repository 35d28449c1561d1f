package policypoll

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board is a source that tests write on.
type board struct {
	mu       sync.Mutex
	policies map[string]*tfiv1.Policy
	changed  chan struct{}
	polled   []string
	waiting  chan struct{} // gets one for each Changed
}

func newBoard() *board {
	return &board{policies: map[string]*tfiv1.Policy{}, changed: make(chan struct{}), waiting: make(chan struct{}, 100)}
}

func (b *board) Policy(service string) *tfiv1.Policy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.policies[service]
}

func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting <- struct{}{}
	return b.changed
}

func (b *board) Polled(service, instance, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.polled = append(b.polled, service+"/"+instance+"/"+version)
}

func (b *board) set(service, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.policies, service)
	if version != "" {
		b.policies[service] = &tfiv1.Policy{Service: service, Version: version}
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// answer is what a poll got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func get(t *testing.T, server *httptest.Server, path, token string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

func start(t *testing.T, b *board, ttl time.Duration) *httptest.Server {
	t.Helper()
	h, err := New(Config{Source: b, Token: "secret", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func TestPoll(t *testing.T) {
	b := newBoard()
	server := start(t, b, time.Second)
	b.set("cart", "v1")
	const query = "?instance=cart-1&version="
	got := get(t, server, "/v1/policy/cart"+query, "Bearer secret")
	var p tfiv1.Policy
	if err := proto.Unmarshal(got.body, &p); err != nil || p.GetVersion() != "v1" {
		t.Fatalf("policy %v, error %v", &p, err)
	}
	if got.header.Get("Etag") != "v1" || got.header.Get(TTLHeader) != "1" {
		t.Errorf("headers %v", got.header)
	}
	begun := time.Now()
	if got = get(t, server, "/v1/policy/cart"+query+"v1", "Bearer secret"); got.status != http.StatusNoContent {
		t.Errorf("status %d, want 204", got.status)
	}
	if waited := time.Since(begun); waited < 300*time.Millisecond || got.header.Get(TTLHeader) != "1" {
		t.Errorf("answered after %v with %v", waited, got.header)
	}
	b.set("cart", "")
	if got = get(t, server, "/v1/policy/cart"+query+"v1", "Bearer secret"); got.status != http.StatusNotFound {
		t.Errorf("status %d, want 404", got.status)
	}
	if polled, want := strings.Join(b.polled, " "), "cart/cart-1/ cart/cart-1/v1 cart/cart-1/v1"; polled != want {
		t.Errorf("polled %q, want %q", polled, want)
	}
}

// TestPollWaits says that a poll is answered by a change, and by its own only.
func TestPollWaits(t *testing.T) {
	b := newBoard()
	server := start(t, b, 30*time.Second)
	b.set("cart", "v1")
	done := make(chan string, 1)
	go func() {
		done <- get(t, server, "/v1/policy/cart?instance=a&version=v1", "Bearer secret").header.Get("Etag")
	}()
	<-b.waiting // the poll has come
	b.set("prices", "v2")
	<-b.waiting // and waits again
	select {
	case v := <-done:
		t.Fatalf("answered with %q by another service's change", v)
	default:
	}
	b.set("cart", "v3")
	if v := <-done; v != "v3" {
		t.Errorf("answered with %q, want v3", v)
	}
}

func TestRefused(t *testing.T) {
	server := start(t, newBoard(), 0)
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"/v1/policy/cart?instance=a", "", 401},
		{"/v1/policy/cart?instance=a", "Bearer wrong", 401},
		{"/v1/policy/cart?instance=a", "secret", 401},
		{"/v1/policy/cart", "Bearer secret", 400},
		{"/v1/policy/", "Bearer secret", 404},
	} {
		if got := get(t, server, c.path, c.token); got.status != c.status {
			t.Errorf("%s with %q: status %d, want %d", c.path, c.token, got.status, c.status)
		}
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{TTL: time.Millisecond})
	if !errors.Is(err, ErrConfig) || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("error %v, want three problems", err)
	}
}
