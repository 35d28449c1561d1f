// Package gate builds the HTTP filter that a sidecar gets: the plugin behind a
// native matcher, so that only requests of trials ever enter wasm.
//
// The gate is one ECDS resource, Envoy's composite filter with a matcher that
// looks for the magic in the trace headers, and whose action runs the wasm
// filter. [Extension] builds it, [Inert] is what a listener holds while no
// campaign runs, and [Default] is what a listener must hold from the start where
// Envoy cannot take the gate later.
//
// The package is pure: values in, protobuf out. It knows nothing of streams,
// versions or campaigns.
package gate

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Name is the ECDS resource, and the name of the filter in every listener. It is
// also the plugin's vm_id and root_id: inbound and outbound listeners of one
// sidecar share one plugin and, by vm_id, its shared data.
const Name = "sequencefi"

// DefaultModuleCluster is the cluster from which a remote module is fetched
// unless [Module] names another.
const DefaultModuleCluster = "sequencefi_module"

// GCOff is the VM configuration for an Envoy that cannot live with the Go
// runtime's collector (golang/go#78513).
const GCOff = "gc=off"

// DefaultVersion is the version of the policy without activations that [Default]
// carries.
const DefaultVersion = "default"

// fetchTimeout bounds one fetch of a remote module of a few megabytes.
const fetchTimeout = 10 * time.Second

// Module says where Envoy gets the plugin from: Filename, or URI with SHA256.
type Module struct {
	// Filename on the sidecar's own disk.
	Filename string
	// URI of the module, as http://host:port/path.
	URI string
	// Cluster of the sidecar's Envoy that reaches the URI's host; empty means
	// [DefaultModuleCluster].
	Cluster string
	// SHA256 of the module, 64 hex digits; Envoy refuses any other content.
	SHA256 string
}

// ErrModule says that a [Module] is incomplete or contradicts itself.
var ErrModule = errors.New("invalid plugin module")

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate reports all that is wrong with m, wrapping [ErrModule].
func (m Module) Validate() error {
	var errs []error
	bad := func(path, want string) { errs = append(errs, fmt.Errorf("%w: %s: %s", ErrModule, path, want)) }
	switch {
	case m.Filename == "" && m.URI == "":
		bad("filename", "a file name, or a uri with its sha256, is needed")
	case m.Filename != "" && m.URI != "":
		bad("uri", "must be empty where a file name is given")
	}
	if m.URI != "" && !sha256Hex.MatchString(m.SHA256) {
		bad("sha256", "must be 64 hex digits in lower case")
	}
	return errors.Join(errs...)
}

// Remote reports whether Envoy fetches the module over HTTP.
func (m Module) Remote() bool { return m.URI != "" }

// Plugin is all of a wasm filter that stays the same between pushes: were it to
// change, Envoy would build new VMs and forget the shared data.
type Plugin struct {
	Module Module
	// VMConfiguration is handed to the VM at its start; empty or [GCOff].
	VMConfiguration string
	// Wrapped puts the matcher into an ExtensionWithMatcher around the composite
	// filter, as Envoy before 1.40 needs it. From 1.40 on the composite filter takes
	// the matcher itself, which spares every request, of a trial or not, a filter.
	Wrapped bool
}

// Extension returns the gate for a policy as the typed_config of an ECDS
// resource. The plugin's configuration is the serialised policy; the matcher
// follows from the policy's trace header and edge rules.
func Extension(p Plugin, policy *tfiv1.Policy) (*anypb.Any, error) {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("policy of %s: %w", policy.GetService(), err)
	}
	return ExtensionOf(p, policy, wire)
}

// ExtensionOf is [Extension] with the bytes that the plugin gets for a policy,
// which may be any: for tests of what it does with those it cannot read.
func ExtensionOf(p Plugin, policy *tfiv1.Policy, wire []byte) (*anypb.Any, error) {
	filter, err := wasmFilter(p, wire)
	if err != nil {
		return nil, err
	}
	action, err := typed("sequencefi", &compositev3.ExecuteFilterAction{
		TypedConfig: &corev3.TypedExtensionConfig{Name: Name, TypedConfig: filter},
	})
	if err != nil {
		return nil, err
	}
	admit, err := admission(policy)
	if err != nil {
		return nil, err
	}
	matcher := &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherList_{MatcherList: &matcherv3.Matcher_MatcherList{
		Matchers: []*matcherv3.Matcher_MatcherList_FieldMatcher{{
			Predicate: admit,
			OnMatch:   &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: xdsTyped(action)}},
		}},
	}}}
	if !p.Wrapped {
		return pack(&compositev3.Composite{Matcher: matcher})
	}
	composite, err := typed("composite", &compositev3.Composite{})
	if err != nil {
		return nil, err
	}
	return pack(&matchingv3.ExtensionWithMatcher{ExtensionConfig: composite, XdsMatcher: matcher})
}

// Default returns the gate around a plugin that has nothing to do, for the
// default_config of a listener in an Envoy whose V8 must start before its
// workers (before 1.39). Its VM configuration must be that of later pushes.
func Default(p Plugin, service string) (*anypb.Any, error) {
	return Extension(p, &tfiv1.Policy{Service: service, Version: DefaultVersion})
}

// Inert returns a native filter that does nothing: a header mutation without
// mutations. It is the default_config of a listener, and what replaces the gate
// where a resource cannot be taken away.
func Inert() *anypb.Any {
	a, err := pack(&mutationv3.HeaderMutation{Mutations: &mutationv3.Mutations{}})
	if err != nil { // an empty message always marshals
		return &anypb.Any{TypeUrl: typeURL(&mutationv3.HeaderMutation{})}
	}
	return a
}

// TypeURLs returns what a listener's config_discovery must allow.
func TypeURLs() []string {
	return []string{typeURL(&mutationv3.HeaderMutation{}), typeURL(&matchingv3.ExtensionWithMatcher{}), typeURL(&compositev3.Composite{})}
}

func wasmFilter(p Plugin, wire []byte) (*anypb.Any, error) {
	configuration, err := pack(wrapperspb.Bytes(wire))
	if err != nil {
		return nil, err
	}
	vm := &wasmv3.VmConfig{
		VmId: Name, Runtime: "envoy.wasm.runtime.v8", Code: code(p.Module),
		// Without it Envoy acknowledges a module that it has yet to fetch, and
		// answers 503 until it has, or for ever.
		NackOnCodeCacheMiss: p.Module.Remote(),
	}
	if p.VMConfiguration != "" {
		if vm.Configuration, err = pack(wrapperspb.String(p.VMConfiguration)); err != nil {
			return nil, err
		}
	}
	return pack(&wasmfilterv3.Wasm{Config: &wasmv3.PluginConfig{
		Name: Name, RootId: Name,
		Vm:            &wasmv3.PluginConfig_VmConfig{VmConfig: vm},
		Configuration: configuration,
		FailurePolicy: wasmv3.FailurePolicy_FAIL_RELOAD,
		// Needed to hold an answer until the callee has finished.
		AllowOnHeadersStopIteration: wrapperspb.Bool(true),
	}})
}

func code(m Module) *corev3.AsyncDataSource {
	if !m.Remote() {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{
			Specifier: &corev3.DataSource_Filename{Filename: m.Filename},
		}}}
	}
	cluster := m.Cluster
	if cluster == "" {
		cluster = DefaultModuleCluster
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{
			Uri:              m.URI,
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
			Timeout:          durationpb.New(fetchTimeout),
		},
		Sha256: m.SHA256,
	}}}
}

func pack(m proto.Message) (*anypb.Any, error) {
	// Deterministic, so that equal values give equal bytes: Envoy compares them.
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return a, nil
}

func typed(name string, m proto.Message) (*corev3.TypedExtensionConfig, error) {
	a, err := pack(m)
	if err != nil {
		return nil, err
	}
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: a}, nil
}

func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}
