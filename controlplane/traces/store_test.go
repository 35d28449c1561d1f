package traces

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// held returns the ids (numbers) of the traces among 1 to 9 that s has.
func held(t *testing.T, s *Store) []uint64 {
	t.Helper()
	var ids []uint64
	for n := uint64(1); n < 10; n++ {
		td, err := s.Spans(t.Context(), []TraceID{traceID(n)})
		if err != nil {
			t.Fatal(err)
		}
		if Count(td) > 0 {
			ids = append(ids, n)
		}
	}
	return ids
}

func TestStoreEvictsWholeTracesQuietLongest(t *testing.T) {
	s := NewStore(StoreOptions{MaxSpans: 6})
	for _, trace := range []uint64{1, 2, 3, 1, 2} { // 3 is quiet longest in the end
		s.Add(data("a", span(traceID(trace), uint64(s.Stats().Spans))))
	}
	s.Add(data("a", span(traceID(4), 100), span(traceID(4), 101)))
	if diff := gocmp.Diff([]uint64{1, 2, 4}, held(t, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := StoreStats{Traces: 3, Spans: 6, Evicted: 1}
	got := s.Stats()
	got.Bytes = 0
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStoreBounds(t *testing.T) {
	now := time.Unix(0, 0)
	size := func() int {
		s := NewStore(StoreOptions{})
		s.Add(data("a", span(traceID(1), 1)))
		return s.Stats().Bytes
	}()
	s := NewStore(StoreOptions{MaxBytes: 3 * size, MaxTraceSpans: 2, MaxAge: time.Minute, Now: func() time.Time { return now }})
	if n, why := s.Add(data("a", span(traceID(1), 1), span(traceID(1), 2), span(traceID(1), 3))); n != 1 || why == "" {
		t.Errorf("third span of a trace of at most two: rejected %d, %q", n, why)
	}
	s.Add(data("a", span(traceID(2), 1), span(traceID(2), 2)))
	if diff := gocmp.Diff([]uint64{2}, held(t, s)); diff != "" {
		t.Errorf("bytes: -want +got:\n%s", diff)
	}
	now = now.Add(time.Minute)
	s.Add(data("a", span(traceID(3), 1)))
	if diff := gocmp.Diff([]uint64{2, 3}, held(t, s)); diff != "" {
		t.Errorf("just young enough: -want +got:\n%s", diff)
	}
	now = now.Add(time.Second)
	if diff := gocmp.Diff([]uint64{3}, held(t, s)); diff != "" {
		t.Errorf("too old: -want +got:\n%s", diff)
	}
}

func TestStoreRefusesSpansWithoutIDs(t *testing.T) {
	s := NewStore(StoreOptions{})
	for name, bad := range map[string]*tracev1.Span{
		"no trace id":    {SpanId: make([]byte, 8)},
		"zero trace id":  {TraceId: make([]byte, 16), SpanId: []byte("12345678")},
		"short trace id": {TraceId: []byte("12345678"), SpanId: []byte("12345678")},
		"no span id":     {TraceId: []byte("1234567890123456")},
	} {
		if n, why := s.Add(data("a", bad)); n != 1 || why == "" {
			t.Errorf("%s: rejected %d, %q", name, n, why)
		}
	}
	if st := s.Stats(); st.Rejected != 4 || st.Spans != 0 {
		t.Errorf("%+v", st)
	}
}

func TestStoreTellsRepetitionsFromNews(t *testing.T) {
	s := NewStore(StoreOptions{})
	decision := span(traceID(1), 1)
	call := span(traceID(1), 1)
	call.Attributes = append(call.Attributes, attribute("sequencefi.kind", "call"))
	for _, sp := range []*tracev1.Span{decision, call, span(traceID(1), 1)} {
		s.Add(data("a", sp))
	}
	if st := s.Stats(); st.Spans != 2 || st.Duplicates != 1 {
		t.Errorf("%+v", st)
	}
}

func TestStoreWait(t *testing.T) {
	s := NewStore(StoreOptions{})
	ids := []TraceID{traceID(1), traceID(2)}
	s.Add(data("a", span(traceID(1), 1)))
	if err := s.Wait(t.Context(), ids, 0); err != nil {
		t.Errorf("what is there already: %v", err)
	}

	waited := make(chan error)
	go func() { waited <- s.Wait(t.Context(), append(ids, ids...), 1) }()
	waitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waits) == 1 })
	s.Add(data("a", span(traceID(3), 1))) // another trace
	s.Add(data("a", span(traceID(1), 1))) // nothing new
	select {
	case err := <-waited:
		t.Fatalf("woken by spans of no interest: %v", err)
	default:
	}
	s.Add(data("a", span(traceID(2), 1)))
	if err := <-waited; err != nil {
		t.Errorf("woken: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { waited <- s.Wait(ctx, ids, 2) }()
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if len(s.waits) != 0 {
		t.Errorf("%d waits left", len(s.waits))
	}

	go func() { waited <- s.Wait(t.Context(), ids, 2) }()
	waitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waits) == 1 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Wait(t.Context(), ids, 2); !errors.Is(err, ErrClosed) {
		t.Errorf("closed before: %v", err)
	}
}

// TestStoreTogether has writers, readers and waiters at the same time.
func TestStoreTogether(t *testing.T) {
	const traces, spans = 8, 50
	s := NewStore(StoreOptions{})
	var wg sync.WaitGroup
	for n := range uint64(traces) {
		wg.Go(func() {
			for i := range uint64(spans) {
				s.Add(data("a", span(traceID(n+1), i)))
			}
		})
		wg.Go(func() {
			for seen := 0; seen < spans; {
				if err := s.Wait(t.Context(), []TraceID{traceID(n + 1)}, seen); err != nil {
					t.Error(err)
					return
				}
				td, err := s.Spans(t.Context(), []TraceID{traceID(n + 1)})
				if err != nil {
					t.Error(err)
					return
				}
				seen = Count(td)
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Spans != traces*spans {
		t.Errorf("%+v", st)
	}
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("never happened")
		case <-time.After(time.Millisecond):
		}
	}
}

func BenchmarkStoreAdd(b *testing.B) {
	s := NewStore(StoreOptions{})
	for n := uint64(0); b.Loop(); n++ {
		s.Add(data("a", span(traceID(n/25), n%25)))
	}
}

// Spans that share an id are told apart by what they hold, however many there
// are: a sender that lies must not make the store compare each with all others.
func TestStoreManySpansWithOneID(t *testing.T) {
	const n = 20_000
	s := NewStore(StoreOptions{})
	spans := make([]*tracev1.Span, n)
	for i := range spans {
		spans[i] = &tracev1.Span{TraceId: bytes.Repeat([]byte{1}, 16), SpanId: bytes.Repeat([]byte{2}, 8), StartTimeUnixNano: uint64(i)}
	}
	batch := &tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{ScopeSpans: []*tracev1.ScopeSpans{{Spans: spans}}}}}
	for range 2 {
		if rejected, why := s.Add(batch); rejected != 0 {
			t.Fatalf("%d rejected: %s", rejected, why)
		}
	}
	if st := s.Stats(); st.Spans != n || st.Duplicates != n {
		t.Errorf("%d spans and %d duplicates, want %d of each", st.Spans, st.Duplicates, n)
	}
}
