package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// target is an aim of the native sidecar, and whether it is met.
type target struct {
	Name  string   `json:"name"`
	Bound float64  `json:"bound"`
	Value *float64 `json:"value"` // nil: not measured
	Met   bool     `json:"met"`
	Where string   `json:"where,omitempty"` // the worst of several cases
	Note  string   `json:"note,omitempty"`
}

// worst is the largest value of several cases.
type worst struct {
	value float64
	where string
	n     int
}

func (w *worst) add(value float64, where string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return // JSON has neither, and nothing follows from it
	}
	if w.n == 0 || value > w.value {
		w.value, w.where = value, where
	}
	w.n++
}

func (w *worst) target(name string, bound float64, note string) target {
	t := target{Name: name, Bound: bound, Where: w.where, Note: note}
	if w.n > 0 {
		v := math.Round(w.value*1000) / 1000
		t.Value, t.Met = &v, w.value <= bound
	}
	return t
}

// ratios of the CPU that proxies a and b take for a request, by workload: the median
// over the rounds in which both were measured, so that what disturbed a round disturbed
// both.
func (s *summary) ratios(a, b string) map[workload]float64 {
	type at struct {
		workload workload
		round    int
	}
	other := map[at]float64{}
	for _, x := range s.Samples {
		if x.Proxy == b {
			other[at{x.what, x.Round}] = x.CPUMicros
		}
	}
	all := map[workload][]float64{}
	for _, x := range s.Samples {
		if y := other[at{x.what, x.Round}]; x.Proxy == a && y > 0 {
			all[x.what] = append(all[x.what], x.CPUMicros/y)
		}
	}
	medians := map[workload]float64{}
	for w, r := range all {
		medians[w] = median(r)
	}
	return medians
}

// cpuTarget compares TFIProxy's CPU with another's, and tells where the byte pump
// stands in the same case: that is the floor.
func (s *summary) cpuTarget(name, other string, bound float64, of func(workload) bool) target {
	own, floor := s.ratios(tfiproxyName, other), s.ratios(pumpName, other)
	w, note := &worst{}, ""
	for _, r := range s.results() { // in their order, of which the first counts
		if v, ok := own[r.what]; ok && r.P50 == 0 && r.what.traffic == ordinary && of(r.what) {
			if w.n == 0 || v > w.value {
				note = ""
				if f, ok := floor[r.what]; ok {
					note = fmt.Sprintf("the byte pump: %.2f", f)
				}
			}
			w.add(v, r.Name)
		}
	}
	return w.target(name, bound, note)
}

// within compares two workloads at TFIProxy, round by round.
func (s *summary) within(a, b workload) *worst {
	byRound := map[int]float64{}
	for _, x := range s.Samples {
		if x.Proxy == tfiproxyName && x.what == b {
			byRound[x.Round] = x.CPUMicros
		}
	}
	var ratios []float64
	for _, x := range s.Samples {
		if y := byRound[x.Round]; x.Proxy == tfiproxyName && x.what == a && y > 0 {
			ratios = append(ratios, x.CPUMicros/y)
		}
	}
	w := &worst{}
	if len(ratios) > 0 {
		w.add(median(ratios), a.name())
	}
	return w
}

// targets judges what was measured.
func (s *summary) targets() []target {
	of := func(sh shape, from, to int) func(workload) bool {
		return func(w workload) bool { return w.shape == sh && w.bytes >= from && w.bytes <= to }
	}
	small, large := of(shapeGet, 0, 1<<10), of(shapeGet, 64<<10, math.MaxInt)
	unary, largeUnary := of(shapeUnary, 0, 1<<10), of(shapeUnary, 64<<10, math.MaxInt)
	all := []target{
		s.cpuTarget("CPU of an HTTP/1.1 request up to 1 KiB, of nginx's", nginxName, 1.05, small),
		s.cpuTarget("CPU of an HTTP/1.1 request up to 1 KiB, of HAProxy's", haproxyName, 1, small),
		s.cpuTarget("CPU of an HTTP/1.1 request up to 1 KiB, of bare Envoy's", envoyName, 0.25, small),
		s.cpuTarget("CPU of an HTTP/1.1 request of 64 KiB or more, of nginx's", nginxName, 1, large),
		s.cpuTarget("CPU of an HTTP/1.1 upload of 64 KiB or more, of nginx's", nginxName, 1, of(shapePost, 64<<10, math.MaxInt)),
		s.cpuTarget("CPU of a gRPC unary request up to 1 KiB, of nginx's", nginxName, 1, unary),
		s.cpuTarget("CPU of a gRPC unary request up to 1 KiB, of bare Envoy's", envoyName, 0.33, unary),
		s.cpuTarget("CPU of a gRPC unary request of 64 KiB or more, of nginx's", nginxName, 1, largeUnary),
		s.cpuTarget("CPU of a gRPC upload of 64 KiB or more, of nginx's", nginxName, 1, of(shapeSend, 64<<10, math.MaxInt)),
	}
	for _, sh := range []shape{shapeGet, shapeUnary} {
		w := &worst{}
		for _, c := range connectionCounts {
			x := s.within(workload{shape: sh, connections: c, traffic: trial}, workload{shape: sh, connections: c})
			if x.n > 0 {
				w.add(x.value, x.where)
			}
		}
		all = append(all, w.target(fmt.Sprintf("CPU of a trial's request, of an ordinary one's (%s)", protocol(sh)), 1.3, "everything on: evidence, guards, reports"))
	}
	all = append(all, s.memoryTargets()...)
	all = append(all, s.allocationTargets()...)
	return append(all, s.latencyTargets()...)
}

func protocol(s shape) string {
	if s.grpc() {
		return "gRPC unary"
	}
	return "HTTP/1.1"
}

const mib = 1 << 20

func (s *summary) memoryTargets() []target {
	var idle, loaded, growth, held worst
	var few, base float64
	note := ""
	for _, m := range s.Memory {
		if m.Proxy != tfiproxyName {
			continue
		}
		rss := float64(m.RSS) / mib
		switch m.When {
		case whenIdle:
			idle.add(rss, "")
			base = rss
		case whenFew:
			few = rss
		case whenMany:
			if m.Requests >= wholeMany {
				growth.add(rss/few, fmt.Sprintf("%.1f after %.1f MiB", rss, few))
			}
		case whenLoaded:
			loaded.add(rss, fmt.Sprintf("HTTP/1.1, 0 B, %d conn", loadConnections))
		case whenHeld:
			if m.Held < wholeIdle/2 {
				continue // too few to reckon from
			}
			held.add(base+(rss-base)*wholeIdle/float64(m.Held), "")
			if m.Held != wholeIdle {
				note = fmt.Sprintf("reckoned from %d, for a process may have no more descriptors here", m.Held)
			}
		}
	}
	for _, x := range s.Samples {
		if x.Proxy == tfiproxyName && x.what.connections == loadConnections {
			loaded.add(float64(x.PeakRSS)/mib, x.what.name())
		}
	}
	return []target{
		idle.target("RSS idle, MiB", 6, ""),
		loaded.target("RSS under 64 connections of load, MiB", 12, "its peak"),
		growth.target("RSS after 1,000,000 requests, of that after 10,000", 1.1, ""),
		held.target("RSS with 10,000 idle connections, MiB", 60, note),
	}
}

func (s *summary) allocationTargets() []target {
	var none, two worst
	for _, a := range s.Allocations {
		if strings.HasSuffix(a.Workload, "a trial's") {
			two.add(a.PerRequest, a.Workload)
		} else {
			none.add(a.PerRequest, a.Workload)
		}
	}
	return []target{
		none.target("objects allocated for a request of no trial", 0.005, "none: connections and clocks allocate a few"),
		two.target("objects allocated for a trial's request", 2, ""),
	}
}

// latencyTargets compare what a proxy adds to direct requests, and the slowest
// requests; each is the median over the rounds of ratios within a round.
func (s *summary) latencyTargets() (all []target) {
	type at struct {
		pace  pace
		round int
	}
	by := map[string]map[at]latency{}
	var order []pace
	for _, x := range s.Latencies {
		if by[x.Proxy] == nil {
			by[x.Proxy] = map[at]latency{}
		}
		by[x.Proxy][at{x.what, x.Round}] = x
		if x.what.traffic == ordinary && !slices.Contains(order, x.what) {
			order = append(order, x.what)
		}
	}
	for _, sh := range []shape{shapeGet, shapeUnary} {
		var added, p99 worst
		for _, x := range order {
			if x.shape != sh {
				continue
			}
			var adds, p99s []float64
			for round := range s.Rounds {
				k := at{x, round}
				own, ok := by[tfiproxyName][k]
				if !ok {
					continue
				}
				base, known := by[direct][k]
				if e, ok := by[envoyName][k]; ok && known && e.P50 > base.P50 {
					adds = append(adds, (own.P50-base.P50)/(e.P50-base.P50))
				}
				if n, ok := by[nginxName][k]; ok {
					p99s = append(p99s, own.P99/n.P99)
				}
			}
			if len(adds) > 0 {
				added.add(median(adds), x.name())
			}
			if len(p99s) > 0 {
				p99.add(median(p99s), x.name())
			}
		}
		all = append(
			all,
			added.target(fmt.Sprintf("added p50 latency, of what bare Envoy adds (%s)", protocol(sh)), 0.35, ""),
			p99.target(fmt.Sprintf("p99 latency, of nginx's (%s)", protocol(sh)), 1, ""),
		)
	}
	return all
}
