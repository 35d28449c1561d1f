// Package topology reads the file that says which services there are, where
// their applications and sidecars listen, and whom they call.
//
// It holds names and addresses only; what a sidecar is told to do is in a
// policy, and how a standalone Envoy is set up is package bootstrap's.
package topology

// Where the control plane is reached if a file does not say.
const (
	// DefaultXDS is the gRPC address of the xDS server.
	DefaultXDS = "127.0.0.1:18000"
	// DefaultOTLP is the OTLP/HTTP address that sidecars report to.
	DefaultOTLP = "127.0.0.1:18001"
	// DefaultPolicy is the HTTP address at which TFIProxies poll their policies.
	DefaultPolicy = "127.0.0.1:18002"
	// DefaultPolicyToken is the file beside the topology's that has the token which they
	// show there.
	DefaultPolicyToken = "policy-token"
)

// What an application may speak ([Service.Protocol]).
const (
	// ProtocolHTTP is HTTP/1.1, and the default.
	ProtocolHTTP = "http"
	// ProtocolHTTP2 is HTTP/2 with prior knowledge, without TLS.
	ProtocolHTTP2 = "http2"
	// ProtocolGRPC is gRPC, without TLS.
	ProtocolGRPC = "grpc"
)

// What a sidecar may be ([Service.Sidecar]).
const (
	// SidecarEnvoy is an Envoy with the plugin, and the default.
	SidecarEnvoy = "envoy"
	// SidecarTFIProxy is the native sidecar.
	SidecarTFIProxy = "tfiproxy"
)

// How requests may carry trace context ([Topology.Propagation]).
const (
	// FormatW3C is traceparent, with tracestate beside it.
	FormatW3C = "w3c"
	// FormatB3 is B3 in the one header b3.
	FormatB3 = "b3"
	// FormatB3Multi is B3 in x-b3-traceid, x-b3-spanid and x-b3-sampled.
	FormatB3Multi = "b3multi"
	// FormatJaeger is uber-trace-id.
	FormatJaeger = "jaeger"
)

// Formats returns all of them. The caller owns the slice.
func Formats() []string { return []string{FormatW3C, FormatB3, FormatB3Multi, FormatJaeger} }

// Topology is a topology file (YAML).
type Topology struct {
	// Services with a sidecar.
	Services []Service `json:"services"`
	// Leaves are services without a sidecar.
	Leaves []string `json:"leaves,omitempty"`
	// Templates are path templates that fold ids, as `/customers/{id}`.
	Templates []string `json:"templates,omitempty"`
	// Propagation are the formats in which a trial's requests carry their trace context,
	// as [Formats] has them; empty: all. Envoys look for these only, which spares each
	// request of no trial a look-up a header.
	Propagation []string `json:"propagation,omitempty"`
	// TraceHeader is a further header that carries the trace id in hex; its name is in lower
	// case. A trial's requests carry it too.
	TraceHeader string `json:"traceHeader,omitempty"`
	// ExemptPaths are path prefixes whose requests belong to no trial (health checks).
	ExemptPaths []string `json:"exemptPaths,omitempty"`
	// XDS is the control plane's gRPC address, as sidecars reach it; empty:
	// [DefaultXDS].
	XDS string `json:"xds,omitempty"`
	// OTLP is the OTLP/HTTP address to which sidecars report; empty: [DefaultOTLP].
	OTLP string `json:"otlp,omitempty"`
	// Module is the HTTP address from which Envoys fetch the plugin; empty: a local file.
	Module string `json:"module,omitempty"`
	// Policy is the HTTP address at which TFIProxies poll their policies, as they reach
	// it; it may be Module's. Empty: [DefaultPolicy] if there are any.
	Policy string `json:"policy,omitempty"`
	// PolicyToken is the file, on the control plane's machine, with the token that
	// TFIProxies show there; one that is relative is so to the topology file's folder.
	// Empty: [DefaultPolicyToken] if there are any. The file has the secret, this has not.
	PolicyToken string `json:"policyToken,omitempty"`
}

// Service is one service and, for a sidecar of one's own, its addresses (host:port).
// A mesh that brings its own listeners needs none of them.
type Service struct {
	// Name is 1 to 63 characters of [A-Za-z0-9._-], unique in the file.
	Name string `json:"name"`
	// App is where the application listens.
	App string `json:"app,omitempty"`
	// Inbound is where the sidecar listens for the application.
	Inbound string `json:"inbound,omitempty"`
	// Protocol the application speaks: "http" (HTTP/1.1), "http2" or "grpc";
	// empty: "http".
	Protocol string `json:"protocol,omitempty"`
	// Sidecar is what stands beside it: "envoy" or "tfiproxy"; empty: "envoy".
	Sidecar string `json:"sidecar,omitempty"`
	// Admin is the address of the sidecar's admin interface.
	Admin string `json:"admin,omitempty"`
	// Calls are the services it calls.
	Calls []Call `json:"calls,omitempty"`
}

// Call is an outbound edge.
type Call struct {
	// Service is the callee: a service or a leaf of the same file.
	Service string `json:"service"`
	// Listen is where the caller's sidecar listens for calls to Service.
	Listen string `json:"listen,omitempty"`
	// Cluster is the proxy's cluster name; empty: Service.
	Cluster string `json:"cluster,omitempty"`
	// Address of a leaf (host:port); other services' is their Inbound.
	Address string `json:"address,omitempty"`
	// Protocol a leaf speaks, as [Service.Protocol]; other services say it themselves.
	Protocol string `json:"protocol,omitempty"`
}
