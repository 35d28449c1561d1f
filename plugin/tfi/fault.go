package tfi

import (
	"math"
	"time"
)

// FaultKind says what is done to a message.
type FaultKind uint8

// The faults.
const (
	FaultDelay FaultKind = 1 // forwarded later
	FaultError FaultKind = 2 // a failure is answered
	FaultAbort FaultKind = 3 // reset towards the caller
	FaultDrop  FaultKind = 4 // swallowed
)

// String returns "delay", "error", "abort" or "drop".
func (k FaultKind) String() string {
	switch k {
	case FaultDelay:
		return "delay"
	case FaultError:
		return "error"
	case FaultAbort:
		return "abort"
	case FaultDrop:
		return "drop"
	}
	return "none"
}

// Fault is what is done to a message (proto: Fault).
type Fault struct {
	Kind  FaultKind
	Delay Delay     // FaultDelay
	Error ErrorSpec // FaultError
	// Drop is how long a swallowed message's caller waits at most; FaultDrop.
	Drop time.Duration
}

// ErrorSpec is a made answer. Defaults are filled in.
type ErrorSpec struct {
	// HTTPStatus for HTTP calls, 200 to 599.
	HTTPStatus int
	// GRPCStatus and GRPCMessage for gRPC calls.
	GRPCStatus  int
	GRPCMessage string
	// Body of an HTTP answer; owned by the policy, not to be changed.
	Body    []byte
	Headers []Header
}

// Header is a header line; the name is in lower case.
type Header struct {
	Name, Value string
}

// Distribution says how a [Delay] is drawn.
type Distribution uint8

// The distributions.
const (
	DelayFixed       Distribution = 1 // always A
	DelayUniform     Distribution = 2 // evenly from [A, B]
	DelayNormal      Distribution = 3 // mean A, standard deviation B, cut off below zero
	DelayExponential Distribution = 4 // mean A
)

// Delay is a distribution of durations.
type Delay struct {
	Distribution Distribution
	A, B         time.Duration
}

// draw returns a delay in [0, maxDelay]. How long a delay is never decides
// whether one is made.
func (d Delay) draw(random func() uint64) time.Duration {
	// unit is in (0, 1], so that its logarithm is finite.
	unit := func() float64 { return float64(random()>>11+1) / (1 << 53) }
	var f float64
	switch d.Distribution {
	case DelayFixed:
		return d.A
	case DelayUniform:
		f = float64(d.A) + unit()*float64(d.B-d.A)
	case DelayNormal:
		f = float64(d.A) + float64(d.B)*math.Sqrt(-2*math.Log(unit()))*math.Cos(2*math.Pi*unit())
	case DelayExponential:
		f = -float64(d.A) * math.Log(unit())
	}
	return time.Duration(min(max(f, 0), float64(maxDelay)))
}

// AnswerKind says how the answers of a method come.
type AnswerKind uint8

// The answer kinds.
const (
	AnswerUnknown   AnswerKind = 0 // treated as streaming
	AnswerUnary     AnswerKind = 1 // may be held back until the callee has finished
	AnswerStreaming AnswerKind = 2 // never buffered
)

// Placement says whose sidecar makes the fault.
type Placement uint8

// The placements.
const (
	PlacementCaller Placement = 1 // only the caller is deceived
	PlacementCallee Placement = 2 // meshes react as to a real failure
)

// Target says where a fault is made (proto: StaticConfiguration).
type Target struct {
	// Caller is empty for a caller outside the mesh.
	Caller, Callee, API string
	Phase               Phase
	// K is the rank of the call; 0: not located.
	K uint32
	// EnforceK: a call of another rank is refused.
	EnforceK  bool
	Placement Placement
	// When and WhenStatus narrow PhaseResp to answers that ended so.
	When       Outcome
	WhenStatus int
	Identities []Identity
}

// injector is the service whose sidecars make the fault.
func (t *Target) injector() string {
	if t.Placement == PlacementCallee {
		return t.Callee
	}
	return t.Caller
}

// TFIC is a temporal fault-injection configuration ⟨σ, g⟩ with its fault.
// It belongs to its policy and is not to be changed.
//
//nolint:revive // the design's own name for it
type TFIC struct {
	// Index in its activation.
	Index  int
	ID     string
	Target Target
	Fault  Fault
	// Max is how often it may fire in a trial.
	Max        uint32
	AnswerKind AnswerKind

	guard *guard
}
