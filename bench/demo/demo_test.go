package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/traces"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/deploy/process"
	"github.com/sequencefi/sequencefi/deploy/process/processtest"
	"github.com/sequencefi/sequencefi/plugin/wasm"
)

// hotrodBinary returns HotROD's path.
func hotrodBinary(t testing.TB) string {
	t.Helper()
	return processtest.Binary(t, func() (string, error) { return process.Tool("hotrod", "HOTROD_BINARY") })
}

func startEnv(t *testing.T, o Options) *Env {
	t.Helper()
	o.HotROD, o.Dir = hotrodBinary(t), t.TempDir()
	if len(o.Native) > 0 {
		o.TFIProxy = nativeSidecar(t)
	}
	if o.Envoy == "" && len(o.Native) < len(everyService) {
		o.Envoy = envoytest.Binary(t, envoy.Version)
	}
	o.Step = func(line string) { t.Log(line) }
	env, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		still := env.Running()
		env.Close()
		if t.Failed() {
			t.Logf("running until the end: %v%s", still, logTails(env))
		}
	})
	return env
}

// logTails returns the end of every log of the environment.
func logTails(env *Env) string {
	files, _ := filepath.Glob(filepath.Join(env.logs(), "*.log"))
	var b strings.Builder
	for _, file := range files {
		if log, err := os.ReadFile(file); err == nil && len(log) > 0 {
			fmt.Fprintf(&b, "\n--- %s\n%s", filepath.Base(file), log[max(0, len(log)-1500):])
		}
	}
	return b.String()
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func get(t *testing.T, url string, header http.Header) answer {
	t.Helper()
	got, err := fetch(t.Context(), url, header)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func fetch(ctx context.Context, url string, header http.Header) (answer, error) {
	return fetchBy(ctx, http.DefaultClient, url, header)
}

// fetchBy uses a connection for one request only: an entrance lets nobody else in before it
// ends, and Go's client repeats by itself what breaks one that it kept.
func fetchBy(ctx context.Context, client *http.Client, url string, header http.Header) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	req.Close = true
	maps.Copy(req.Header, header)
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// TestEnvironment sends an ordinary request with a trace context through all the
// sidecars: it is answered, the context reaches every service, and nothing of
// SequenceFI shows.
func TestEnvironment(t *testing.T) {
	store := traces.NewStore(traces.StoreOptions{})
	r, err := traces.Listen(t.Context(), traces.ReceiverOptions{HTTP: "127.0.0.1:0", Sink: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	env := startEnv(t, Options{AppOTLP: r.HTTPAddr()})

	var id traces.TraceID
	if _, err := rand.Read(id[:]); err != nil {
		t.Fatal(err)
	}
	got := get(t, env.URL, http.Header{"Traceparent": {"00-" + hex.EncodeToString(id[:]) + "-00f067aa0ba902b7-01"}})
	var trip struct{ Driver string }
	if err := json.Unmarshal(got.body, &trip); err != nil || got.status != http.StatusOK || trip.Driver == "" {
		t.Fatalf("%d: %s %v", got.status, got.body, err)
	}
	for name := range got.header {
		if strings.HasPrefix(name, "X-") || name == "Server" {
			t.Errorf("the sidecars added %s: %v", name, got.header[name])
		}
	}
	want := []string{customer, driver, frontend, route}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for seen := 0; ; {
		if err := store.Wait(ctx, []traces.TraceID{id}, seen); err != nil {
			t.Fatalf("the trace context was lost: spans of %v only: %v", services(t, store, id), err)
		}
		td, err := store.Spans(ctx, []traces.TraceID{id})
		if err != nil {
			t.Fatal(err)
		}
		seen = traces.Count(td)
		if got := services(t, store, id); cmp.Equal(want, got) {
			break
		}
	}

	vms, err := env.WasmVMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{customer: 0, driver: 0, frontend: 0, route: 0}, vms); diff != "" {
		t.Errorf("wasm VMs: -want +got:\n%s", diff)
	}

	top, err := topology.Load(env.TopologyFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(env.Topology.Names(), top.Names()); diff != "" {
		t.Errorf("topology file: -want +got:\n%s", diff)
	}
	campaign, err := os.ReadFile(env.CampaignFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, hint := range []string{"hotrod", "null", "route", "driver"} {
		if strings.Contains(strings.ToLower(string(campaign)), hint) {
			t.Errorf("the campaign file hints at %q:\n%s", hint, campaign)
		}
	}

	if got := env.Running(); len(got) != 8 {
		t.Errorf("running: %v", got)
	}
	env.Close()
	if got := env.Running(); len(got) != 0 {
		t.Errorf("left running: %v", got)
	}
}

// services names those of HotROD's services that have spans in the trace.
func services(t *testing.T, store *traces.Store, id traces.TraceID) []string {
	t.Helper()
	td, err := store.Spans(t.Context(), []traces.TraceID{id})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rs := range td.GetResourceSpans() {
		i := slices.IndexFunc(rs.GetResource().GetAttributes(), func(kv *commonv1.KeyValue) bool { return kv.GetKey() == "service.name" })
		if i < 0 {
			continue
		}
		name := rs.GetResource().GetAttributes()[i].GetValue().GetStringValue()
		if _, ok := serviceSet[name]; ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// serviceSet leaves out the databases that HotROD's services pretend to be.
var serviceSet = map[string]struct{}{customer: {}, driver: {}, frontend: {}, route: {}}

// TestStatsTags: the bootstraps tag the statistics that the plugin has.
func TestStatsTags(t *testing.T) {
	top, err := hotrodTopology(t.Context(), "", false)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootstrap.Build(top, frontend, bootstrap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []wasm.StatsTag
	for _, tag := range boot.GetStatsConfig().GetStatsTags() {
		got = append(got, wasm.StatsTag{Name: tag.GetTagName(), Regex: tag.GetRegex()})
	}
	if diff := cmp.Diff(wasm.StatsTags(), got); diff != "" {
		t.Errorf("-plugin +bootstrap:\n%s", diff)
	}
}

// TestStartFails shows that nothing is left behind, and that the reason is said.
func TestStartFails(t *testing.T) {
	bad := t.TempDir() + "/hotrod"
	if err := os.WriteFile(bad, []byte("#!/bin/sh\necho no database >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), HotROD: bad, Envoy: envoytest.Binary(t, envoy.Version)})
	if err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("got %v", err)
	}
}
