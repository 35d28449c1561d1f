package traces

import (
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// StoreOptions bound a [Store]. Zero fields mean the default.
type StoreOptions struct {
	// MaxSpans bounds the number of spans; 200,000 by default, which at the size
	// of a sidecar's spans is about 200 MB.
	MaxSpans int
	// MaxBytes bounds their encoded size, in case an application's spans are
	// large; 128 MiB by default. In memory they take about twice that.
	MaxBytes int
	// MaxTraceSpans bounds the spans of one trace, so that a single one cannot
	// drive out all others; 20,000 by default.
	MaxTraceSpans int
	// MaxAge is how long a trace is kept after its last span came in; 30 minutes
	// by default. A campaign reads a trial's traces within seconds.
	MaxAge time.Duration
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

func (o StoreOptions) complete() StoreOptions {
	if o.MaxSpans <= 0 {
		o.MaxSpans = 200_000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 128 << 20
	}
	if o.MaxTraceSpans <= 0 {
		o.MaxTraceSpans = 20_000
	}
	if o.MaxAge <= 0 {
		o.MaxAge = 30 * time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// StoreStats is what a [Store] holds and has lost.
type StoreStats struct {
	Traces, Spans, Bytes int
	// Evicted counts spans that had to go for newer ones, or were too old.
	Evicted int
	// Rejected counts spans that were never kept: no valid ids, or too many in
	// their trace.
	Rejected int
	// Duplicates counts spans that came in again, as exporters' retries do.
	Duplicates int
}

// Store keeps the traces of the recent past in memory. When it is full the trace
// that has been quiet longest goes, whole, since half a trace would mislead.
//
// It starts no goroutine; all methods may be called at the same time.
type Store struct {
	o StoreOptions

	mu     sync.Mutex
	traces map[TraceID]*list.Element // of *storedTrace
	quiet  *list.List                // the trace that has been quiet longest is in front
	waits  map[*wait]struct{}
	stats  StoreStats
	closed bool
}

type storedTrace struct {
	id    TraceID
	spans []storedSpan
	seen  map[[sha256.Size]byte]struct{} // hashes of the spans
	bytes int
	last  time.Time
}

// storedSpan shares resource and scope with the spans it came with.
type storedSpan struct {
	span     *tracev1.Span
	resource *tracev1.ResourceSpans // its resource and schema URL
	scope    *tracev1.ScopeSpans    // its scope and schema URL
}

// wait is one call of Wait.
type wait struct {
	ids   []TraceID
	spans int           // seen by the waiter
	done  chan struct{} // closed when there are more, or the store is closed
}

// NewStore returns an empty store.
func NewStore(o StoreOptions) *Store {
	return &Store{
		o:      o.complete(),
		traces: map[TraceID]*list.Element{},
		quiet:  list.New(),
		waits:  map[*wait]struct{}{},
	}
}

// Add keeps the spans of td, which the store owns from now on. It returns how
// many spans it refused, and why; they are lost, and sending them again would
// not help.
func (s *Store) Add(td *tracev1.TracesData) (rejected int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	touched := map[TraceID]struct{}{}
	for _, rs := range td.GetResourceSpans() {
		// Bare copies, so that one kept span does not keep all that came with it.
		resource := &tracev1.ResourceSpans{Resource: rs.GetResource(), SchemaUrl: rs.GetSchemaUrl()}
		for _, ss := range rs.GetScopeSpans() {
			scope := &tracev1.ScopeSpans{Scope: ss.GetScope(), SchemaUrl: ss.GetSchemaUrl()}
			for _, span := range ss.GetSpans() {
				if reason := s.add(storedSpan{span: span, resource: resource, scope: scope}, now); reason != "" {
					rejected, why = rejected+1, reason
					continue
				}
				touched[TraceID(span.GetTraceId())] = struct{}{}
			}
		}
	}
	s.stats.Rejected += rejected
	s.evict(now)
	for w := range s.waits {
		if slices.ContainsFunc(w.ids, func(id TraceID) bool { _, ok := touched[id]; return ok }) && s.count(w.ids) > w.spans {
			close(w.done)
			delete(s.waits, w)
		}
	}
	return rejected, why
}

// add keeps one span, or says why not.
func (s *Store) add(in storedSpan, now time.Time) string {
	if reason := invalidSpan(in.span); reason != "" {
		return reason
	}
	id := TraceID(in.span.GetTraceId())
	e, ok := s.traces[id]
	if !ok {
		e = s.quiet.PushBack(&storedTrace{id: id, seen: map[[sha256.Size]byte]struct{}{}})
		s.traces[id] = e
	}
	t := e.Value.(*storedTrace)
	t.last = now
	s.quiet.MoveToBack(e)
	// A sidecar may report several spans with one id (a decision, then the call),
	// so ids alone do not tell what came in twice.
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(in.span)
	if err != nil {
		return "a span must be encodable: " + err.Error()
	}
	sum := sha256.Sum256(encoded)
	if _, twice := t.seen[sum]; twice {
		s.stats.Duplicates++
		return ""
	}
	if len(t.spans) >= s.o.MaxTraceSpans {
		return fmt.Sprintf("trace %s has %d spans, the most that are kept", hexID(id), len(t.spans))
	}
	size := len(encoded)
	t.seen[sum] = struct{}{}
	t.spans = append(t.spans, in)
	t.bytes += size
	s.stats.Spans++
	s.stats.Bytes += size
	return ""
}

func invalidSpan(s *tracev1.Span) string {
	var zero TraceID
	if len(s.GetTraceId()) != len(zero) || TraceID(s.GetTraceId()) == zero {
		return "a trace id must be 16 bytes that are not all 0"
	}
	if len(s.GetSpanId()) != 8 {
		return "a span id must be 8 bytes"
	}
	return ""
}

func (s *Store) evict(now time.Time) {
	for e := s.quiet.Front(); e != nil; e = s.quiet.Front() {
		t := e.Value.(*storedTrace)
		full := s.stats.Spans > s.o.MaxSpans || s.stats.Bytes > s.o.MaxBytes
		if !full && now.Sub(t.last) <= s.o.MaxAge {
			return
		}
		s.quiet.Remove(e)
		delete(s.traces, t.id)
		s.stats.Spans -= len(t.spans)
		s.stats.Bytes -= t.bytes
		s.stats.Evicted += len(t.spans)
	}
}

func (s *Store) count(ids []TraceID) int {
	n := 0
	for _, id := range ids {
		if e, ok := s.traces[id]; ok {
			n += len(e.Value.(*storedTrace).spans)
		}
	}
	return n
}

// Spans returns all spans of the traces ids, in the order in which they came in,
// grouped by resource and scope. A trace that is not known has none. The caller
// owns the lists, but must not change the spans.
func (s *Store) Spans(ctx context.Context, ids []TraceID) (*tracev1.TracesData, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(s.o.Now())
	g := newGrouping()
	for _, id := range distinct(ids) {
		if e, ok := s.traces[id]; ok {
			for _, in := range e.Value.(*storedTrace).spans {
				g.add(in)
			}
		}
	}
	return &g.out, nil
}

// Wait returns nil once there are more than seen spans of the traces ids; seen is
// what [Count] says of the last Spans. Between Spans and Wait nothing is missed.
//
// Errors: ctx's; ErrClosed.
func (s *Store) Wait(ctx context.Context, ids []TraceID, seen int) error {
	ids = distinct(ids)
	w := &wait{ids: ids, spans: seen, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.count(ids) > seen {
		s.mu.Unlock()
		return nil
	}
	s.waits[w] = struct{}{}
	s.mu.Unlock()
	select {
	case <-w.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return ErrClosed
		}
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, w)
		return ctx.Err()
	}
}

// Stats returns what the store holds and has lost.
func (s *Store) Stats() StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Traces = len(s.traces)
	return st
}

// Close ends every Wait. What is kept can still be read.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for w := range s.waits {
		close(w.done)
		delete(s.waits, w)
	}
	return nil
}

// distinct returns ids without repetitions. The caller owns the slice.
func distinct(ids []TraceID) []TraceID {
	out := make([]TraceID, 0, len(ids))
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// grouping puts spans back under the resources and scopes they came with.
type grouping struct {
	out       tracev1.TracesData
	resources map[*tracev1.ResourceSpans]*tracev1.ResourceSpans
	scopes    map[*tracev1.ScopeSpans]*tracev1.ScopeSpans
}

func newGrouping() *grouping {
	return &grouping{
		resources: map[*tracev1.ResourceSpans]*tracev1.ResourceSpans{},
		scopes:    map[*tracev1.ScopeSpans]*tracev1.ScopeSpans{},
	}
}

func (g *grouping) add(in storedSpan) {
	rs, ok := g.resources[in.resource]
	if !ok {
		rs = &tracev1.ResourceSpans{Resource: in.resource.GetResource(), SchemaUrl: in.resource.GetSchemaUrl()}
		g.resources[in.resource] = rs
		g.out.ResourceSpans = append(g.out.ResourceSpans, rs)
	}
	ss, ok := g.scopes[in.scope]
	if !ok {
		ss = &tracev1.ScopeSpans{Scope: in.scope.GetScope(), SchemaUrl: in.scope.GetSchemaUrl()}
		g.scopes[in.scope] = ss
		rs.ScopeSpans = append(rs.ScopeSpans, ss)
	}
	ss.Spans = append(ss.Spans, in.span)
}
