package tfiproxy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestTrialEnd takes a trial's key away: the sidecar reports its final count of
// events, and knows the trial no more.
func TestTrialEnd(t *testing.T) {
	s := newNativeSidecar(t)
	key := behaviour.NewKey()
	if err := s.Apply(t.Context(), behaviour.Policy("v1", behaviour.Activation(key, 0))); err != nil {
		t.Fatal(err)
	}
	call := behaviour.Call{
		Outbound: true, Request: behaviour.Message{Method: "GET", Path: "/items"},
		Answer: behaviour.Message{Status: 200, Chunks: []string{"x"}},
	}
	for range 2 {
		if _, err := s.Do(t.Context(), &call, tfi.NewTraceID(key, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(t.Context(), behaviour.Policy("v2")); err != nil {
		t.Fatal(err)
	}
	ended := func(x behaviour.Span) bool { return x.Attributes[span.Kind] == "trial_end" }
	spans := s.Spans(t.Context(), key, func(all []behaviour.Span) bool { return slices.ContainsFunc(all, ended) })
	i := slices.IndexFunc(spans, ended)
	if i < 0 {
		t.Fatalf("no trial_end in %v", spans)
	}
	// Request, answer and delivery of each call.
	if got := spans[i].Attributes[span.Events]; got != int64(6) {
		t.Errorf("%v events, want 6", got)
	}
	if got := spans[i].Attributes[span.PolicyVersion]; got != "v1" {
		t.Errorf("policy version %v, want v1", got)
	}
	if n := s.proxy.policies.store.Len(); n != 0 {
		t.Errorf("%d states are left", n)
	}
}

// TestFences says that a policy ends by its TTL, and an activation by its lifetime,
// whoever sends it again.
func TestFences(t *testing.T) {
	p := startProxy(t, outboundTo(echoHTTP1(t, plainAnswer)))
	key := behaviour.NewKey()
	marshal := func(version string, lifetime time.Duration) []byte {
		b, err := proto.Marshal(behaviour.Policy(version, behaviour.Activation(key, lifetime)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	gone := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	if err := p.policies.apply(marshal("v1", time.Minute), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.policies.gate.Load() == nil {
		t.Fatal("not applied")
	}
	gone("the policy outlives its TTL", func() bool { return p.policies.gate.Load() == nil })
	if v := p.policies.version(); v != "" {
		t.Errorf("version %q is still in force", v)
	}
	if err := p.policies.apply(marshal("v2", 100*time.Millisecond), 0); err != nil {
		t.Fatal(err)
	}
	first := p.now()
	live := func() bool { return p.policies.gate.Load().engine.Live(key, p.now()) }
	for live() && p.now()-first < 5*time.Second {
		if err := p.policies.apply(marshal("v3", 100*time.Millisecond), 0); err != nil {
			t.Fatal(err)
		}
	}
	if live() {
		t.Error("sending an activation again and again prolongs it")
	}
}

func TestBadPolicy(t *testing.T) {
	p := startProxy(t, outboundTo(echoHTTP1(t, plainAnswer)))
	good, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(behaviour.NewKey(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(good); err != nil {
		t.Fatal(err)
	}
	other := behaviour.Policy("v2")
	other.Service = "another"
	b, err := proto.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[error][]byte{tfi.ErrPolicy: []byte("nonsense"), errOtherService: b} {
		if err := p.Apply(b); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if got := p.policies.state().Version; got != "v1" {
		t.Errorf("version %q, want the last good one", got)
	}
	if n := p.metrics.get(metricBadPolicy); n != 2 {
		t.Errorf("%d counted, want 2", n)
	}
}

func TestPolicyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.pb")
	cfg := outboundTo(echoHTTP1(t, plainAnswer))
	cfg.Policy.File = file
	p := startProxy(t, cfg)
	for _, version := range []string{"v1", "v2", ""} {
		if version == "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else {
			b, err := proto.Marshal(behaviour.Policy(version))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file+".new", b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(5 * time.Second); p.policies.state().Version != version; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("version %q, want %q", p.policies.state().Version, version)
			}
		}
	}
}
