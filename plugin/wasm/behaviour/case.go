// Package behaviour is the table of what a sidecar does to messages: which
// exchanges go through it, and what client and callee see of them. The table knows no
// proxy. It is run on the filter as Go code, on the built wasm, on real Envoys, and on
// any other sidecar that can be put behind [Sidecar].
//
// Read first: [Case], [Sidecar] and [Run].
package behaviour

import (
	"context"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Names that every case's policy uses.
const (
	// Service is the service whose sidecar is tested.
	Service = "shop"
	// Peer is the service that it calls and that calls it.
	Peer = "cart"
	// PeerHTTP1 and PeerHTTP2 are the sidecar's clusters that lead to Peer.
	PeerHTTP1 = "cart-h1"
	PeerHTTP2 = "cart-h2"
	// ReportCluster leads to the collector of spans.
	ReportCluster = "collector"
)

// Feature is what a sidecar under test, or its driver, must be able to do.
type Feature uint8

// The features.
const (
	// Sockets: real connections, for what happens below the filter (1xx, upgrades,
	// HEAD, clients that go away).
	Sockets Feature = 1 << iota
)

// Sidecar runs calls through one sidecar.
type Sidecar interface {
	// Apply puts a policy in force and returns once it is.
	Apply(ctx context.Context, p *tfiv1.Policy) error
	// Do runs one call with the given trace id and returns what both ends saw.
	Do(ctx context.Context, c *Call, trace tfi.TraceID) (*Seen, error)
	// Spans returns the spans reported for a key so far; it waits until done says
	// that they suffice or until ctx ends.
	Spans(ctx context.Context, key tfi.Key, done func([]Span) bool) []Span
}

// Case is one behaviour.
type Case struct {
	Name  string
	Needs Feature
	// TFICs of the trial; none: a clean recording.
	TFICs []*tfiv1.Tfic
	// Calls of the trial, one after the other.
	Calls []Call
	// Lifetime of the activation; 0 means a minute.
	Lifetime time.Duration
}

// Call is one call through the sidecar: the client's request, the callee's
// answer, and what must be seen.
type Call struct {
	// Outbound: the sidecar is the caller's; else the callee's.
	Outbound bool
	// HTTP2 or HTTP/1.1.
	HTTP2 bool
	// GRPC adds what a gRPC call has; implies HTTP2.
	GRPC bool
	// Ordinary: of no trial. Foreign: of a trial that the sidecar has no policy of.
	Ordinary, Foreign bool
	// Named is the header that names the trial, beside a traceparent of no trial; empty:
	// traceparent does.
	Named   string
	Request Message
	Answer  Message
	// Lockstep: every chunk is sent when the one before has arrived at the other
	// end, and the answer's first when the request's last has (with Duplex: its nth when
	// the request's nth has).
	Lockstep, Duplex bool
	// Upgrade to a websocket; the answer's chunks follow the 101.
	Upgrade bool
	// Continue: the client waits for 100 before it sends the body.
	Continue bool
	// LeaveAfter: the client goes away, so long after the callee has been called if it is
	// to be; 0: it stays.
	LeaveAfter time.Duration
	Want       Want
}

// Message is a request or an answer.
type Message struct {
	Method   string // request; empty means GET, or POST with a body
	Path     string // request
	Status   int    // answer; 0 means 200
	Headers  []Header
	Chunks   []string
	Trailers []Header
	// Break: the callee breaks off where the answer would end.
	Break bool
}

// Header is a header line.
type Header struct{ Name, Value string }

// Want is what must be seen. The zero value: everything arrives as it was sent.
type Want struct {
	// Status that the client sees; 0: the answer's.
	Status int
	// Body that the client sees where Replaced.
	Body     string
	Replaced bool
	// GRPCStatus that the client sees where GRPCFails; else the answer's.
	GRPCStatus  string
	GRPCMessage string
	GRPCFails   bool
	// Reset: the client gets no whole answer.
	Reset bool
	// NotCalled: the callee sees nothing.
	NotCalled bool
	// Injected is the value of x-fic-injected; empty: it must not be there.
	Injected string
	// Headers that the client must see besides.
	Headers []Header
	// AtLeast and AtMost bound the time until the client's end; 0: not.
	AtLeast, AtMost time.Duration
	// Fired, Phase and Fault that the call's span says; empty: nothing fired.
	Fired, Phase, Fault string
	// LetGo: the span says so.
	LetGo bool
	// Unsent: the span says that the request was never sent on.
	Unsent bool
	// NoSpan: nothing is reported of the call.
	NoSpan bool
}

// Seen is what both ends of a call saw.
type Seen struct {
	// Client's view.
	Status   int
	Headers  []Header
	Body     string
	Chunks   int // reads that brought something, at least
	Trailers []Header
	// TrailersUnseen: the driver cannot see the answer's trailers.
	TrailersUnseen bool
	// Broken: the answer did not come whole.
	Broken  bool
	Elapsed time.Duration

	// Callee's view.
	Called          bool
	RequestHeaders  []Header
	RequestBody     string
	RequestTrailers []Header
}

// Span is a span that the sidecar reported.
type Span struct {
	Trace string
	// Attributes by name: string, int64 or bool.
	Attributes map[string]any
}

// Get returns a header's value.
func Get(headers []Header, name string) (string, bool) {
	for _, h := range headers {
		if h.Name == name {
			return h.Value, true
		}
	}
	return "", false
}
