package tfi

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"
)

// Engine judges the messages of one sidecar by one policy. It is made anew for
// every policy; the trial states live in the Store and outlast it. An engine does
// not change and is safe for concurrent use, as far as its Store, Rand and Observer are.
type Engine struct {
	policy    *Policy
	store     Store
	random    func() uint64
	observer  Observer
	deadlines []time.Duration // by activation
}

// Options of an [Engine].
type Options struct {
	// Rand gives random bits: tags, trace ids of edge rules, drawn delays. Never
	// the verdict. nil: math/rand/v2.
	Rand func() uint64
	// Observer is told what happened; nil: nobody.
	Observer Observer
	// Now is the sidecar's monotonic clock as the engine is made: from then on the
	// remaining lifetimes of activations count that Fence does not have.
	Now time.Duration
	// Fence says by when activations end that were read before; nil: none was. The
	// engine does not change it: the adapter calls [Fence.Admit] first, and keeps it.
	Fence *Fence
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
	MetricEvidenceDropped               // evidence was malformed or oversized, in whole or part
	MetricTableFull                     // a trial was not activated
	MetricInternal                      // an internal error; the message went on untouched
	MetricExpired                       // a message of an activation that has ended
	MetricLetGo                         // a fault that had fired was given up
	metricCount
)

// Metrics is the number of metrics; they are 0 to Metrics-1.
const Metrics = int(metricCount)

// NewEngine returns an engine for p, which must not be nil.
func NewEngine(p *Policy, s Store, o Options) *Engine {
	e := &Engine{
		policy:    p,
		store:     s,
		random:    o.Rand,
		observer:  o.Observer,
		deadlines: make([]time.Duration, len(p.Activations)),
	}
	if e.random == nil {
		e.random = rand.Uint64
	}
	for i, a := range p.Activations {
		e.deadlines[i] = o.Now + a.Remaining
		if o.Fence != nil {
			if d, ok := o.Fence.Deadline(a.Key); ok {
				e.deadlines[i] = min(e.deadlines[i], d)
			}
		}
	}
	return e
}

// Policy returns the engine's policy.
func (e *Engine) Policy() *Policy { return e.policy }

// Live reports whether the activation of k is here and has not ended.
func (e *Engine) Live(k Key, now time.Duration) bool {
	a := e.policy.Activation(k)
	return a != nil && now < e.deadlines[a.index]
}

// Request judges a request whose headers have arrived and fills c. If the
// request belongs to no live trial c stays inactive and the decision is to forward.
func (e *Engine) Request(c *Call, r *Request) Decision {
	c.Reset()
	c.used = true
	if r.Headers == nil || (r.Role != RoleClient && r.Role != RoleServer) {
		return Decision{}
	}
	if e.policy.exempts(r.Path) {
		// A route that rewrites paths may have had its caller attach evidence all the same.
		c.marked = e.policy.find(r.Headers).marked
		return Decision{Strip: c.marked && carriesEvidence(r.Headers)}
	}
	a, traceparent := e.associate(c, r)
	if a == nil {
		return Decision{Strip: c.marked && carriesEvidence(r.Headers)}
	}
	e.meet(c, a, r)
	c.describe(e.policy, r)
	c.match(a, r)

	var d Decision
	if t := e.step(c, a, eventReq, r.Now); t != nil {
		d = e.decide(c, t)
	}
	if c.active {
		d.TraceParent = traceparent
		forwarded := r.Role == RoleClient && !c.made
		answered := r.Role == RoleServer && d.Action == ActionError
		if c.carries && (forwarded || answered) {
			d.Evidence = c.encode()
		}
	}
	d.Strip = len(d.Evidence) == 0 && carriesEvidence(r.Headers)
	return d
}

// associate finds the live activation that the request belongs to, or nil, and
// the traceparent to add where a rule takes a request that has no trace.
func (e *Engine) associate(c *Call, r *Request) (*Activation, []byte) {
	l := e.policy.find(r.Headers)
	var traceparent []byte
	if l.act == nil && !l.traced {
		if l.act = e.edge(r); l.act != nil {
			l.marked = true
			l.trace = NewTraceID(l.act.Key, e.random())
			// No span has this id. The application's own will name it as their parent.
			var span SpanID
			binary.BigEndian.PutUint64(span[:], e.random()|1)
			c.trace = appendTraceparent(c.trace, l.trace, span)
			traceparent = c.trace
		}
	}
	c.marked = l.marked
	if l.act == nil {
		return nil, nil
	}
	if !e.live(l.act, r.Now) {
		e.count(MetricExpired)
		return nil, nil
	}
	c.id = StateID{Key: l.act.Key}
	if l.act.PerTrace {
		c.id.Trace = l.trace
	}
	c.width = l.act.Width()
	c.record.Key, c.record.Trace, c.record.Parent = l.act.Key, l.trace, l.parent
	if l.stated {
		// Whoever reads the trial's reports cannot know which traces an application starts.
		c.record.Trace = NewTraceID(l.act.Key, 0)
	}
	return l.act, traceparent
}

// edge returns the activation of the first rule that takes the request.
func (e *Engine) edge(r *Request) *Activation {
	for i := range e.policy.edges {
		rule := &e.policy.edges[i]
		if rule.act != nil && e.live(rule.act, r.Now) && matchAll(rule.identities, r) {
			return rule.act
		}
	}
	return nil
}

// meet finds out who is at the other end, and whether evidence goes there.
func (e *Engine) meet(c *Call, a *Activation, r *Request) {
	if r.Role == RoleServer {
		c.carries = e.receive(c, r.Headers, a)
		if i := c.incoming.service; i > 0 {
			c.peer = append(c.peer, a.Services[i-1]...)
		}
		return
	}
	known, ok := e.policy.peers[r.Cluster]
	if !ok {
		// Whoever it is has no sidecar that the policy knows of.
		c.peer = append(c.peer, r.Cluster[:min(len(r.Cluster), maxName)]...)
		return
	}
	c.peer = append(c.peer, known.service...)
	c.carries = !known.leaf
}

// Response judges the answer of an active call. A later answer to the same
// request, and one that a fault made, is no event and goes on as it is; so does an
// informational one (1xx), 101 too: what follows an upgrade is no answer.
func (e *Engine) Response(c *Call, r *Response) Decision {
	strip := Decision{Strip: c.marked && carriesEvidence(r.Headers)}
	if !c.active || c.made || c.answered || (!c.record.GRPC && !r.Broken && r.Status >= 100 && r.Status < 200) {
		return strip
	}
	a := e.resume(c, r.Now)
	if a == nil {
		return strip
	}
	c.answer = answer{status: r.Status, grpc: c.record.GRPC, broken: r.Broken}
	if r.Broken {
		c.answer.status = 0
	}
	c.record.Status, c.record.Outcome = c.answer.status, c.answer.outcome()
	c.record.Made, c.record.Broken = r.Made, r.Broken
	c.incoming = evidence{}
	if c.record.Role == RoleClient && c.carries {
		e.receive(c, r.Headers, a)
	}
	var d Decision
	if t := e.step(c, a, eventResp, r.Now); t != nil {
		d = e.decide(c, t)
	}
	d.Strip = strip.Strip
	if c.active && c.record.Role == RoleServer && c.carries && !r.Broken {
		d.Evidence = c.encode()
	}
	return d
}

// Delivered records that the answer's last byte has been forwarded to the
// application; RoleClient only.
func (e *Engine) Delivered(c *Call, now time.Duration) {
	if !c.active || c.record.Role != RoleClient || !c.answered || c.made || c.answer.broken || c.record.Delivered.Seq != 0 {
		return
	}
	if a := e.resume(c, now); a != nil {
		c.incoming = evidence{}
		e.step(c, a, eventDelivered, now)
	}
}

// LetGo tells that the fault decided last was given up and the message forwarded
// after all. It stays fired: a grow-only counter has no way back.
func (e *Engine) LetGo(c *Call) {
	if c.record.Fired == nil || c.record.LetGo {
		return
	}
	c.record.LetGo = true
	c.made = false
	e.count(MetricLetGo)
}

func (e *Engine) live(a *Activation, now time.Duration) bool {
	return now < e.deadlines[a.index]
}

// resume returns the activation of a call under way, or nil if it has ended. The
// call may have begun under an older policy than the engine's.
func (e *Engine) resume(c *Call, now time.Duration) *Activation {
	a := c.act
	if !e.policy.owns(a) {
		a = e.policy.Activation(c.id.Key)
	}
	if a == nil || a.Width() != c.width || !e.live(a, now) {
		e.count(MetricExpired)
		return nil
	}
	return a
}

// receive decodes the evidence that came with a message and reports whether
// there was any.
func (e *Engine) receive(c *Call, h Headers, a *Activation) bool {
	c.incoming = evidence{}
	if h == nil {
		return false
	}
	v, ok := h.Header(EvidenceHeader)
	if !ok {
		return false
	}
	var err error
	c.inbuf, c.incoming, err = decodeEvidence(c.inbuf, v, c.width, len(a.Services), e.policy.limits.EvidenceBytes)
	if err != nil {
		e.count(MetricEvidenceDropped)
		return false
	}
	return true
}

func carriesEvidence(h Headers) bool {
	if h == nil {
		return false
	}
	_, ok := h.Header(EvidenceHeader)
	return ok
}

// describe fills the rest of the record's constant part.
func (c *Call) describe(p *Policy, r *Request) {
	c.api = appendAPI(c.api, p.templates, r)
	c.path = append(c.path, r.Path[:min(len(r.Path), maxPath)]...)
	c.record.Service, c.record.PolicyVersion = p.Service, p.Version
	c.record.Role, c.record.GRPC = r.Role, r.GRPC
	c.record.Peer, c.record.API, c.record.Path = c.peer, c.api, c.path
}

// step takes the call's next event through the store and returns the TFIC that
// fired, or nil.
func (e *Engine) step(c *Call, a *Activation, kind eventKind, now time.Duration) *TFIC {
	c.act, c.event, c.now = a, kind, now
	c.limits = &e.policy.limits
	c.deadline = e.deadlines[a.index]
	if a.PerTrace {
		c.deadline = min(c.deadline, now+traceIdle)
	}
	if kind == eventReq { // no other event begins a state
		c.fresh = max(1, Tag(e.random())&tagMask)
	}
	c.judged = len(c.judgements)
	err := e.store.Update(c.id, (*step)(c))
	if err == nil && c.lost {
		err = errStateLost
	}
	if err != nil {
		e.fail(c, kind, err)
		return nil
	}
	c.active, c.reported = true, true
	c.answered = c.answered || kind == eventResp
	c.record.Judged, c.record.Known = c.judgements, c.known

	e.count(MetricEvent)
	for range c.matches {
		e.count(MetricMatch)
	}
	if c.noRoom || c.cut {
		e.count(MetricEvidenceDropped)
	}
	if c.fired != nil {
		c.record.Fired = c.fired
	}
	return c.fired
}

var errStateLost = errors.New("the trial's state was lost in the middle of a call")

// traceIdle is how long the state of one trace is kept after its last message:
// with scope trace one activation has many.
const traceIdle = 30 * time.Second

// decide turns a fired TFIC into a decision.
func (e *Engine) decide(c *Call, t *TFIC) Decision {
	d := Decision{TFIC: t}
	switch t.Fault.Kind {
	case FaultDelay:
		d.Action, d.Delay = ActionDelay, t.Fault.Delay.draw(e.random)
		e.count(MetricDelay)
	case FaultError:
		d.Action, c.made = ActionError, true
		e.count(MetricError)
	case FaultAbort:
		d.Action, c.made = ActionAbort, true
		e.count(MetricAbort)
	case FaultDrop:
		d.Action, d.Delay, c.made = ActionDrop, t.Fault.Drop, true
		e.count(MetricDrop)
	}
	return d
}

// fail makes the best of a store that refused: the message goes on untouched, the
// event has not happened, and the trial is known to be invalid.
func (e *Engine) fail(c *Call, kind eventKind, err error) {
	problem, metric := ProblemInternal, MetricInternal
	switch {
	case errors.Is(err, ErrTableFull):
		problem, metric = ProblemTableFull, MetricTableFull
	case errors.Is(err, errStateLost):
		problem = ProblemStateLost
	}
	e.count(metric)
	switch kind {
	case eventReq:
		c.record.Req = EventRecord{}
	case eventResp:
		c.record.Resp = EventRecord{}
	case eventDelivered:
		c.record.Delivered = EventRecord{}
	}
	c.active, c.reported = false, true
	c.record.Kind, c.record.Problem = KindProblem, problem
}

func (e *Engine) count(m Metric) {
	if e.observer != nil {
		e.observer.Count(m)
	}
}

// encode returns the evidence that the step has left behind, ready to be sent.
func (c *Call) encode() []byte {
	c.out = appendBase64(c.out[:0], c.raw)
	return c.out
}
