package tfi

import "slices"

// Phase says which half of a call an event belongs to.
type Phase uint8

// The phases.
const (
	PhaseReq  Phase = 1 // the request's headers have arrived
	PhaseResp Phase = 2 // the answer's headers, or gRPC's trailers, have
)

// String returns "req" or "resp".
func (p Phase) String() string {
	switch p {
	case PhaseReq:
		return "req"
	case PhaseResp:
		return "resp"
	}
	return "unknown"
}

// String returns "client" or "server".
func (r Role) String() string {
	switch r {
	case RoleClient:
		return "client"
	case RoleServer:
		return "server"
	}
	return "unknown"
}

// Op is what an event is an occurrence of. No part is left open, so that nothing
// is counted twice.
type Op struct {
	// Observer is the service whose sidecar sees the event.
	Observer string
	Role     Role
	// Peer is the service at the other end; empty for a caller outside the mesh.
	Peer string
	// API is `METHOD /path/template` or `package.Service/Method`.
	API   string
	Phase Phase
}

// Outcome is how a call ended; in a predicate or target, which endings it takes.
type Outcome uint8

// The outcomes.
const (
	OutcomeAny     Outcome = 0
	OutcomeSuccess Outcome = 1 // HTTP below 400, gRPC 0
	OutcomeFailure Outcome = 2 // everything else, a broken connection included
	OutcomeStatus  Outcome = 3 // exactly the status named beside it
)

// String returns "any", "success", "failure" or "status".
func (o Outcome) String() string {
	switch o {
	case OutcomeAny:
		return "any"
	case OutcomeSuccess:
		return "success"
	case OutcomeFailure:
		return "failure"
	case OutcomeStatus:
		return "status"
	}
	return "unknown"
}

// answer is how a call ended.
type answer struct {
	status int // HTTP, or gRPC where grpc is set
	grpc   bool
	broken bool
}

func (a answer) outcome() Outcome {
	switch {
	case a.broken:
		return OutcomeFailure
	case a.grpc && a.status == 0, !a.grpc && a.status < 400:
		return OutcomeSuccess
	}
	return OutcomeFailure
}

// meets reports whether a is an ending that the filter takes.
func (a answer) meets(want Outcome, status int) bool {
	switch want {
	case OutcomeAny:
		return true
	case OutcomeStatus:
		return !a.broken && a.status == status
	}
	return a.outcome() == want
}

// Predicate says which events an atom counts (proto: EventPredicate).
type Predicate struct {
	Op         Op
	Identities []Identity
	// Outcome and Status narrow PhaseResp.
	Outcome Outcome
	Status  int
	// Delivered counts the moment at which the answer's last byte has been
	// forwarded to the application, instead of its arrival.
	Delivered bool
}

// Equal reports whether p and q are the same predicate: one entry of the
// evidence counts both. Identities are compared in their order.
func (p *Predicate) Equal(q *Predicate) bool {
	return p.Op == q.Op && p.Outcome == q.Outcome && p.Status == q.Status &&
		p.Delivered == q.Delivered && slices.Equal(p.Identities, q.Identities)
}
