package tfiproxy

import (
	"sync/atomic"
	"time"
)

// h2flood counts the frames by which an end can make others work for nothing,
// anew every floodWindow. The bounds are far above what peers in good faith send. Each end
// has its own: one answers what the other asks, a PING for a PING.
type h2flood struct {
	resets, pings, others, empties, lates atomic.Uint32
	since                                 time.Duration // the sweeper's own
}

// floodWindow is the least time after which counts start anew. They do at a tick, so it is
// less than one longer.
const floodWindow = 250 * time.Millisecond

// Bounds per window. Rapid reset (CVE-2023-44487) needs tens of thousands a
// second, and counts here only until the answer has begun; gRPC pings once a round trip
// to measure bandwidth.
const (
	maxResets  = 500
	maxPings   = 5000
	maxOthers  = 500   // SETTINGS, PRIORITY, frames of unknown types
	maxEmpties = 2000  // DATA without data
	maxLates   = 20000 // DATA on streams that are over: a window of small messages may be on its way
)

// maxBlockParts bounds the frames of one header block (CVE-2024-27316).
const maxBlockParts = 32

func (f *h2flood) sweep(now time.Duration) {
	if now-f.since < floodWindow {
		return
	}
	f.since = now
	f.resets.Store(0)
	f.pings.Store(0)
	f.others.Store(0)
	f.empties.Store(0)
	f.lates.Store(0)
}

func (f *h2flood) reset() error { return bound(&f.resets, maxResets, "streams reset too fast") }
func (f *h2flood) ping() error  { return bound(&f.pings, maxPings, "too many pings") }
func (f *h2flood) other() error { return bound(&f.others, maxOthers, "too many control frames") }
func (f *h2flood) empty() error { return bound(&f.empties, maxEmpties, "too many empty frames") }
func (f *h2flood) late() error  { return bound(&f.lates, maxLates, "too much after the end") }

func bound(n *atomic.Uint32, limit uint32, why string) error {
	if n.Add(1) > limit {
		return violation(codeCalm, why)
	}
	return nil
}
