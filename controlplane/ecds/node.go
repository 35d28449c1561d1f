package ecds

import (
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// Entries of the xDS node's metadata.
const (
	// MetadataService names the sidecar's service where node.cluster does not.
	MetadataService = "sequencefi.service"
	// MetadataDefaultGate, a true bool, says that the listeners' default_config is
	// [gate.Default], so that the gate may be pushed to an Envoy before 1.39.
	MetadataDefaultGate = "sequencefi.default_gate"
)

// Version of a proxy.
type version struct{ major, minor, patch uint32 }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

func (v version) less(w version) bool {
	if v.major != w.major {
		return v.major < w.major
	}
	return v.minor < w.minor
}

// The matrix of Envoy versions: from ownMatcher on the composite filter takes a
// matcher; from fullGate on the gate may be pushed to a listener that holds no wasm
// yet; from oldest on it may be if the listener's default is the gate already.
// Before oldest nobody has tried.
var (
	ownMatcher = version{major: 1, minor: 40}
	fullGate   = version{major: 1, minor: 39}
	oldest     = version{major: 1, minor: 36}
)

// form is how a resource is built for a proxy.
type form uint8

const (
	formFull        form = iota // the gate
	formWrapped                 // the gate with its matcher around it
	formDefaultGate             // that, over the same gate, without the collector
	formNative                  // the policy alone, for a sidecar that is no Envoy
)

// plugin is what the gate of a form runs.
func (f form) plugin(module gate.Module) gate.Plugin {
	return gate.Plugin{Module: module, VMConfiguration: f.vmConfiguration(), Wrapped: f == formWrapped || f == formDefaultGate}
}

// vmConfiguration is part of what Envoy knows a VM by, so it must be that of the
// listener's default.
func (f form) vmConfiguration() string {
	if f == formDefaultGate {
		return gate.GCOff
	}
	return ""
}

// nothing is what replaces the gate where a resource cannot be taken away.
func (f form) nothing(module gate.Module, service string) (*anypb.Any, error) {
	if f == formDefaultGate {
		return gate.Default(f.plugin(module), service)
	}
	return gate.Inert(), nil
}

// node is what an xDS node says about a sidecar.
type node struct {
	service, instance string
	proxy             string // user agent, "envoy"
	version           string // "1.40.0"; empty: unknown
	form              form
	refused           string // why it gets nothing, and what to do; empty: it does
}

// readNode is the package's readNode for a plane that may have no plugin.
func (c *Config) readNode(n *corev3.Node) node {
	r := readNode(n)
	if c.PollOnly && r.refused == "" {
		r.refused = fmt.Sprintf("sidecar %q of service %q is an Envoy, and this control plane has no plugin for it, since its topology names none", r.instance, r.service)
	}
	return r
}

// readNode decides what a sidecar is and in which form it may get a policy.
func readNode(n *corev3.Node) node {
	meta := n.GetMetadata().GetFields()
	r := node{
		service: meta[MetadataService].GetStringValue(), instance: n.GetId(), proxy: n.GetUserAgentName(),
	}
	if r.service == "" {
		r.service = n.GetCluster()
	}
	v, known := proxyVersion(n)
	if known {
		r.version = v.String()
	}
	switch {
	case r.service == "":
		r.refused = fmt.Sprintf("sidecar %q names no service: set node.cluster, or %q in node.metadata", r.instance, MetadataService)
	case r.proxy != "envoy":
		// Not Envoy's bugs, then.
	case !known:
		r.refused = fmt.Sprintf("sidecar %q of service %q does not say its Envoy version, and some versions crash on the gate: let user_agent_build_version pass", r.instance, r.service)
	case v.less(oldest):
		r.refused = fmt.Sprintf("sidecar %q of service %q runs Envoy %s: use %s or later", r.instance, r.service, v, fullGate)
	case v.less(fullGate):
		r.form = formDefaultGate
		if !meta[MetadataDefaultGate].GetBoolValue() {
			r.refused = fmt.Sprintf("sidecar %q of service %q runs Envoy %s, which crashes when the gate is pushed to a listener without wasm: "+
				"use %s or later, or start it with a bootstrap whose default_config is the gate and whose node.metadata has %q: true (`sequencefi envoy bootstrap --envoy-version %s` writes one)",
				r.instance, r.service, v, fullGate, MetadataDefaultGate, v)
		}
	case v.less(ownMatcher):
		r.form = formWrapped
	}
	return r
}

func proxyVersion(n *corev3.Node) (version, bool) {
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return version{v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch()}, true
	}
	parts := strings.Split(n.GetUserAgentVersion(), ".")
	if len(parts) < 3 {
		return version{}, false
	}
	var num [3]uint32
	for i := range num {
		digits := strings.TrimRightFunc(parts[i], func(r rune) bool { return r < '0' || r > '9' })
		u, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return version{}, false
		}
		num[i] = uint32(u)
	}
	return version{num[0], num[1], num[2]}, true
}
