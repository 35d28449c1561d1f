package tfiproxy

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
)

// Bounds of the reporting. A trial is judged on its reports, so they leave soon;
// they are nobody's business but the trial's, so they are dropped before they hurt.
const (
	// reportAfter is how long the first report of a batch waits for others.
	reportAfter = 10 * time.Millisecond
	// reportBytes sends a batch at once.
	reportBytes = 64 << 10
	// reportBacklog bounds what waits to be sent, in bytes.
	reportBacklog = 1 << 20
	// reportTimeout ends a call that gets no answer.
	reportTimeout = 2 * time.Second
)

// reporter collects encoded spans and posts them as OTLP over HTTP.
type reporter struct {
	metrics  *metrics
	clusters map[string]string
	epoch    time.Time // when the monotonic clock read 0
	connect  time.Duration

	mu      sync.Mutex
	target  tfi.Reporting
	address string // empty: nothing is reported
	service string
	batch   []byte // as package span makes it
	spans   int
	wall    int64         // Unix nanoseconds of the epoch, as the batch began
	wake    chan struct{} // has one element while there is something to send
	full    chan struct{} // the same while a batch need not wait
}

func newReporter(c *Config, m *metrics, epoch time.Time) *reporter {
	return &reporter{
		metrics: m, clusters: c.Clusters, epoch: epoch, connect: c.Timeouts.Connect,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
}

// to sends what is reported from now on where p says. A policy without reporting
// leaves the target: the last spans under the one before must still get there.
func (r *reporter) to(p *tfi.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service = p.Service
	if p.Reporting.Cluster == "" {
		return
	}
	r.target = p.Reporting
	r.address = r.clusters[p.Reporting.Cluster]
}

// add takes a record; it keeps nothing of it.
func (r *reporter) add(record *tfi.Record, now time.Duration) {
	s := span.Span{Record: record, End: now}
	binary.LittleEndian.PutUint64(s.ID[:], rand.Uint64()|1) // all zeros would be no id
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.address == "" || len(r.batch) >= reportBacklog {
		r.metrics.inc(metricSpansDropped)
		return
	}
	if r.spans == 0 {
		// The wall clock may have been set since the start: what counts is its time now.
		r.wall = time.Now().UnixNano() - int64(time.Since(r.epoch))
		signal(r.wake)
	}
	s.Epoch = r.wall
	r.batch = span.Append(r.batch, &s)
	r.spans++
	if len(r.batch) >= reportBytes {
		signal(r.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run sends until ctx ends, and then once more what is left.
func (r *reporter) run(ctx context.Context) {
	c := &client{connect: r.connect}
	defer c.close()
	var spare, request []byte
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-r.wake:
			timer.Reset(reportAfter)
			select {
			case <-timer.C:
			case <-r.full:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			over = true
		}
		r.mu.Lock()
		batch, spans, target, address, service := r.batch, r.spans, r.target, r.address, r.service
		r.batch, r.spans = spare[:0], 0
		r.mu.Unlock()
		if spans > 0 {
			request = span.AppendRequest(request[:0], service, batch)
			r.send(c, target, address, request, spans)
		}
		spare = batch
		if cap(spare) > 4*reportBytes { // a peak is not kept
			spare, request = nil, nil
		}
	}
}

func (r *reporter) send(c *client, target tfi.Reporting, address string, request []byte, spans int) {
	if c.address != address {
		c.close()
		c.address = address
	}
	// Not the run's context: what is left at the end is to be sent as well.
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	answer, err := c.do(ctx, "POST", target.Path, target.Authority, "content-type: application/x-protobuf\r\n", request)
	if err != nil || answer.status/100 != 2 {
		r.metrics.inc(metricExportErrors)
		r.metrics.add(metricSpansDropped, spans)
		return
	}
	r.metrics.add(metricSpans, spans)
}
