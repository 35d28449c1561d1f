package tfi

import "time"

// Engine judges the messages of one sidecar by one policy. It is made anew for
// every policy; the trial states live in the Store and outlast it.
type Engine struct{}

// Options of an [Engine].
type Options struct {
	// Rand gives random bits: tags, trace ids of edge rules, drawn delays. Never the verdict.
	Rand func() uint64
	// Observer is told what happened; nil: nobody.
	Observer Observer
}

// Observer counts what happened. It must not block.
type Observer interface {
	Count(m Metric)
}

// Metric is something that an Observer counts.
type Metric uint8

// The metrics.
const (
	MetricEvent           Metric = iota // an event of a trial
	MetricMatch                         // a TFIC's target matched
	MetricDelay                         // a fault fired
	MetricError                         // a fault fired
	MetricAbort                         // a fault fired
	MetricDrop                          // a fault fired
	MetricEvidenceDropped               // a malformed or oversized evidence header
	MetricTableFull                     // a trial was not activated
	MetricInternal                      // an internal error; the message went on untouched
)

// NewEngine returns an engine for p.
func NewEngine(p *Policy, s Store, o Options) *Engine { return &Engine{} }

// Request judges a request whose headers have arrived and fills c. If the
// request belongs to no live trial c stays inactive and the decision is to forward.
func (e *Engine) Request(c *Call, r *Request) Decision { return Decision{} }

// Response judges the answer of an active call.
func (e *Engine) Response(c *Call, r *Response) Decision { return Decision{} }

// Delivered records that the answer's last byte has been forwarded to the
// application; RoleClient only.
func (e *Engine) Delivered(c *Call, now time.Duration) {}

// Call is one call at one sidecar. The adapter keeps it beside its stream; the
// zero value is ready, and Reset makes it so again.
type Call struct{}

// Active reports whether the call belongs to a live trial.
func (c *Call) Active() bool { return false }

// Reset makes c ready for another call and keeps its buffers.
func (c *Call) Reset() {}

// Record returns what was observed of the call so far, for reporting.
// It is valid until the next engine call with c.
func (c *Call) Record() *Record { return nil }

// Record is what a sidecar reports of one call; package span encodes it.
type Record struct{}

// Key names one immutable set of TFICs and switches it on for one trial.
type Key [7]byte

// Policy is what a service's sidecars are told, decoded and indexed. Immutable.
type Policy struct{}

// ParsePolicy decodes a serialised sequencefi.tfi.v1.Policy.
// Errors list every problem with its field path.
func ParsePolicy(b []byte) (*Policy, error) { return nil, nil }

// TFIC is a decoded sequencefi.tfi.v1.Tfic.
type TFIC struct{}

// State is a sidecar's state of one trial.
type State struct{}
