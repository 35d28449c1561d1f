package wasm

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// Bounds of the reporting. A trial is judged on its reports, so they leave soon;
// they are nobody's business but the trial's, so they are dropped before they hurt.
const (
	// reportAfter is how long the first report of a batch waits for others.
	reportAfter = 10 * time.Millisecond
	// reportFew is a batch that leaves then. Where more came meanwhile, reports are a
	// load of their own, and wait for company until reportLate: to send a batch costs
	// Envoy as much as a request does.
	reportFew  = 16
	reportLate = 40 * time.Millisecond
	// reportBytes sends a batch at once.
	reportBytes = 64 << 10
	// reportBacklog bounds what waits to be sent, in bytes.
	reportBacklog = 1 << 20
	// reportsInFlight bounds the calls that wait for their answer.
	reportsInFlight = 8
	// reportTimeout ends a call that gets no answer.
	reportTimeout = 2 * time.Second
)

// reporter collects encoded spans and sends them in batches. There is one a VM,
// not one a policy, so that the last reports under an old policy are sent too.
type reporter struct {
	metrics *metrics
	to      tfi.Reporting
	service string
	batch   []byte // as package span makes it
	request []byte // scratch
	spans   int
	since   time.Duration // when the first span of the batch came
	epoch   int64         // see [span.Span]
	sent    []sentReport
}

// sentReport is a call that waits for its answer.
type sentReport struct {
	at   time.Duration
	root uint32
}

// add takes a span and reports whether it was taken.
func (r *reporter) add(now time.Duration, s *span.Span) bool {
	if r.to.Cluster == "" {
		return false
	}
	if len(r.batch) >= reportBacklog {
		r.metrics.inc(metricSpansDropped)
		return false
	}
	if r.spans == 0 {
		r.since = now
		r.epoch = time.Now().UnixNano() - int64(now)
	}
	s.Epoch = r.epoch
	r.batch = span.Append(r.batch, s)
	r.spans++
	return true
}

// pending reports whether spans wait to be sent.
func (r *reporter) pending() bool { return r.spans > 0 }

// flush sends the batch if it is time; only from a root context, since a call
// made in a stream dies with it.
func (r *reporter) flush(root uint32, now time.Duration) {
	if !r.due(now) {
		return
	}
	r.forget(now)
	if len(r.sent) >= reportsInFlight {
		return // wait; the backlog is bounded
	}
	r.send(root, now)
}

// due reports whether it is time for the batch.
func (r *reporter) due(now time.Duration) bool {
	wait := reportAfter
	if r.spans > reportFew {
		wait = reportLate
	}
	return r.spans > 0 && (now-r.since >= wait || len(r.batch) >= reportBytes)
}

// drain sends what there is, because there will be no other time.
func (r *reporter) drain(root uint32, now time.Duration) {
	if r.spans > 0 {
		r.send(root, now)
	}
}

// forget drops the calls whose answers no longer come: Envoy ends a call at its
// time-out, but a host may also lose one (the SDK's emulator does).
func (r *reporter) forget(now time.Duration) {
	for len(r.sent) > 0 && now-r.sent[0].at > 2*reportTimeout {
		r.sent = r.sent[1:]
	}
}

// lose drops the calls of a root that is gone: Envoy cancels them, and says nothing.
func (r *reporter) lose(root uint32) {
	under := len(r.sent)
	r.sent = slices.DeleteFunc(r.sent, func(s sentReport) bool { return s.root == root })
	r.metrics.add(metricExportErrors, under-len(r.sent))
}

func (r *reporter) send(root uint32, now time.Duration) {
	headers := [][2]string{
		{":method", "POST"},
		{":path", r.to.Path},
		{":authority", r.to.Authority},
		{"content-type", "application/x-protobuf"},
	}
	n := r.spans
	r.request = span.AppendRequest(r.request[:0], r.service, r.batch)
	err := host.Dispatch(r.to.Cluster, headers, r.request, reportTimeout)
	r.batch, r.spans = r.batch[:0], 0
	if cap(r.batch) > 4*reportBytes {
		r.batch, r.request = nil, nil // a peak is not kept
	}
	if err != nil {
		r.metrics.inc(metricExportErrors)
		r.metrics.add(metricSpansDropped, n)
		return
	}
	r.sent = append(r.sent, sentReport{at: now, root: root})
	r.metrics.add(metricSpans, n)
}

// answered takes the answer of a call; no headers mean that there was none.
func (r *reporter) answered(root uint32, numHeaders int) {
	if i := slices.IndexFunc(r.sent, func(s sentReport) bool { return s.root == root }); i >= 0 {
		r.sent = slices.Delete(r.sent, i, i+1)
	}
	if numHeaders == 0 {
		r.metrics.inc(metricExportErrors)
		return
	}
	var headers headerMap
	headers.read(host.Headers(host.CallHeaders))
	if status, _ := headers.Header(":status"); len(status) != 3 || status[0] != '2' {
		r.metrics.inc(metricExportErrors)
	}
}

// report sends a record from a callback of r.
func (r *root) report(record *tfi.Record) {
	if r.vm.take(record) {
		r.tick()
	}
}

// take hands a record to the reporter, and reports whether a tick is needed.
func (v *vm) take(r *tfi.Record) bool {
	s := span.Span{Record: r}
	binary.LittleEndian.PutUint64(s.ID[:], rand.Uint64()|1) // all zeros would be no id
	return v.reports.add(v.now, &s)
}

// refused reports a trial that could not be activated here, once a policy and VM.
func (s *stream) refused() {
	r := s.call.Record()
	if r == nil || s.root.vm.refused[r.Key] {
		return
	}
	s.root.vm.refused[r.Key] = true
	s.root.report(r)
}

// reportDecision reports a fault at the moment at which it was decided.
func (s *stream) reportDecision() {
	r := *s.call.Record()
	r.Kind = tfi.KindDecision
	s.root.report(&r)
}

// reportCall reports the call, which has ended.
func (s *stream) reportCall() {
	r := s.call.Record()
	if r == nil {
		return
	}
	r.Bytes, r.Chunks, r.Length = int64(s.bytes), int64(s.chunks), s.length >= 0
	r.ContentType = append(r.ContentType[:0], s.contentType...)
	r.Unsent = s.request == waiting
	s.root.report(r)
}
