package ecds

import (
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// fakeSidecar is the other end of a session in virtual time: it follows the xDS
// protocol as Envoy does, TTL included, but for the network.
type fakeSidecar struct {
	t      *testing.T
	server *Server
	x      *session
	end    func()
	node   *corev3.Node

	delta     *deltaCache
	sotw      *sotwCache
	deltaOut  chan cache.DeltaResponse
	sotwOut   chan cache.Response
	cancel    func()
	sub       stream.Subscription
	nonces    int
	lastNonce string

	// What the sidecar holds.
	version string
	policy  *tfiv1.Policy
	expires time.Time

	got []received
	// refuse says why the next whole resources are refused; empty: they are not.
	refuse string
}

// received is one message as the sidecar saw it.
type received struct {
	at      time.Time
	kind    kind
	version string
	ttl     time.Duration
	policy  *tfiv1.Policy // nil where there was no gate in it
	bytes   []byte        // of the resource
}

func testConfig() Config { return Config{Module: gate.Module{Filename: "/plugin.wasm"}} }

func newTestServer(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func envoyNode(service, instance string, minor uint32) *corev3.Node {
	return &corev3.Node{
		Id: instance, Cluster: service, UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor},
		}},
	}
}

// connect opens a stream for the sidecar, which may be one that was connected
// before.
func (f *fakeSidecar) connect(kind Stream) {
	f.t.Helper()
	f.x = newSession(f.server, kind, false)
	end, err := f.server.open(f.x)
	if err != nil {
		f.t.Fatal(err)
	}
	f.end = end
	f.delta, f.sotw, f.lastNonce = nil, nil, ""
	if kind == Delta {
		f.delta = &deltaCache{session: f.x}
		f.deltaOut = make(chan cache.DeltaResponse, 4)
		held := map[string]string{}
		f.lapse()
		if f.version != "" {
			held[gate.Name] = f.version
		}
		f.sub = stream.NewDeltaSubscription([]string{gate.Name}, nil, maps.Clone(held), true)
		f.request(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{gate.Name}, InitialResourceVersions: held}, nil)
		return
	}
	f.sotw = &sotwCache{session: f.x}
	f.sub = stream.NewSotwSubscription([]string{gate.Name}, true)
	f.request(nil, &discoveryv3.DiscoveryRequest{VersionInfo: f.version})
}

func newFake(t *testing.T, s *Server, n *corev3.Node, kind Stream) *fakeSidecar {
	t.Helper()
	f := &fakeSidecar{t: t, server: s, node: n}
	f.connect(kind)
	t.Cleanup(f.disconnect)
	return f
}

func (f *fakeSidecar) disconnect() {
	if f.end != nil {
		f.stopWatch()
		f.end()
		f.end = nil
	}
}

func (f *fakeSidecar) stopWatch() {
	if f.cancel != nil {
		f.cancel()
	}
}

// request sends the one that is not nil.
func (f *fakeSidecar) request(d *discoveryv3.DeltaDiscoveryRequest, s *discoveryv3.DiscoveryRequest) {
	f.t.Helper()
	f.stopWatch()
	var err error
	if d != nil {
		d.Node, d.TypeUrl = f.node, resource.ExtensionConfigType
		f.cancel, err = f.delta.CreateDeltaWatch(d, f.sub, f.deltaOut)
	} else {
		s.Node, s.TypeUrl, s.ResourceNames = f.node, resource.ExtensionConfigType, []string{gate.Name}
		f.sotwOut = make(chan cache.Response, 1)
		f.cancel, err = f.sotw.CreateWatch(s, f.sub, f.sotwOut)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// run answers what comes for a while of virtual time.
func (f *fakeSidecar) run(d time.Duration) {
	f.t.Helper()
	until := time.Now().Add(d)
	for f.receive(time.Until(until)) {
		f.answer()
	}
}

// receive takes one message without answering it.
func (f *fakeSidecar) receive(d time.Duration) bool {
	f.t.Helper()
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case r := <-f.deltaOut:
		resp, err := r.GetDeltaDiscoveryResponse()
		if err != nil {
			f.t.Fatal(err)
		}
		f.nonces++
		f.lastNonce = strconv.Itoa(f.nonces)
		resp.Nonce = f.lastNonce
		f.delta.OnStreamDeltaResponse(0, nil, resp)
		f.sub.SetReturnedResources(r.GetReturnedResources())
		if len(resp.GetRemovedResources()) > 0 {
			f.note(received{kind: removal})
			return true
		}
		f.take(resp.GetResources()[0])
	case r := <-f.sotwOut:
		resp, err := r.GetDiscoveryResponse()
		if err != nil {
			f.t.Fatal(err)
		}
		f.nonces++
		f.lastNonce = strconv.Itoa(f.nonces)
		resp.Nonce = f.lastNonce
		f.sotw.OnStreamResponse(f.t.Context(), 0, nil, resp)
		inner := &discoveryv3.Resource{}
		if err := resp.GetResources()[0].UnmarshalTo(inner); err != nil {
			f.t.Fatal(err)
		}
		inner.Version = resp.GetVersionInfo()
		f.take(inner)
	case <-timer.C:
		return false
	}
	return true
}

func (f *fakeSidecar) take(r *discoveryv3.Resource) {
	m := received{kind: whole, version: r.GetVersion(), ttl: r.GetTtl().AsDuration(), bytes: r.GetResource().GetValue()}
	if r.GetResource() == nil {
		m.kind = heartbeat
	} else {
		m.policy = policyIn(f.t, r.GetResource())
		if m.policy == nil {
			m.kind = removal
		}
	}
	f.note(m)
}

func (f *fakeSidecar) note(m received) {
	m.at = time.Now()
	f.got = append(f.got, m)
}

// lapse drops what has outlived its TTL.
func (f *fakeSidecar) lapse() {
	if !f.expires.IsZero() && !time.Now().Before(f.expires) {
		f.version, f.policy, f.expires = "", nil, time.Time{}
	}
}

// answer acknowledges or refuses the last message, as Envoy would.
func (f *fakeSidecar) answer() {
	f.t.Helper()
	f.lapse()
	m := f.got[len(f.got)-1]
	why := ""
	switch {
	case m.kind == removal:
		f.version, f.policy, f.expires = "", nil, time.Time{}
		if m.version != "" {
			f.version = m.version // the state of the world has no removal
		}
	case m.kind == heartbeat && f.version != m.version:
		why = "heartbeat for a resource that is not there"
	case m.kind == whole && f.refuse != "":
		why = f.refuse
	default:
		f.version = m.version
		if m.policy != nil {
			f.policy = m.policy
		}
		f.expires = time.Time{}
		if m.ttl > 0 {
			f.expires = time.Now().Add(m.ttl)
		}
	}
	var detail *rpcstatus.Status
	if why != "" {
		detail = &rpcstatus.Status{Code: 13, Message: why}
	}
	if f.delta != nil {
		f.request(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: f.lastNonce, ErrorDetail: detail}, nil)
		return
	}
	f.request(nil, &discoveryv3.DiscoveryRequest{VersionInfo: f.version, ResponseNonce: f.lastNonce, ErrorDetail: detail})
}

// only returns the messages of a kind.
func (f *fakeSidecar) only(k kind) (out []received) {
	for _, m := range f.got {
		if m.kind == k {
			out = append(out, m)
		}
	}
	return out
}

// policyIn unpacks the gate; nil where the resource is another filter.
func policyIn(t *testing.T, a *anypb.Any) *tfiv1.Policy {
	t.Helper()
	open := func(a *anypb.Any, m proto.Message) {
		if err := a.UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
	}
	var config corev3.TypedExtensionConfig
	open(a, &config)
	var (
		matcher *matcherv3.Matcher
		action  compositev3.ExecuteFilterAction
		filter  wasmfilterv3.Wasm
		wire    wrapperspb.BytesValue
		policy  tfiv1.Policy
	)
	switch gate := config.GetTypedConfig(); {
	case gate.MessageIs(&compositev3.Composite{}):
		var composite compositev3.Composite
		open(gate, &composite)
		matcher = composite.GetMatcher()
	case gate.MessageIs(&matchingv3.ExtensionWithMatcher{}):
		var wrapped matchingv3.ExtensionWithMatcher
		open(gate, &wrapped)
		matcher = wrapped.GetXdsMatcher()
	default:
		return nil
	}
	open(matcher.GetMatcherList().GetMatchers()[0].GetOnMatch().GetAction().GetTypedConfig(), &action)
	open(action.GetTypedConfig().GetTypedConfig(), &filter)
	open(filter.GetConfig().GetConfiguration(), &wire)
	if err := proto.Unmarshal(wire.GetValue(), &policy); err != nil {
		t.Fatal(err)
	}
	return &policy
}

// onePolicy has an activation for each key.
func onePolicy(service string, remaining time.Duration, keys ...byte) *tfiv1.Policy {
	p := &tfiv1.Policy{Service: service}
	for _, k := range keys {
		p.Activations = append(p.Activations, &tfiv1.Activation{
			Key: []byte{k, 2, 3, 4, 5, 6, 7}, Remaining: durationpb.New(remaining), Services: []string{service},
		})
	}
	return p
}

func mustApply(t *testing.T, s *Server, policies ...*tfiv1.Policy) string {
	t.Helper()
	set := map[string]*tfiv1.Policy{}
	for _, p := range policies {
		set[p.GetService()] = p
	}
	v, err := s.Apply(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// both runs a test in virtual time over both protocols.
func both(t *testing.T, f func(t *testing.T, kind Stream)) {
	t.Helper()
	for _, kind := range []Stream{Delta, StateOfTheWorld} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, kind) })
		})
	}
}
