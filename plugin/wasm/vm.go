package wasm

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// newVM returns a VM that has not started.
func newVM() *vm {
	s, _ := ParseSettings(nil) // nothing, and so nothing bad
	return &vm{settings: s, refused: map[tfi.Key]bool{}, roots: map[uint32]*root{}, streams: map[uint32]*stream{}}
}

// vm is what one worker's VM holds beside its policies.
type vm struct {
	settings Settings
	metrics  *metrics
	table    *table
	fence    fenceRecord
	reports  reporter
	policy   *tfi.Policy // the last good one
	newest   *root
	roots    map[uint32]*root
	streams  map[uint32]*stream // those of trials
	recent   *stream            // the one looked for last
	created  created
	free     []*stream // ended ones, whose buffers are kept
	headers  headerMap // of the message at hand
	now      time.Duration
	serving  bool // this VM has seen a stream of a trial
	ended    []ended
	// refused are the trials whose problem has been reported under this policy.
	refused map[tfi.Key]bool
}

// start reads the settings; Envoy starts a VM again for each policy.
func (v *vm) start() {
	defer func() {
		if p := recover(); p != nil {
			v.caught("VM start", p)
		}
	}()
	var bad error
	if v.settings, bad = ParseSettings(host.VMConfiguration()); bad != nil {
		host.Log(host.Error, "sequencefi: "+bad.Error())
	}
	if v.settings.GCPercent != 0 {
		debug.SetGCPercent(v.settings.GCPercent)
	}
	// The names stay what they are.
	counted := v.metrics
	v.metrics = defineMetrics()
	if counted != nil {
		v.metrics.counted, v.metrics.stopped, v.metrics.pending = counted.counted, counted.stopped, counted.pending
	}
	v.reports.metrics = v.metrics
	if v.table == nil {
		v.table = newTable(hostCells{}, v.settings.Buckets, v.settings.Slots, host.Monotonic)
		v.fence = fenceRecord{cells: hostCells{}}
	}
}

// apply makes the engine of a serialised policy. One that cannot be read leaves
// the last good one in force, or none, and is counted, logged and reported.
func (v *vm) apply(r *root, b []byte) *tfi.Engine {
	defer v.metrics.flush()
	p, err := tfi.ParsePolicy(b)
	if err != nil {
		v.metrics.inc(metricBadPolicy)
		host.Log(host.Error, "sequencefi: policy refused, the last good one stays in force: "+err.Error())
		if p = v.policy; p == nil {
			return nil
		}
		r.report(&tfi.Record{Kind: tfi.KindProblem, Problem: tfi.ProblemPolicy, Service: p.Service, PolicyVersion: p.Version})
	}
	now := v.clock()
	fence, err := v.fence.admit(p, now)
	if err != nil {
		v.problem("fence", err)
	}
	if p != v.policy {
		v.end(r, p, now)
	}
	v.policy = p
	clear(v.refused)
	if p.Reporting.Cluster != "" {
		v.reports.to, v.reports.service = p.Reporting, p.Service
	}
	v.metrics.applied(p.Version, len(p.Activations))
	return tfi.NewEngine(p, v.table, tfi.Options{Rand: rand.Uint64, Observer: v.metrics, Now: now, Fence: fence})
}

// endGrace is how long after a key has gone its last events may still come, from
// workers that have not switched yet.
const endGrace = 300 * time.Millisecond

// ended is a policy's trials that a later one has no more.
type ended struct {
	due     time.Duration
	policy  *tfi.Policy
	already *tfi.Policy // the later one
}

func (e *ended) over(k tfi.Key) bool { return e.policy.Has(k) && !e.already.Has(k) }

// end takes note of the trials that p ends. Only a VM that has had streams of
// trials does so: the others have no clock to run.
func (v *vm) end(r *root, p *tfi.Policy, now time.Duration) {
	if v.policy == nil || !v.serving || !slices.ContainsFunc(v.policy.Activations, func(a *tfi.Activation) bool { return !p.Has(a.Key) }) {
		return
	}
	v.ended = append(v.ended, ended{due: now + endGrace, policy: v.policy, already: p})
	r.tick()
}

// busy reports whether housekeep must be called again.
func (v *vm) busy() bool { return v.reports.pending() || len(v.ended) > 0 || v.metrics.pending }

// housekeep does what is due, from the tick of root.
func (v *vm) housekeep(root *root, now time.Duration) {
	for len(v.ended) > 0 && v.ended[0].due <= now {
		e := v.ended[0]
		v.ended = v.ended[1:]
		err := v.table.take(e.over, func(s *tfi.State) {
			if s.ID().Trace != ([16]byte{}) {
				return // one of thousands of a load
			}
			r := s.End()
			r.Service, r.PolicyVersion = e.policy.Service, e.policy.Version
			root.report(&r)
		})
		if err != nil {
			v.problem("end of trials", err)
		}
	}
	v.reports.flush(root.id, now)
	v.metrics.flush()
}

// retire takes leave of a root. What it had still to do another one does.
func (v *vm) retire(r *root) {
	v.reports.lose(r.id)
	if v.newest == r {
		v.newest = nil
	}
	if v.newest == nil {
		v.reports.drain(r.id, v.clock()) // the VM is about to end
	}
	v.metrics.flush()
	if v.newest == nil || !v.busy() || v.newest.ticking {
		return
	}
	if err := host.SetEffectiveContext(v.newest.id); err != nil {
		v.problem("effective context", err)
		return
	}
	v.newest.tick()
}

// clock reads the clock; v.now is what it said last, which does for a report.
func (v *vm) clock() time.Duration {
	v.now = host.Monotonic()
	return v.now
}

// caught takes note of a panic. The message goes on untouched.
func (v *vm) caught(where string, p any) {
	defer func() { _ = recover() }() // not even the log works: nothing is left to do
	v.metrics.inc(metricInternal)
	host.Log(host.Error, fmt.Sprintf("sequencefi: recovered in %s: %v\n%s", where, p, debug.Stack()))
}

// problem takes note of a host call that failed.
func (v *vm) problem(what string, err error) {
	v.metrics.inc(metricInternal)
	host.Log(host.Warn, fmt.Sprintf("sequencefi: %s: %v", what, err))
}
