package tfi

import "time"

// Role says which end of a call a sidecar stands at (proto: sequencefi.tfi.v1.Role).
type Role uint8

// The roles.
const (
	RoleClient Role = 1 // the caller's sidecar
	RoleServer Role = 2 // the callee's sidecar
)

// Headers reads a message's header by its lower-case name. The string need only
// live until the engine's call returns.
type Headers interface {
	Header(name string) (value string, ok bool)
}

// Request is a request whose headers have arrived. Its strings need only live
// until [Engine.Request] returns.
type Request struct {
	Role Role
	// Cluster is the proxy's name of where the request goes; RoleClient only.
	Cluster string
	// Method is the HTTP method.
	Method string
	// Path is the raw path with its query.
	Path string
	// GRPC: the content type starts with "application/grpc".
	GRPC bool
	// Headers of the request.
	Headers Headers
	// Now is the sidecar's monotonic clock.
	Now time.Duration
}

// Response is an answer at the moment of its event: HTTP when its headers have
// arrived, gRPC when its trailers or trailers-only headers have.
type Response struct {
	// Status is the HTTP status, or for a gRPC call the gRPC status.
	Status int
	// Broken: there is no answer, the connection to the callee broke.
	Broken bool
	// Made: the proxy itself made the answer (no upstream, time-out, …).
	Made bool
	// Headers reads the answer's headers, or for gRPC its trailers; nil with Broken.
	Headers Headers
	// Now is the sidecar's monotonic clock.
	Now time.Duration
}

// Action is what to do with a message.
type Action uint8

// The actions.
const (
	ActionForward Action = iota // pass it on
	ActionDelay                 // pass it on after Decision.Delay
	ActionError                 // answer with Decision.Fault.Error
	ActionAbort                 // reset the stream towards the caller
	ActionDrop                  // swallow it; reset after Decision.Delay
)

// Decision is what the engine wants done with a message.
type Decision struct {
	Action Action
	// TFIC that fired; nil with ActionForward.
	TFIC *TFIC
	// Delay before forwarding (ActionDelay) or resetting (ActionDrop).
	Delay time.Duration
	// Evidence is the value to set as EvidenceHeader on the forwarded message, and
	// with ActionError on the made answer; empty: remove the header. Valid until the next
	// engine call with this Call.
	Evidence []byte
	// TraceParent is the value of a traceparent header to add; empty: none (edge rules).
	TraceParent []byte
	// Strip: the message carries an EvidenceHeader that must be removed if Evidence is empty.
	Strip bool
}

// EvidenceHeader carries evidence between sidecars.
const EvidenceHeader = "x-fic-evidence"

// InjectedHeader marks answers that a fault made; its value is the TFIC's id.
const InjectedHeader = "x-fic-injected"
