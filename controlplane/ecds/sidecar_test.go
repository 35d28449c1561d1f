package ecds_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// built is where the test plugin is, once a test has needed it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// pluginPath builds testdata/plugin once a test binary.
func pluginPath(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "sequencefi-ecds-"); built.err != nil { //nolint:usetesting // outlives the test
			return
		}
		build := exec.CommandContext(context.Background(), "go", "build", "-buildmode=c-shared", "-ldflags", "-s -w",
			"-o", filepath.Join(built.dir, "plugin.wasm"), "./testdata/plugin")
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "plugin.wasm")
}

func removePlugin() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // temporary anyway
	}
}

// plane is a Server on a port.
type plane struct {
	*ecds.Server
	address string
	stop    func()
}

// startPlane serves a plane at address, or at a free port where it is empty;
// fill runs before it serves.
func startPlane(t *testing.T, address string, c ecds.Config, fill func(*ecds.Server)) *plane {
	t.Helper()
	s, err := ecds.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if fill != nil {
		fill(s)
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(ecds.ServerOptions()...)
	s.Register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l) // ends with Stop
	}()
	p := &plane{Server: s, address: l.Addr().String()}
	p.stop = sync.OnceFunc(func() {
		s.Close()
		g.Stop()
		<-served
	})
	t.Cleanup(p.stop)
	return p
}

// sidecar is a real Envoy whose application answers 200 "app".
type sidecar struct {
	*envoy.Process
	url string
}

// sidecarOptions say how an Envoy asks for its policy.
type sidecarOptions struct {
	name       string // service; instance is name-1
	xds        string // host:port of the plane
	module     string // host:port of the module server
	apiType    string // "DELTA_GRPC" or "GRPC"
	aggregated bool
	metadata   map[string]any
	dflt       *anypb.Any // default_config; nil: inert
	path       string     // Envoy binary; empty: the default one
	types      []string   // what the listener allows; nil: gate.TypeURLs
}

func startSidecar(t *testing.T, o sidecarOptions) *sidecar {
	t.Helper()
	admin, listen := envoytest.FreeAddr(t), envoytest.FreeAddr(t)
	config := bootstrap(t, o, admin, listen)
	return &sidecar{
		Process: envoytest.Start(t, envoy.Options{
			Path: o.path, Bootstrap: config, Admin: admin, Concurrency: 1, Name: o.name,
		}),
		url: "http://" + listen,
	}
}

func bootstrap(t *testing.T, o sidecarOptions, admin, listen string) []byte {
	t.Helper()
	if o.apiType == "" {
		o.apiType = "DELTA_GRPC"
	}
	if o.dflt == nil {
		o.dflt = gate.Inert()
	}
	if o.types == nil {
		o.types = gate.TypeURLs()
	}
	dflt, err := protojson.Marshal(o.dflt)
	if err != nil {
		t.Fatal(err)
	}
	api := map[string]any{
		"api_type": o.apiType, "transport_api_version": "V3",
		"grpc_services": []any{map[string]any{"envoy_grpc": map[string]any{
			"cluster_name": "sequencefi_xds",
			"retry_policy": map[string]any{"retry_back_off": map[string]any{"base_interval": "0.1s", "max_interval": "0.5s"}},
		}}},
	}
	source := map[string]any{"resource_api_version": "V3", "initial_fetch_timeout": "0.001s", "api_config_source": api}
	dynamic := map[string]any{}
	if o.aggregated {
		delete(source, "api_config_source")
		source["ads"] = map[string]any{}
		dynamic["ads_config"] = api
	}
	clusters := []any{cluster("sequencefi_xds", o.xds, true)}
	if o.module != "" {
		clusters = append(clusters, cluster(gate.DefaultModuleCluster, o.module, false))
	}
	manager := map[string]any{
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
		"route_config": map[string]any{"virtual_hosts": []any{map[string]any{"name": "app", "domains": []any{"*"}, "routes": []any{
			map[string]any{"match": map[string]any{"prefix": "/"}, "direct_response": map[string]any{"status": 200, "body": map[string]any{"inline_string": "app"}}},
		}}}},
		"http_filters": []any{
			map[string]any{"name": gate.Name, "config_discovery": map[string]any{
				"config_source": source, "default_config": json.RawMessage(dflt), "type_urls": o.types,
			}},
			map[string]any{"name": "router", "typed_config": map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
		},
	}
	config, err := json.Marshal(map[string]any{
		"node":              map[string]any{"id": o.name + "-1", "cluster": o.name, "metadata": o.metadata},
		"admin":             map[string]any{"address": socket(admin)},
		"dynamic_resources": dynamic,
		"static_resources": map[string]any{
			"clusters": clusters,
			"listeners": []any{map[string]any{"name": "in", "address": socket(listen), "filter_chains": []any{
				map[string]any{"filters": []any{map[string]any{"name": "hcm", "typed_config": manager}}},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func socket(address string) map[string]any {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return map[string]any{"socket_address": map[string]any{"address": host, "port_value": n}}
}

func cluster(name, address string, h2 bool) map[string]any {
	c := map[string]any{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": map[string]any{"cluster_name": name, "endpoints": []any{map[string]any{"lb_endpoints": []any{
			map[string]any{"endpoint": map[string]any{"address": socket(address)}},
		}}}},
	}
	if h2 {
		c["typed_extension_protocol_options"] = map[string]any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": map[string]any{"http2_protocol_options": map[string]any{}},
		}}
	}
	return c
}

const (
	trialParent = "00-5f1c2f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	otherParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// answer is what a request through a sidecar got.
type answer struct {
	status int
	body   string
	header http.Header
	// policy is what the test plugin was told; nil where it did not see the request.
	policy *tfiv1.Policy
}

func (s *sidecar) get(t *testing.T, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("request: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, body: string(body), header: resp.Header}
	if a.status == 299 {
		wire, err := hex.DecodeString(a.body)
		if err != nil {
			t.Fatalf("plugin's answer %q: %v", body, err)
		}
		a.policy = &tfiv1.Policy{}
		if err := proto.Unmarshal(wire, a.policy); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// trial sends a request of a trial and returns the policy version in force;
// empty: the plugin did not see it.
func (s *sidecar) trial(t *testing.T) string {
	t.Helper()
	return s.get(t, "/", "traceparent", trialParent).policy.GetVersion()
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}

// eventually waits until the condition holds.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

func (s *sidecar) vms(t *testing.T) int64 {
	t.Helper()
	n, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var nextKey atomic.Uint32

// policyOf is a policy with one activation that lives for a while.
func policyOf(service string, remaining time.Duration) *tfiv1.Policy {
	key := binary.LittleEndian.AppendUint32(nil, nextKey.Add(1))
	key = append(key, 1, 2, 3)
	return &tfiv1.Policy{Service: service, Activations: []*tfiv1.Activation{{
		Key: key, Remaining: durationpb.New(remaining), Services: []string{service},
	}}}
}

func apply(t *testing.T, s *ecds.Server, policies ...*tfiv1.Policy) string {
	t.Helper()
	set := map[string]*tfiv1.Policy{}
	for _, p := range policies {
		set[p.GetService()] = p
	}
	version, err := s.Apply(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// wait waits for an acknowledgement, as long as a compile may take on a busy machine.
func wait(t *testing.T, s *ecds.Server, version string, services ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Wait(ctx, version, services); err != nil {
		t.Fatal(err)
	}
}
