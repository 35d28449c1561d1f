package ecds_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func localModule(t *testing.T) gate.Module { return gate.Module{Filename: pluginPath(t)} }

// Load, push, keep alive and take away, over every kind of stream.
func TestEnvoyLifecycle(t *testing.T) {
	const ttl = 5 * time.Second
	for _, tc := range []struct {
		name       string
		apiType    string
		aggregated bool
	}{
		{"delta", "DELTA_GRPC", false},
		{"delta aggregated", "DELTA_GRPC", true},
		{"sotw", "GRPC", false},
		{"sotw aggregated", "GRPC", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := startPlane(t, "", ecds.Config{Module: localModule(t), TTL: ttl, FirstTTL: 2 * time.Minute}, nil)
			e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address, apiType: tc.apiType, aggregated: tc.aggregated})
			if n := e.vms(t); n != 0 {
				t.Fatalf("%d VMs before the first push", n)
			}

			// Traffic goes on while the plugin is loaded.
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			slowest := make(chan time.Duration, 1)
			go func() {
				var worst time.Duration
				defer func() { slowest <- worst }()
				for ctx.Err() == nil {
					start := time.Now()
					if a := e.get(t, "/", "traceparent", otherParent); a.status != 200 || a.body != "app" {
						t.Errorf("ordinary request: %d %q", a.status, a.body)
					}
					worst = max(worst, time.Since(start))
				}
			}()
			start := time.Now()
			v1 := apply(t, p.Server, policyOf("cart", time.Minute))
			wait(t, p.Server, v1, "cart")
			loaded := time.Since(start)
			cancel()
			worst := <-slowest
			if got := e.trial(t); got != v1 {
				t.Fatalf("policy in force %q, acknowledged %q", got, v1)
			}
			vms := e.vms(t)
			if vms == 0 {
				t.Fatal("no VM although the plugin answers")
			}

			start = time.Now()
			v2 := apply(t, p.Server, policyOf("cart", time.Minute))
			wait(t, p.Server, v2, "cart")
			pushed := time.Since(start)
			if got := e.trial(t); got != v2 {
				t.Fatalf("policy in force %q, acknowledged %q", got, v2)
			}

			// Heartbeats keep it beyond its TTL without new VMs. An Envoy or a plane that is
			// starved for a whole TTL loses it, rightly; not time after time.
			for round := 1; !keptBeyond(t, e, ttl, v2); round++ {
				if round == 3 {
					t.Fatalf("heartbeats did not keep the policy for its TTL, %d times", round)
				}
				eventually(t, time.Minute, "policy in force again", func() bool { return e.trial(t) == v2 })
			}

			start = time.Now()
			drain, cancelDrain := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancelDrain()
			if err := p.Drain(drain); err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "no VM left", func() bool { return e.vms(t) == 0 })
			t.Logf("loaded in %v (slowest other request %v), pushed in %v, freed in %v", loaded, worst, pushed, time.Since(start))
			if a := e.get(t, "/", "traceparent", trialParent); a.status != 200 {
				t.Errorf("after removal: %d", a.status)
			}

			// And once more from nothing.
			v3 := apply(t, p.Server, policyOf("cart", time.Minute))
			wait(t, p.Server, v3, "cart")
			if got := e.trial(t); got != v3 {
				t.Fatalf("policy in force %q, acknowledged %q", got, v3)
			}
			row := p.Sidecars()[0]
			if row.Acked != v3 || row.Nack != nil || row.Aggregated != tc.aggregated || row.ProxyVersion == "" || !row.Connected {
				t.Errorf("sidecar %+v", row)
			}
		})
	}
}

// keptBeyond says whether a policy stays in force for longer than its TTL, in the
// VMs that there are.
func keptBeyond(t *testing.T, e *sidecar, ttl time.Duration, version string) bool {
	t.Helper()
	created := vmsCreated(t, e)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < ttl+time.Second; <-tick.C {
		if got := e.trial(t); got != version {
			t.Logf("policy in force %q after %v of heartbeats, want %q", got, time.Since(begun), version)
			return false
		}
	}
	n := vmsCreated(t, e)
	if n != created {
		t.Logf("heartbeats created %d VMs", n-created)
	}
	return n == created
}

var createdStat = regexp.MustCompile(`^wasm\..*\.created$`)

// vmsCreated reads how many VMs have been created so far.
func vmsCreated(t *testing.T, e *sidecar) int64 {
	t.Helper()
	stats, err := e.Stats(t.Context(), createdStat)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, v := range stats {
		n += v
	}
	return n
}

// A bootstrap of an earlier version does not allow the gate of today; the refusal
// says what to do.
func TestEnvoyWithAnOldBootstrap(t *testing.T) {
	p := startPlane(t, "", ecds.Config{Module: localModule(t)}, nil)
	startSidecar(t, sidecarOptions{name: "cart", xds: p.address, types: gate.TypeURLs()[:1]})
	err := p.Wait(t.Context(), apply(t, p.Server, policyOf("cart", time.Minute)), []string{"cart"})
	var nack *ecds.NackError
	if !errors.As(err, &nack) || !strings.Contains(nack.Message, "sequencefi envoy bootstrap") {
		t.Fatalf("Wait: %v", err)
	}
}

// A refused module is recorded with Envoy's words, and the next good push recovers.
func TestEnvoyRefusesMissingModule(t *testing.T) {
	missing := gate.Module{Filename: filepath.Join(t.TempDir(), "missing.wasm")}
	p := startPlane(t, "", ecds.Config{Module: missing}, nil)
	e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address})
	version := apply(t, p.Server, policyOf("cart", time.Minute))
	err := p.Wait(t.Context(), version, []string{"cart"})
	var nack *ecds.NackError
	if !errors.As(err, &nack) || nack.Service != "cart" || nack.Instance != "cart-1" || nack.Version != version || nack.Message == "" {
		t.Fatalf("Wait: %v", err)
	}
	row := p.Sidecars()[0]
	if row.Nack == nil || row.Nack.Version != version || row.Nack.Time.IsZero() || row.Acked != "" {
		t.Fatalf("sidecar %+v", row)
	}
	if got := e.trial(t); got != "" {
		t.Fatalf("refused policy %q is in force", got)
	}

	address := p.address
	p.stop()
	p = startPlane(t, address, ecds.Config{Module: localModule(t)}, nil)
	good := apply(t, p.Server, policyOf("cart", time.Minute))
	wait(t, p.Server, good, "cart")
	if got := e.trial(t); got != good {
		t.Fatalf("policy in force %q, acknowledged %q", got, good)
	}
}

// Envoy fetches a remote module only after it has refused the push once.
func TestEnvoyRemoteModule(t *testing.T) {
	module, err := ecds.ReadModule(pluginPath(t))
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(module)
	defer h.Close()
	address := strings.TrimPrefix(h.URL, "http://")
	p := startPlane(t, "", ecds.Config{Module: module.Source(address, "")}, nil)
	e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address, module: address})
	version := apply(t, p.Server, policyOf("cart", time.Minute))
	wait(t, p.Server, version, "cart")
	if got := e.trial(t); got != version {
		t.Fatalf("policy in force %q, acknowledged %q", got, version)
	}
	row := p.Sidecars()[0]
	t.Logf("refusals while fetching: %+v", row.Nacks)
	if len(row.Nacks) == 0 {
		t.Error("the fetch left no refusal: is nack_on_code_cache_miss set?")
	}
	if row.Nack != nil {
		t.Errorf("what was accepted in the end is listed as refused: %+v", row.Nack)
	}
}

func TestEnvoyRemoteModuleWithAnotherHash(t *testing.T) {
	module, err := ecds.ReadModule(pluginPath(t))
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = module.Path()
		module.ServeHTTP(w, r)
	}))
	defer h.Close()
	address := strings.TrimPrefix(h.URL, "http://")
	source := module.Source(address, "")
	source.SHA256 = strings.Repeat("0", 64)
	p := startPlane(t, "", ecds.Config{Module: source, ModuleRetry: time.Second}, nil)
	e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address, module: address})
	version := apply(t, p.Server, policyOf("cart", time.Minute))
	if err := p.Wait(t.Context(), version, []string{"cart"}); !errors.Is(err, ecds.ErrNack) {
		t.Fatalf("Wait: %v, want a refusal", err)
	}
	if got := e.trial(t); got != "" {
		t.Fatalf("policy %q is in force with another module", got)
	}
}

// A plane that starts again with its policies keeps the plugin; one that has
// been told nothing takes nothing away; one that has been cleared does.
func TestEnvoyPlaneRestarts(t *testing.T) {
	for _, apiType := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(apiType, func(t *testing.T) {
			c := ecds.Config{Module: localModule(t), TTL: 30 * time.Second, FirstTTL: 2 * time.Minute}
			policy := policyOf("cart", time.Minute)
			p := startPlane(t, "", c, nil)
			e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address, apiType: apiType})
			first := apply(t, p.Server, policy)
			wait(t, p.Server, first, "cart")
			// Its answer says that the worker has its VM; Envoy acknowledges before that.
			if got := e.trial(t); got != first {
				t.Fatalf("policy in force %q, want %q", got, first)
			}
			vms := e.vms(t)
			address := p.address
			p.stop()

			p = startPlane(t, address, c, nil) // knows nothing
			eventually(t, 10*time.Second, "sidecar back", func() bool { return len(p.Sidecars()) == 1 })
			if row := p.Sidecars()[0]; row.Acked != first {
				t.Errorf("reported version %q, want %q", row.Acked, first)
			}
			if got := e.trial(t); got != first {
				t.Fatalf("an empty plane took %q away: now %q", first, got)
			}
			p.stop()

			var second string
			p = startPlane(t, address, c, func(s *ecds.Server) { second = apply(t, s, policy) })
			wait(t, p.Server, second, "cart")
			if got := e.trial(t); got != second || second <= first {
				t.Fatalf("policy in force %q, applied %q after %q", got, second, first)
			}
			if n := e.vms(t); n != vms {
				t.Errorf("%d VMs after the restart, %d before", n, vms)
			}
			p.stop()

			p = startPlane(t, address, c, func(s *ecds.Server) { s.Clear() })
			eventually(t, 10*time.Second, "plugin gone", func() bool { return e.vms(t) == 0 })
		})
	}
}

// The gate's matcher, judged by Envoy itself.
func TestEnvoyMatcher(t *testing.T) {
	p := startPlane(t, "", ecds.Config{Module: localModule(t)}, nil)
	e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address})
	policy := policyOf("cart", time.Minute)
	policy.TraceHeader = "x-request-trace"
	key := policy.GetActivations()[0].GetKey()
	rule := func(ids ...*tfiv1.Identity) {
		policy.EdgeRules = append(policy.EdgeRules, &tfiv1.EdgeRule{Key: key, Identities: ids})
	}
	rule(&tfiv1.Identity{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Exact{Exact: "/edge"}})
	rule(&tfiv1.Identity{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Prefix{Prefix: "/below/"}},
		&tfiv1.Identity{Source: &tfiv1.Identity_Header{Header: "x-tenant"}, Match: &tfiv1.Identity_Exact{Exact: "red"}})
	rule(&tfiv1.Identity{Source: &tfiv1.Identity_Query{Query: "item"}, Match: &tfiv1.Identity_Exact{Exact: "4 2"}})
	wait(t, p.Server, apply(t, p.Server, policy), "cart")
	for _, tc := range []struct {
		name   string
		path   string
		header []string
		in     bool
	}{
		{"no header", "/", nil, false},
		{"traceparent", "/", []string{"traceparent", trialParent}, true},
		{"traceparent in capitals, which is none", "/", []string{"traceparent", strings.ToUpper(trialParent)}, false},
		{"traceparent of a later version", "/", []string{"traceparent", "cc" + trialParent[2:] + "-more"}, true},
		{"another traceparent", "/", []string{"traceparent", otherParent}, false},
		{"traceparent of a padded 64-bit id", "/", []string{"traceparent", "00-00000000000000005f1c2f3577b34da6-00f067aa0ba902b7-01"}, true},
		// Looking closer would cost every request; the engine does.
		{"magic elsewhere", "/", []string{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-5f1c67aa0ba902b7-01"}, true},
		{"b3", "/", []string{"b3", "5f1c2f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1"}, true},
		{"b3 64 bit", "/", []string{"b3", "5F1C2f3577b34da6-00f067aa0ba902b7-1"}, true},
		{"b3 padded", "/", []string{"b3", "00000000000000005f1c2f3577b34da6-00f067aa0ba902b7-1"}, true},
		{"b3 sampling only", "/", []string{"b3", "0"}, false},
		{"x-b3-traceid", "/", []string{"X-B3-TraceId", "5f1c2f3577b34da6"}, true},
		{"x-b3-traceid padded", "/", []string{"X-B3-TraceId", "00000000000000005F1C2f3577b34da6"}, true},
		{"another x-b3-traceid", "/", []string{"X-B3-TraceId", "4bf92f3577b34da6"}, false},
		{"uber", "/", []string{"uber-trace-id", "5f1c2f3577b34da6%3A1%3A0%3A1"}, true},
		{"own header", "/", []string{"x-request-trace", "5f1c2f3577b34da6a3ce929d0e0e4736"}, true},
		{"tracestate", "/", []string{"traceparent", otherParent, "tracestate", "rojo=1,sfi=01010101010101"}, true},
		{"another tracestate", "/", []string{"traceparent", otherParent, "tracestate", "rojo=1"}, false},
		{"edge path", "/edge", nil, true},
		{"edge path with query", "/edge?a=b", nil, true},
		{"longer than the edge path", "/edges", nil, false},
		{"edge prefix and header", "/below/x", []string{"x-tenant", "red"}, true},
		{"edge prefix without header", "/below/x", nil, false},
		{"edge prefix, another header", "/below/x", []string{"x-tenant", "reddish"}, false},
		{"edge query", "/?item=4%202&item=1", nil, true},
		{"edge query, second value", "/?item=1&item=4%202", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if in := e.get(t, tc.path, tc.header...).status == 299; in != tc.in {
				t.Errorf("let in: %v, want %v", in, tc.in)
			}
		})
	}
}
