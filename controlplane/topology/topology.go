// Package topology reads the file that says which services there are, where
// their applications and sidecars listen, and whom they call.
package topology

// Topology is a topology file (YAML).
type Topology struct {
	// Services with a sidecar.
	Services []Service `json:"services"`
	// Leaves are services without a sidecar.
	Leaves []string `json:"leaves,omitempty"`
	// Templates are path templates that fold ids, as `/customers/{id}`.
	Templates []string `json:"templates,omitempty"`
	// TraceHeader is a further header that carries the trace id in hex.
	TraceHeader string `json:"traceHeader,omitempty"`
	// ExemptPaths are path prefixes that are never touched (health checks).
	ExemptPaths []string `json:"exemptPaths,omitempty"`
	// XDS is the control plane's gRPC address, as sidecars reach it.
	XDS string `json:"xds,omitempty"`
	// OTLP is the OTLP/HTTP address to which sidecars report.
	OTLP string `json:"otlp,omitempty"`
	// Module is the HTTP address from which sidecars fetch the plugin; empty: a local file.
	Module string `json:"module,omitempty"`
}

// Service is one service and, for standalone Envoy, its addresses (host:port).
type Service struct {
	Name string `json:"name"`
	// App is where the application listens.
	App string `json:"app,omitempty"`
	// Inbound is where the sidecar listens for the application.
	Inbound string `json:"inbound,omitempty"`
	// Protocol the application speaks: "http" (HTTP/1.1), "http2" or "grpc".
	Protocol string `json:"protocol,omitempty"`
	// Admin is the address of Envoy's admin interface.
	Admin string `json:"admin,omitempty"`
	// Calls are the services it calls.
	Calls []Call `json:"calls,omitempty"`
}

// Call is an outbound edge.
type Call struct {
	Service string `json:"service"`
	// Listen is where the caller's sidecar listens for calls to Service.
	Listen string `json:"listen,omitempty"`
	// Cluster is the proxy's cluster name; empty means Service.
	Cluster string `json:"cluster,omitempty"`
	// Address of a leaf (host:port); other services' is their Inbound.
	Address string `json:"address,omitempty"`
}
