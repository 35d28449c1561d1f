// Package mesh_test has a mesh of both kinds of sidecars: a caller and a callee
// behind Envoys, and between them a service behind TFIProxy.
package mesh_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// protocol is what all calls of a run speak.
type protocol struct {
	name        string
	contentType string
	http2       bool
	grpc        bool
}

var protocols = []protocol{
	{"HTTP/1.1", "text/plain", false, false},
	{"HTTP/2", "text/plain", true, false},
	{"gRPC", "application/grpc", true, true},
}

// api is the name of b's or c's method in a policy; its path is the same for all.
func (p protocol) api(service, method string) string {
	if p.grpc {
		return "mesh." + service + "/" + method
	}
	return "POST /mesh." + service + "/" + method
}

func (p protocol) transport() *http.Transport {
	var only http.Protocols
	only.SetHTTP1(!p.http2)
	only.SetUnencryptedHTTP2(p.http2)
	return &http.Transport{Protocols: &only, DisableCompression: true}
}

// fault is what a client sees as its status: 418, or 10 over gRPC.
func (p protocol) fault() *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 418, GrpcStatus: 10, GrpcMessage: "made"}}}
}

func (p protocol) faulted() string {
	if p.grpc {
		return "10"
	}
	return "418"
}

func (p protocol) fine() string {
	if p.grpc {
		return "0"
	}
	return "200"
}

// seen is a guard: the op has been seen once, as far as the injecting sidecar knows.
func seen(observer string, role tfiv1.Role, peer, api string, phase tfiv1.Phase) *tfiv1.Guard {
	return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{
		Count: 1, Event: &tfiv1.EventPredicate{Op: &tfiv1.Op{Observer: observer, Role: role, Peer: peer, Api: api, Phase: phase}},
	}}}}}
}

// activation has a fault that only evidence on its way to the last sidecar lets
// fire, one for the way back, and for each one that must not fire since nothing has happened.
func (p protocol) activation(key tfi.Key) *tfiv1.Activation {
	const (
		req, resp      = tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP
		client, server = tfiv1.Role_ROLE_CLIENT, tfiv1.Role_ROLE_SERVER
	)
	atLast := func(method string) *tfiv1.StaticConfiguration {
		return &tfiv1.StaticConfiguration{Caller: "b", Callee: "c", Api: p.api("c", method), Phase: req, Placement: tfiv1.Placement_PLACEMENT_CALLEE}
	}
	atFirst := func(method string) *tfiv1.StaticConfiguration {
		return &tfiv1.StaticConfiguration{Caller: "a", Callee: "b", Api: p.api("b", method), Phase: resp}
	}
	a := &tfiv1.Activation{
		Key: key[:], Remaining: durationpb.New(10 * time.Minute), Services: []string{"a", "b", "c"},
		Tfics: []*tfiv1.Tfic{
			{Id: "forth", Target: atLast("Forth"), Guard: seen("a", client, "b", p.api("b", "Forth"), req)},
			{Id: "not-forth", Target: atLast("NotForth"), Guard: seen("a", client, "b", p.api("b", "Never"), req)},
			{Id: "back", Target: atFirst("Back"), Guard: seen("c", server, "b", p.api("c", "Back"), resp)},
			{Id: "not-back", Target: atFirst("NotBack"), Guard: seen("c", server, "b", p.api("c", "Never"), resp)},
		},
	}
	for _, t := range a.Tfics {
		t.Fault, t.AnswerKind = p.fault(), tfiv1.AnswerKind_ANSWER_KIND_UNARY
	}
	return a
}

// policy of a service whose calls go to one peer; empty: to none.
func policy(t *testing.T, service, peer string, activations []*tfiv1.Activation) []byte {
	t.Helper()
	p := &tfiv1.Policy{Service: service, Version: "v1", Activations: activations}
	if peer != "" {
		p.Peers = []*tfiv1.Peer{{Service: peer, Clusters: []string{peer}}}
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// application answers in both protocols; next is where its own calls go, empty:
// it makes none. It passes traceparent on, as applications do, and nothing else.
type application struct {
	t    *testing.T
	next string

	mu   sync.Mutex
	seen map[string]string // what was seen of the sidecars, by path
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.seen[r.URL.Path] = marks(r.Header)
	a.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // what is missing is seen
	p := protocols[0]
	for _, x := range protocols {
		if x.contentType == r.Header.Get("Content-Type") && x.http2 == (r.ProtoMajor == 2) {
			p = x
		}
	}
	answer := string(body)
	if a.next != "" {
		tr := p.transport()
		defer tr.CloseIdleConnections()
		where := strings.Replace(r.URL.Path, "/mesh.b/", "/mesh.c/", 1)
		status, text, fic := ask(a.t, tr, p, a.next, where, r.Header.Get("Traceparent"), answer)
		answer = status + " " + text
		if fic != "" && fic != "forth" {
			a.t.Errorf("%s: the application saw %q", where, fic)
		}
	}
	w.Header().Set("Content-Type", p.contentType)
	if p.grpc {
		w.Header().Set("Trailer", "Grpc-Status")
	}
	_, _ = io.WriteString(w, answer)
	if p.grpc {
		w.Header().Set("Grpc-Status", "0")
	}
}

// marks are the headers by which sidecars talk, but for the one that names a fault.
func marks(h http.Header) (found string) {
	for k, v := range h {
		if strings.HasPrefix(strings.ToLower(k), "x-fic-") && !strings.EqualFold(k, tfi.InjectedHeader) {
			found += k + ": " + strings.Join(v, ",") + "; "
		}
	}
	return found
}

// ask makes a call; fic is the fault that made its answer.
func ask(t *testing.T, tr *http.Transport, p protocol, addr, path, traceparent, body string) (status, text, fic string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return "", "", ""
	}
	r.Header.Set("Content-Type", p.contentType)
	r.Header.Set("Te", "trailers")
	r.Header.Set("Traceparent", traceparent)
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return err.Error(), "", ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), "", ""
	}
	if leaked := marks(resp.Header) + marks(resp.Trailer); leaked != "" {
		t.Errorf("%s: the caller saw %s", path, leaked)
	}
	status, fic = strconv.Itoa(resp.StatusCode), resp.Header.Get(tfi.InjectedHeader)+resp.Trailer.Get(tfi.InjectedHeader)
	if p.grpc {
		status = resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	}
	return status, string(b), fic
}

func serve(t *testing.T, a *application) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: a, Protocols: &both}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.Serve(l) }()
	return l.Addr().String()
}

// TestMixedMesh runs one trial a protocol through Envoy, TFIProxy and Envoy again.
// The fault at the last sidecar fires since the first one's evidence has come to it, and that
// at the first one since the last one's has come back; no application sees any of it.
func TestMixedMesh(t *testing.T) {
	binary := envoytest.Binary(t, envoy.Version)
	module := filepath.Join(t.TempDir(), "sequencefi.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags", "-s -w", "-o", module, "github.com/sequencefi/sequencefi/plugin/wasm/cmd/plugin")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var keys []tfi.Key
	var activations []*tfiv1.Activation
	for i, p := range protocols {
		key := tfi.Key{byte(i + 1), 2, 3, 4, 5, 6, 7}
		keys = append(keys, key)
		activations = append(activations, p.activation(key))
	}

	last := &application{t: t, seen: map[string]string{}}
	middle := &application{t: t, seen: map[string]string{}}
	front, behind, admin := envoytest.FreeAddr(t), envoytest.FreeAddr(t), envoytest.FreeAddr(t)
	proxy, err := tfiproxy.New(&tfiproxy.Config{Service: "b", Listeners: []tfiproxy.Listener{
		{Role: tfi.RoleServer, Listen: "127.0.0.1:0", Upstream: serve(t, middle)},
		{Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: behind, Cluster: "c"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	middle.next = proxy.Addr(1).String() // nobody has asked yet
	if err := proxy.Apply(policy(t, "b", "c", activations)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	envoytest.Start(t, envoy.Options{
		Path: binary, Admin: admin,
		Bootstrap: bootstrap(t, admin, module, []sidecar{
			{"a", front, "OUTBOUND", "b", proxy.Addr(0).String(), policy(t, "a", "b", activations)},
			{"c", behind, "INBOUND", "app", serve(t, last), policy(t, "c", "", activations)},
		}),
	})

	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			tr := p.transport()
			defer tr.CloseIdleConnections()
			for n, c := range []struct{ method, status, text, fic string }{
				{"Never/Plain", p.fine(), p.fine() + " hello", ""},
				{"NotForth", p.fine(), p.fine() + " hello", ""},
				{"NotBack", p.fine(), p.fine() + " hello", ""},
				{"Forth", p.fine(), p.faulted() + " ", ""},
				{"Back", p.faulted(), "", "back"},
				{"Forth", p.fine(), p.fine() + " hello", ""}, // each fires once
				{"Back", p.fine(), p.fine() + " hello", ""},
			} {
				trace := "00-" + tfi.NewTraceID(keys[i], uint64(n)).String() + "-00f067aa0ba902b7-01"
				status, text, fic := ask(t, tr, p, front, "/mesh.b/"+c.method, trace, "hello")
				if status != c.status || c.fic == "" && text != c.text || fic != c.fic {
					t.Errorf("call %d, %s: %s %q by %q, want %s %q by %q", n, c.method, status, text, fic, c.status, c.text, c.fic)
				}
			}
		})
	}
	for _, a := range []*application{middle, last} {
		if len(a.seen) < 4 {
			t.Errorf("an application saw %d paths", len(a.seen))
		}
		for path, found := range a.seen {
			if found != "" {
				t.Errorf("%s: the callee saw %s", path, found)
			}
		}
	}
}

// sidecar is one of the Envoy's listeners, with a filter and a VM of its own.
type sidecar struct {
	service, listen, direction, cluster, upstream string
	policy                                        []byte
}

type object = map[string]any

// bootstrap has the filter without a gate: it is there before the first request.
func bootstrap(t *testing.T, admin, module string, sidecars []sidecar) []byte {
	t.Helper()
	const types = "type.googleapis.com/envoy."
	address := func(addr string) object {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		return object{"socket_address": object{"address": host, "port_value": n}}
	}
	var listeners, clusters []any
	for _, s := range sidecars {
		clusters = append(clusters, object{
			"name": s.cluster, "type": "STATIC", "connect_timeout": "1s",
			"load_assignment": object{"cluster_name": s.cluster, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address(s.upstream)}}}}}},
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                          types + "extensions.upstreams.http.v3.HttpProtocolOptions",
				"use_downstream_protocol_config": object{"http_protocol_options": object{}, "http2_protocol_options": object{}},
			}},
		})
		listeners = append(listeners, object{
			"name": s.service, "traffic_direction": s.direction, "address": address(s.listen),
			"filter_chains": []any{object{"filters": []any{object{"name": "http", "typed_config": object{
				"@type":       types + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": s.service, "codec_type": "AUTO", "generate_request_id": false,
				"route_config": object{"virtual_hosts": []any{object{"name": "all", "domains": []any{"*"}, "routes": []any{
					object{"match": object{"prefix": "/"}, "route": object{"cluster": s.cluster, "timeout": "0s"}},
				}}}},
				"http_filters": []any{
					object{"name": "sequencefi", "typed_config": object{"@type": types + "extensions.filters.http.wasm.v3.Wasm", "config": object{
						"name": "sequencefi", "root_id": "sequencefi", "failure_policy": "FAIL_RELOAD", "allow_on_headers_stop_iteration": true,
						"vm_config": object{
							"vm_id": "sequencefi-" + s.service, "runtime": "envoy.wasm.runtime.v8",
							"code": object{"local": object{"filename": module}},
						},
						"configuration": object{"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": s.policy},
					}}},
					object{"name": "router", "typed_config": object{"@type": types + "extensions.filters.http.router.v3.Router"}},
				},
			}}}}},
		})
	}
	b, err := json.MarshalIndent(object{
		"node":             object{"id": "test", "cluster": "mesh"},
		"admin":            object{"address": address(admin)},
		"static_resources": object{"listeners": listeners, "clusters": clusters},
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}
