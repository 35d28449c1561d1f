// Package trace turns the spans of one run of a workload into its events, in
// causal order, and says what is missing.
//
// Sidecars number their events and report with each message whose message it
// was, so the order is exact and wall time only breaks ties between events that
// do not depend on each other. Where there are no sidecar spans, the
// application's own client and server spans stand in; what they give is marked
// assumed. Start with [Trials], [Trial] and [Event].
package trace

import (
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// None is the index of an event or call that was not observed.
const None = -1

// Op is what an event is an occurrence of (proto: sequencefi.tfi.v1.Op).
type Op struct {
	Observer string
	Role     tfiv1.Role
	Peer     string
	API      string
	Phase    tfiv1.Phase
}

// Proto returns the op as a message.
func (o Op) Proto() *tfiv1.Op {
	return &tfiv1.Op{Observer: o.Observer, Role: o.Role, Peer: o.Peer, Api: o.API, Phase: o.Phase}
}

// String returns the op as `observer/role peer api phase`, for people.
func (o Op) String() string {
	role, phase := "client", "req"
	if o.Role == tfiv1.Role_ROLE_SERVER {
		role = "server"
	}
	if o.Phase == tfiv1.Phase_PHASE_RESP {
		phase = "resp"
	}
	peer := o.Peer
	if peer == "" {
		peer = "outside"
	}
	return o.Observer + "/" + role + " " + peer + " " + o.API + " " + phase
}

// Event is one observed event. Events refer to each other and to calls by their
// index in the [Trial].
type Event struct {
	Op Op
	// Delivered: the answer's last byte has been forwarded to the application;
	// the event is one more beside the answer's own.
	Delivered bool
	// Outcome of an answer; unspecified for a request.
	Outcome tfiv1.Outcome
	// Status of an answer, HTTP or gRPC; 0 also where there was none.
	Status uint32
	// K is the rank that the caller's sidecar gave the call; 0 unknown.
	K uint32
	// Instance and Seq name the event: the observing sidecar's tag and its own
	// count of events.
	Instance string
	Seq      uint64
	// Time on the observer's wall clock, which may be wrong.
	Time time.Time
	// Call is the index of the event's call.
	Call int
	// Request is the index of the request's event at the same sidecar, of the same
	// attempt; its own for a request.
	Request int
	// Cause is the index of the event that sent what was received here; None if it
	// was not seen.
	Cause int
	// Fired is the id of the TFIC that fired at this event.
	Fired string
	// PolicyVersion that was applied; empty without a sidecar.
	PolicyVersion string
}

// Call is one request with its answer, as seen from both ends. Attempts that
// the mesh made of it are one call.
type Call struct {
	Caller, Callee, API string
	// K is its rank among the calls of (caller, callee, api), from 1.
	K uint32
	// GRPC: it speaks gRPC.
	GRPC bool
	// Path is the raw path with query, cut at 512 bytes.
	Path string
	// Parent is the application's span that made it, as "trace id/span id"; empty: not known.
	Parent string
	// Indexes of its events, or None. With several attempts the server's are those
	// of the attempt whose answer the caller got, else of the first.
	ClientReq, ServerReq, ServerResp, ClientResp, Delivered int
	// Attempts counts how often the callee's sidecar saw it.
	Attempts int
	// Answer tells how the answer came, as the nearest sidecar saw it.
	Answer Answer
	// Made: a proxy made the answer. Broken: there was none.
	Made, Broken bool
	// LetGo: a fault was given up on it.
	LetGo bool
	// Judged lists TFICs that did not fire, as "id=reason".
	Judged []string
	// Spans names the spans that it was read from, as "trace id/span id".
	Spans []string
}

// Target returns the index of the event at which a fault of phase p strikes at
// the end of the call where role stands; None if it was not observed.
func (c *Call) Target(role tfiv1.Role, p tfiv1.Phase) int {
	switch {
	case role == tfiv1.Role_ROLE_CLIENT && p == tfiv1.Phase_PHASE_REQ:
		return c.ClientReq
	case role == tfiv1.Role_ROLE_CLIENT:
		return c.ClientResp
	case p == tfiv1.Phase_PHASE_REQ:
		return c.ServerReq
	default:
		return c.ServerResp
	}
}

// Answer tells how an answer came.
type Answer struct {
	// Seen: a sidecar has told.
	Seen bool
	// Bytes and Chunks of the body as forwarded.
	Bytes, Chunks int64
	ContentType   string
	// Length: its length was announced.
	Length bool
}

// Trial is all that one run of the workload left behind.
type Trial struct {
	// ID is the activation key in hex; without sidecars the trace id.
	ID string
	// Assumed: the events come from an application's own spans.
	Assumed bool
	// Events in causal order.
	Events []Event
	Calls  []Call
	// Gaps are events of which no report has come.
	Gaps []Gap
	// UnmatchedSends are requests that left a sidecar and were received by none:
	// their report is not there yet, or the service has no sidecar.
	UnmatchedSends []Send
	// UnmatchedReceives are messages whose sender's report is missing.
	UnmatchedReceives []Receive
	// Retries are requests that a callee's sidecar saw more than once.
	Retries []Retry
	// Ended tells the instances that reported their final count of events.
	Ended map[string]uint64
	// Problems that sidecars reported.
	Problems []Problem
	// Warnings tell what else was odd, for people.
	Warnings []string
	// TraceIDs in hex, sorted.
	TraceIDs []string
}

// Gap is a run of missing events of one sidecar.
type Gap struct {
	Service, Instance string
	// First and Last sequence number that is missing.
	First, Last uint64
}

// Send is a message that left a sidecar.
type Send struct {
	// Event is its index.
	Event int
	// Peer is the service it went to.
	Peer string
}

// Receive is a message that reached a sidecar.
type Receive struct {
	// Event is its index.
	Event int
	// Instance and Seq name the event that sent it.
	Instance string
	Seq      uint64
}

// Retry is a call that was attempted again by the mesh.
type Retry struct {
	// Call is its index.
	Call int
	// Attempts, the first included.
	Attempts int
}

// Problem is what went wrong at a sidecar.
type Problem struct {
	Service, Instance string
	// What, as the sidecar calls it: "table_full", "bad_policy", …
	What string
}

// Complete reports whether nothing is missing, where leaves are the services
// known to have no sidecar.
func (t *Trial) Complete(leaves map[string]bool) bool {
	return len(t.Gaps) == 0 && len(t.UnmatchedReceives) == 0 && len(t.Missing(leaves)) == 0
}

// Missing lists the services that were sent requests which no sidecar of theirs
// reported, without leaves, each once and in order of appearance.
func (t *Trial) Missing(leaves map[string]bool) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range t.UnmatchedSends {
		if !leaves[s.Peer] && !seen[s.Peer] {
			seen[s.Peer] = true
			out = append(out, s.Peer)
		}
	}
	return out
}

// Services lists the services that a sidecar, or a process, of theirs reported,
// each once and sorted.
func (t *Trial) Services() []string {
	set := map[string]bool{}
	for i := range t.Events {
		set[t.Events[i].Op.Observer] = true
	}
	return sortedKeys(set)
}

// Fired lists the ids of TFICs that fired, one entry a firing, in causal order.
func (t *Trial) Fired() []string {
	var out []string
	for i := range t.Events {
		if t.Events[i].Fired != "" {
			out = append(out, t.Events[i].Fired)
		}
	}
	return out
}
