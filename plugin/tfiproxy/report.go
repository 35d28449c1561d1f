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
	// reportRoom is what a span has room for in the buffer that it is appended to: all but
	// odd ones take less.
	reportRoom = 2 << 10
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
	batch   batch
	wall    int64         // Unix nanoseconds of the epoch, as the batch began
	wake    chan struct{} // has one element while there is something to send
	full    chan struct{} // the same while a batch need not wait

	pieces [][]byte // of the request under way; the sender's own
}

// batch is what one request reports. Its spans stay where they were encoded: while
// a collector is slower than the calls, a batch that had to grow would be moved again
// and again, and each would leave its memory to the garbage collector.
type batch struct {
	blocks []*buffer // of spans as package span makes them; only the last has room
	spans  int
	size   int // in bytes
}

// add encodes a span.
func (b *batch) add(s *span.Span) {
	var last *buffer
	if n := len(b.blocks); n > 0 {
		last = b.blocks[n-1]
	}
	if last == nil || len(last.b)-last.w < reportRoom {
		last = largeBuffers.Get().(*buffer)
		b.blocks = append(b.blocks, last)
	}
	encoded := span.Append(last.b[last.w:last.w], s)
	if &encoded[0] != &last.b[last.w] { // it had no room
		last = &buffer{b: encoded}
		b.blocks = append(b.blocks, last)
	}
	last.w += len(encoded)
	b.spans++
	b.size += len(encoded)
}

// reset empties b.
func (b *batch) reset() {
	for _, block := range b.blocks {
		putBuffer(block)
	}
	clear(b.blocks)
	*b = batch{blocks: b.blocks[:0]}
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
	if r.address == "" || r.batch.size >= reportBacklog {
		r.metrics.inc(metricSpansDropped)
		return
	}
	if r.batch.spans == 0 {
		// The wall clock may have been set since the start: what counts is its time now.
		r.wall = time.Now().UnixNano() - int64(time.Since(r.epoch))
		signal(r.wake)
	}
	s.Epoch = r.wall
	r.batch.add(&s)
	if r.batch.size >= reportBytes {
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
	var sending batch
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
		sending, r.batch = r.batch, sending
		target, address, service := r.target, r.address, r.service
		r.mu.Unlock()
		if sending.spans > 0 {
			r.send(c, target, address, service, &sending)
			sending.reset()
		}
	}
}

func (r *reporter) send(c *client, target tfi.Reporting, address, service string, b *batch) {
	if c.address != address {
		c.close()
		c.address = address
	}
	// Not the run's context: what is left at the end is to be sent as well.
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	r.pieces = append(r.pieces[:0], span.AppendRequestHead(nil, service, b.size))
	for _, block := range b.blocks {
		r.pieces = append(r.pieces, block.data())
	}
	answer, err := c.do(ctx, "POST", target.Path, target.Authority, "content-type: application/x-protobuf\r\n", r.pieces...)
	clear(r.pieces)
	if err != nil || answer.status/100 != 2 {
		r.metrics.inc(metricExportErrors)
		r.metrics.add(metricSpansDropped, b.spans)
		return
	}
	r.metrics.add(metricSpans, b.spans)
}
