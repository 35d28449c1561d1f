package policypoll

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPlane is a control plane without Envoys, whose polls wait for a fraction of ttl.
func newPlane(t *testing.T, ttl time.Duration) *ecds.Server {
	t.Helper()
	s, err := ecds.New(ecds.Config{PollOnly: true, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newHandler(t *testing.T, source Source) *Handler {
	t.Helper()
	h, err := New(Config{Source: source, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// start serves a plane at a free port.
func start(t *testing.T, s *ecds.Server) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newHandler(t, s))
	t.Cleanup(server.Close)
	return server
}

// apply gives cart a policy with one activation.
func apply(t *testing.T, s *ecds.Server, key string) (version string) {
	t.Helper()
	version, err := s.Apply(t.Context(), map[string]*tfiv1.Policy{"cart": {Activations: []*tfiv1.Activation{{
		Key: []byte(key), Remaining: durationpb.New(time.Minute), Services: []string{"cart"},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	return version
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
	r.Header.Set("User-Agent", "curl/8.1")
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

func TestPoll(t *testing.T) {
	s := newPlane(t, time.Second)
	server := start(t, s)
	const path, token = "/v1/policy/cart?instance=cart-1", "Bearer secret"
	got := get(t, server, path, token)
	if got.status != http.StatusNoContent || got.header.Get(TTLHeader) != "" {
		t.Errorf("without a policy: %+v", got)
	}
	v := apply(t, s, "1234567")
	got = get(t, server, path, token)
	var p tfiv1.Policy
	if err := proto.Unmarshal(got.body, &p); err != nil || got.status != http.StatusOK || p.GetVersion() != v {
		t.Fatalf("%+v: policy %v, error %v", got, &p, err)
	}
	if got.header.Get("Etag") != v || got.header.Get(TTLHeader) != "1" {
		t.Errorf("headers %v", got.header)
	}
	got = get(t, server, path+"&version="+v, token)
	if got.status != http.StatusNoContent || got.header.Get(TTLHeader) != "1" {
		t.Errorf("a heartbeat: %+v", got)
	}
	if row := s.Sidecars()[0]; row.Acked != v || row.Proxy != "curl" || row.ProxyVersion != "8.1" {
		t.Errorf("%+v", row)
	}
	v2 := apply(t, s, "7654321")
	if got = get(t, server, path+"&version="+v, token); got.header.Get("Etag") != v2 {
		t.Errorf("the next: %+v", got)
	}
	refused := path + "&version=" + v + "&refused=" + v2
	if got = get(t, server, refused+"&reason=no%20room", token); got.status != http.StatusNoContent || got.header.Get(TTLHeader) != "" {
		t.Errorf("after a refusal: %+v", got)
	}
	if row := s.Sidecars()[0]; row.Acked != v || row.Nack == nil || row.Nack.Version != v2 || row.Nack.Message != "no room" {
		t.Errorf("%+v", row)
	}
	s.Remove("cart")
	if got = get(t, server, refused, token); got.status != http.StatusGone {
		t.Errorf("status %d, want 410", got.status)
	}
	if row := s.Sidecars()[0]; row.Acked != v {
		t.Errorf("the removal was not acknowledged, and yet: %+v", row)
	}
	get(t, server, path, token)
	if row := s.Sidecars()[0]; row.Acked != "" {
		t.Errorf("%+v", row)
	}
}

// TestPollWaits says that a poll is answered by a change of its own service, and by the
// end of the plane.
func TestPollWaits(t *testing.T) {
	s := newPlane(t, 30*time.Second)
	server := start(t, s)
	v := apply(t, s, "1234567")
	get(t, server, "/v1/policy/cart?instance=a", "Bearer secret")
	poll := func(version string) <-chan answer {
		changed := s.Changed()
		done := make(chan answer, 1)
		go func() { done <- get(t, server, "/v1/policy/cart?instance=a&version="+version, "Bearer secret") }()
		<-changed // the acknowledgement has come
		return done
	}
	done := poll(v)
	if _, err := s.Apply(t.Context(), map[string]*tfiv1.Policy{"prices": {}}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-done:
		t.Fatalf("answered with %+v by another service's change", got)
	default:
	}
	v2 := apply(t, s, "7654321")
	if got := <-done; got.header.Get("Etag") != v2 {
		t.Errorf("answered with %+v, want %s", got, v2)
	}
	done = poll(v2)
	s.Close()
	if got := <-done; got.status != http.StatusServiceUnavailable {
		t.Errorf("answered with %+v by a plane that goes", got)
	}
}

func TestRefused(t *testing.T) {
	server := start(t, newPlane(t, 0))
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

// TestPollUnderOneName has two sidecars of one name: the earlier poll is told.
func TestPollUnderOneName(t *testing.T) {
	s := newPlane(t, 0)
	server := start(t, s)
	changed := s.Changed()
	first := make(chan answer, 1)
	go func() { first <- get(t, server, "/v1/policy/cart?instance=a", "Bearer secret") }()
	<-changed
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := s.Poll(ctx, ecds.Poll{Service: "cart", Instance: "a"})
		second <- err
	}()
	if got := <-first; got.status != http.StatusConflict {
		t.Errorf("%+v", got)
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{})
	if !errors.Is(err, ErrConfig) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("error %v, want two problems", err)
	}
}
