package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/service"
)

// freeAddress is one at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// nativeTopology is a file with a service behind a TFIProxy, and more.
func nativeTopology(t *testing.T, dir, more string) (path string, policy string) {
	t.Helper()
	policy = freeAddress(t)
	return write(t, filepath.Join(dir, "topology.yaml"), `
services:
  - {name: shop, sidecar: tfiproxy, app: "127.0.0.1:9", inbound: "`+freeAddress(t)+`", admin: "`+freeAddress(t)+`"}
policy: `+policy+"\n"+more), policy
}

// runNative prints the configuration of a service's sidecar, and runs it.
func runNative(t *testing.T, topologyFile, service string) {
	t.Helper()
	r := call(t, "tfiproxy", "config", service, "--topology", topologyFile)
	r.expect(t, exitNothing)
	c, err := config.Parse([]byte(r.out))
	if err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	p, err := tfiproxy.New(c, nil)
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
}

// held is the version that the sidecar of shop has in force.
func held(t *testing.T, top *topology.Topology) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+top.Services[0].Admin+"/policy", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct{ Version string }
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	return state.Version
}

// TestNativePlane runs a plane for TFIProxies alone, without plugin and xDS, and one that
// has both on one port, with a real sidecar: it is told its policy, and when the plane
// closes it has none any more.
func TestNativePlane(t *testing.T) {
	for name, envoys := range map[string]bool{"alone": false, "beside Envoys": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, policy := nativeTopology(t, dir, "")
			flags := planeFlags{otlp: "127.0.0.1:0", wait: time.Minute, plugin: filepath.Join(dir, "none")}
			if envoys {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, strings.Replace(string(b), "policy:", "  - {name: pay}\nmodule: "+policy+"\npolicy:", 1))
				flags.plugin, flags.xds = plugin(t, dir), "127.0.0.1:0"
			}
			runNative(t, path, "shop")
			top, err := flags.loadTopology(path)
			if err != nil {
				t.Fatal(err)
			}
			p, err := startPlane(t.Context(), flags, top, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if (p.xds != "") != envoys || len(p.ports) != 1 {
				t.Errorf("xDS at %q, HTTP at %v", p.xds, p.ports)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			version, err := p.server.Apply(ctx, campaign.Policies(top, []string{"shop"}, nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.server.Wait(ctx, version, []string{"shop"}); err != nil {
				t.Fatal(err)
			}
			if v := held(t, top); v != version {
				t.Errorf("the sidecar has version %q, applied was %q", v, version)
			}
			if rows := (fleet{p}).Sidecars(); len(rows) != 1 || rows[0].Proxy != "tfiproxy" || !rows[0].Connected {
				t.Errorf("%+v", rows)
			}
			p.close()
			if v := held(t, top); v != "" {
				t.Errorf("version %q was left to its TTL", v)
			}
		})
	}
}

// TestNativeCampaign searches a small system behind TFIProxies, and replays what it found:
// a shop that shows an empty cart where the cart does not answer.
func TestNativeCampaign(t *testing.T) {
	dir := t.TempDir()
	cart := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[1, 2]`)
	}))
	defer cart.Close()
	toCart := freeAddress(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items := "null"
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+toCart+"/items", nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header.Set("Traceparent", r.Header.Get("Traceparent"))
		if resp, err := client.Do(out); err == nil {
			if b, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
				items = string(b)
			}
			_ = resp.Body.Close() // it has been read
		}
		_, _ = io.WriteString(w, `{"cart": `+items+`}`)
	}))
	defer shop.Close()
	inbound, otlp := freeAddress(t), freeAddress(t)
	path := write(t, filepath.Join(dir, "topology.yaml"), fmt.Sprintf(`
services:
  - {name: shop, sidecar: tfiproxy, app: %q, inbound: %q, calls: [{service: cart, listen: %q}]}
  - {name: cart, sidecar: tfiproxy, app: %q, inbound: %q}
policy: %q
otlp: %q
`, shop.Listener.Addr(), inbound, toCart, cart.Listener.Addr(), freeAddress(t), freeAddress(t), otlp))
	file := write(t, filepath.Join(dir, "campaign.yaml"), `{name: shop, workload: {steps: [{http: {url: "http://`+inbound+`/"}}]}}`)
	runNative(t, path, "shop")
	runNative(t, path, "cart")
	out := filepath.Join(dir, "out")
	call(t, "check", file).expect(t, exitNothing, "all is well", "shop → cart", "(tfiproxy)")
	call(t, "plan", file).expect(t, exitNothing, "nothing is loaded into 2 native sidecars")
	call(t, "run", file, "--out", out).expect(t, exitFindings, "shop: 1 finding", "4 trials (4 fired, 0 invalid)", "GET /items (shop → cart)")
	summary, err := os.ReadFile(filepath.Join(out, report.SummaryFile))
	if err != nil || !strings.Contains(string(summary), `"tfiproxy"`) || !strings.Contains(string(summary), `"exhausted": true`) {
		t.Errorf("%v %s", err, summary)
	}
	// From its own file alone, which has the topology.
	finding := filepath.Join(out, "findings", "F1.yaml")
	call(t, "replay", finding, "--all", "--times", "2").expect(t, exitFindings, "2 of 2")
	// The same with a solver that is lost in the middle.
	target := brokenSolver(t)
	r := call(t, "run", file, "--out", filepath.Join(dir, "lost"), "--solver", target)
	r.expect(t, exitIncomplete, "stopped before its end: the solver at "+target+" is gone\n", "shop: 1 finding",
		"sequencefi: the solver at "+target+" is gone: start it again by solver --listen "+target+", or leave --solver out")
	if strings.Contains(r.out+r.errors, "rpc error") {
		t.Errorf("it says\n%s%s", r.out, r.errors)
	}
	// Where a flag has reports go nowhere, it is named before the topology's address.
	call(t, "replay", finding, "--otlp", "127.0.0.1:0").expect(t, exitIncomplete,
		"sequencefi: by the topology, sidecars report to "+otlp+", but --otlp has this command listen at 127.0.0.1:0: leave it out",
		"no sidecar reported anything of the run")
	// The system does not make such a call any more: no word of a repair.
	text, err := os.ReadFile(finding)
	if err != nil {
		t.Fatal(err)
	}
	gone := write(t, finding, strings.ReplaceAll(string(text), "GET /items", "GET /gone"))
	call(t, "replay", gone, "--times", "2").expect(t, exitIncomplete, "the fault was never injected in 2 runs: ", "its target never came")
}

// brokenSolver starts a solver service that has gone when candidates are asked for again, and
// returns its address.
func brokenSolver(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Bool
	server := grpc.NewServer(grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, answer grpc.StreamHandler) error {
		if asked.Swap(true) {
			return status.Error(codes.Unavailable, "connection refused")
		}
		return answer(s, stream)
	}))
	solverv1.RegisterSolverServiceServer(server, service.New(service.Options{}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestNativeConfig(t *testing.T) {
	dir := t.TempDir()
	path, _ := nativeTopology(t, dir, "")
	token := filepath.Join(dir, "policy-token")
	first := call(t, "tfiproxy", "config", "shop", "--topology", path)
	first.expect(t, exitNothing, "made "+token, `"token_file": "`+token+`"`)
	info, err := os.Stat(token)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() < 40 {
		t.Fatalf("%v %v", info, err)
	}
	before, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	again := call(t, "tfiproxy", "config", "shop", "--topology", path)
	after, err := os.ReadFile(token)
	if err != nil || string(before) != string(after) || again.errors != "" || again.out != first.out {
		t.Errorf("%v: a second call changed something:\n%s%s", err, again.errors, again.out)
	}
	call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x", "--instance", "shop-7").
		expect(t, exitNothing, `"token_file": "/run/x"`, `"instance": "shop-7"`)
	call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x", "--transparent-inbound", "127.0.0.1:15006,[::1]:15006",
		"--transparent-outbound", "127.0.0.1:15001", "--tls-cert", "/run/tls.crt", "--tls-key", "/run/tls.key", "--upstream-tls", "*", "--upstream-ca", "/run/ca.crt").
		expect(t, exitNothing, `"listen": "[::1]:15006"`, `"transparent": true`, `"cert": "/run/tls.crt"`, `"ca": "/run/ca.crt"`)
	call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x", "--transparent-inbound", "15006", "--tls-cert", "/run/tls.crt").
		expect(t, exitUsage, "sequencefi: bad flags:", "--transparent-inbound: must be an address", "--tls-key: is missing")
	call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x", "--transparent-inbound", "0.0.0.0:15006,[::]:15006").
		expect(t, exitUsage, "--transparent-inbound: must not be [::]:15006, for 0.0.0.0:15006 is listened on already")
	t.Run("a relative path from nowhere", func(t *testing.T) {
		gone := t.TempDir()
		t.Chdir(gone)
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"--tls-cert", "--tls-key", "--tls-client-ca", "--upstream-ca", "--upstream-cert", "--upstream-key"} {
			call(t, "tfiproxy", "config", "shop", "--topology", path, "--token-file", "/run/x", flag, "x.pem").expect(t, exitUsage, flag+": getwd")
		}
	})
	call(t, "__complete", "tfiproxy", "config", "--topology", path, "").expect(t, exitNothing, "shop\n")
	call(t, "tfiproxy").expect(t, exitNothing, "config")

	call(t, "envoy", "bootstrap", "shop", "--topology", path).expect(t, exitUsage, "services[0].sidecar: envoy", "sequencefi tfiproxy config")
	write(t, path, "services: [{name: shop, app: \"127.0.0.1:1\", inbound: \"127.0.0.1:2\"}]\n")
	call(t, "tfiproxy", "config", "shop", "--topology", path).expect(t, exitUsage, "services[0].sidecar: must be tfiproxy")
	call(t, "tfiproxy", "config", "pay", "--topology", path).expect(t, exitUsage, "only shop")
	call(t, "tfiproxy", "config").expect(t, exitUsage, "want one service")
}
