package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// step is one measurement of one proxy.
type step struct {
	name  string
	proxy *proxy
	takes time.Duration // about, for the remaining time
	do    func(context.Context) error
	// further is a step of a round after the first: it may be left out for want of time.
	further bool
}

// plan lists all measurements in the order in which they are made. Within a round
// every proxy does a workload before any does the next, and each round begins with
// another one, so that whatever else the machine does meets them all.
func (b *bed) plan(o *options, s *summary, c *counter) (all []step) {
	between := b.proxy[1:] // without direct
	for _, p := range between {
		all = append(all, step{name: "memory, idle", proxy: p, do: func(context.Context) error {
			m, err := readMemory(p, whenIdle)
			if err == nil {
				s.Memory = append(s.Memory, m)
			}
			return err
		}})
	}
	// Memory is measured at some 20,000 requests a second: most are faster, some slower.
	for _, p := range between {
		n := o.many
		if p.reference() {
			n = 2 * o.few
		}
		takes := time.Duration(n)*50*time.Microsecond + 2*b.settle
		all = append(all, step{name: fmt.Sprintf("memory, %d requests", n), proxy: p, takes: takes, do: func(ctx context.Context) error {
			m, err := b.memory(ctx, p, o.few, n)
			s.Memory = append(s.Memory, m...)
			return err
		}})
	}
	for round := range o.rounds {
		all = append(all, step{name: "new keys", takes: time.Second, do: b.newRound, further: round > 0})
		for _, w := range workloads(o.quick) {
			for _, p := range turn(b.proxy, round) {
				if p.speaks(w) && p.shows(w) {
					all = append(all, step{name: w.name(), proxy: p, takes: o.duration + 200*time.Millisecond, do: func(ctx context.Context) error {
						return b.measure(ctx, s, round, w, p, o.duration)
					}, further: round > 0})
				}
			}
		}
		for _, x := range paces(o.quick) {
			for _, p := range turn(b.proxy, round) {
				if p.speaks(x.workload) && (!p.reference() || x == paces(true)[0]) {
					d := o.paced
					all = append(all, step{name: x.name(), proxy: p, takes: d + 100*time.Millisecond, do: func(ctx context.Context) error {
						return b.pace(ctx, s, round, x, p, d)
					}, further: round > 0})
				}
			}
		}
	}
	for _, w := range []workload{{shape: shapeGet, connections: 8}, {shape: shapeUnary, connections: 8}} {
		for _, p := range between {
			if c != nil && p.speaks(w) {
				all = append(all, step{name: "system calls, " + w.name(), proxy: p, takes: 2 * time.Second, do: func(ctx context.Context) error {
					n, err := b.syscalls(ctx, c, w, p)
					if err == nil {
						s.Syscalls = append(s.Syscalls, *n)
					}
					return err
				}})
			}
		}
	}
	for _, p := range between {
		if p.name == tfiproxyName {
			all = append(all, step{name: "allocations", proxy: p, takes: 10 * time.Second, do: func(ctx context.Context) (err error) {
				s.Allocations, err = b.allocations(ctx, o.profiled)
				return err
			}})
		}
		if b.idle > 0 {
			all = append(all, step{name: fmt.Sprintf("memory, %d idle connections", b.idle), proxy: p, takes: heldSettles*b.settle + 5*time.Second, do: func(ctx context.Context) error {
				m, err := b.held(ctx, p, b.idle)
				if err == nil {
					s.Memory = append(s.Memory, m)
				}
				return err
			}})
		}
	}
	return all
}

// turn begins a list with another element each time.
func turn[T any](all []T, n int) []T {
	n %= len(all)
	return append(append([]T{}, all[n:]...), all[:n]...)
}

// measure runs a workload at a proxy and takes down what it cost.
func (b *bed) measure(ctx context.Context, s *summary, round int, w workload, p *proxy, d time.Duration) error {
	var a answered
	c, err := b.cost(ctx, w, p, func() (err error) {
		a, err = b.closed(ctx, w, p, d)
		return err
	})
	if err != nil {
		return err
	}
	s.Samples = append(s.Samples, sample{
		what: w, Round: round, Proxy: p.name, Requests: a.requests,
		Rate: float64(a.requests) / a.seconds, CPUMicros: float64(c.cpu) / 1e3 / float64(a.requests), Busy: c.cpu.Seconds() / c.took.Seconds(),
		Kernel: c.kernel, PeakRSS: c.peak,
	})
	return nil
}

// pace does the same at a fixed rate, and takes down latencies.
func (b *bed) pace(ctx context.Context, s *summary, round int, x pace, p *proxy, d time.Duration) error {
	var r *loadResult
	c, err := b.cost(ctx, x.workload, p, func() (err error) {
		r, err = b.generate(ctx, x.workload, p, x.rate, d)
		return err
	})
	if err != nil {
		return err
	}
	s.Latencies = append(s.Latencies, latency{
		what: x, Round: round, Proxy: p.name, Requests: r.Requests, CPUMicros: float64(c.cpu) / 1e3 / float64(r.Requests),
		P50: r.P50, P99: r.P99, P999: r.P999, Max: r.Max,
	})
	return nil
}

// cost is what something cost a proxy's process.
type cost struct {
	cpu, took time.Duration
	kernel    float64 // share of it in the kernel
	peak      int64   // RSS
}

// cost measures what f costs a proxy; without a process, nothing. Traffic that is
// to be reported must be: else it is ordinary, and its cost would mean nothing.
func (b *bed) cost(ctx context.Context, w workload, p *proxy, f func() error) (c cost, err error) {
	if w.traffic != ordinary {
		b.keys.run++
		id := b.keys.traceID(w.traffic)
		if _, err := ask(ctx, http.MethodPut, "http://"+b.collector, id[:]); err != nil {
			return c, err
		}
	}
	end := func(*cost) error { return nil }
	if p.pid != 0 {
		if end, err = p.begin(); err != nil {
			return c, err
		}
	}
	begun := time.Now()
	if err := f(); err != nil {
		return c, err
	}
	c.took = time.Since(begun)
	if err := end(&c); err != nil {
		return c, err
	}
	if w.traffic != ordinary {
		err = b.reported(ctx)
	}
	return c, err
}

// begin reads a proxy's meters; what it returns reads them again.
func (p *proxy) begin() (end func(*cost) error, err error) {
	if err := resetPeak(p.pid); err != nil {
		return nil, err
	}
	user, kernel, err := ticks(p.pid)
	if err != nil {
		return nil, err
	}
	cpu, err := cpuTime(p.pid)
	return func(c *cost) error {
		now, err := cpuTime(p.pid)
		if err != nil {
			return err
		}
		c.cpu = now - cpu
		u, k, err := ticks(p.pid)
		if err != nil {
			return err
		}
		if all := u - user + k - kernel; all > 0 {
			c.kernel = float64(k-kernel) / float64(all)
		}
		c.peak, err = peakOf(p.pid)
		return err
	}, err
}

var errUnreported = errors.New("no request was reported: the sidecar does not know the trial")

// reported waits until the trace of this measurement has reached the collector.
func (b *bed) reported(ctx context.Context) error {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		n, err := ask(ctx, http.MethodGet, "http://"+b.collector, nil)
		if err != nil {
			return err
		}
		if string(n) != "0" {
			return nil
		}
	}
	return errUnreported
}
