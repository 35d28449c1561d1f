package main

import (
	"fmt"
	"math"
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
	if w.n == 0 || value > w.value {
		w.value, w.where = value, where
	}
	w.n++
}

func (w *worst) target(name string, bound float64, note string) target {
	t := target{Name: name, Bound: bound, Where: w.where, Note: note}
	if w.n > 0 {
		v := math.Round(w.value*1000) / 1000
		t.Value, t.Met = &v, v <= bound
	}
	return t
}

// cpuRatio is the CPU that TFIProxy takes for a request, of another's: the median over
// the rounds in which both were measured, so that what disturbed a round disturbed both.
func (s *summary) cpuRatio(b string, of func(workload string) bool) *worst {
	type at struct {
		workload string
		round    int
	}
	other := map[at]float64{}
	for _, x := range s.Samples {
		if x.Proxy == b {
			other[at{x.Workload, x.Round}] = x.CPUMicros
		}
	}
	ratios, names := map[string][]float64{}, map[string]string{}
	var order []string
	for _, x := range s.Samples {
		if y := other[at{x.Workload, x.Round}]; x.Proxy == tfiproxyName && y > 0 && of(x.Workload) {
			if ratios[x.Workload] == nil {
				order = append(order, x.Workload)
			}
			ratios[x.Workload], names[x.Workload] = append(ratios[x.Workload], x.CPUMicros/y), x.Name
		}
	}
	w := &worst{}
	for _, id := range order {
		w.add(median(ratios[id]), names[id])
	}
	return w
}

// within compares two workloads at TFIProxy, round by round.
func (s *summary) within(a, b workload) *worst {
	byRound := map[int]float64{}
	for _, x := range s.Samples {
		if x.Proxy == tfiproxyName && x.Workload == b.id() {
			byRound[x.Round] = x.CPUMicros
		}
	}
	var ratios []float64
	for _, x := range s.Samples {
		if y := byRound[x.Round]; x.Proxy == tfiproxyName && x.Workload == a.id() && y > 0 {
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
	small := func(w string) bool {
		return strings.HasPrefix(w, "get-0-") && !judged(w) || strings.HasPrefix(w, "get-1024-")
	}
	large := func(w string) bool { return strings.HasPrefix(w, "get-") && !small(w) && !judged(w) }
	unary := func(w string) bool { return strings.HasPrefix(w, "unary-0-") && !judged(w) }
	all := []target{
		s.cpuRatio(nginxName, small).target("CPU of an HTTP/1.1 request, of nginx's", 1.05, "up to 1 KiB"),
		s.cpuRatio(haproxyName, small).target("CPU of an HTTP/1.1 request, of HAProxy's", 1, "up to 1 KiB"),
		s.cpuRatio(envoyName, small).target("CPU of an HTTP/1.1 request, of bare Envoy's", 0.25, "up to 1 KiB"),
		s.cpuRatio(nginxName, large).target("CPU of an HTTP/1.1 request of 64 KiB or more, of nginx's", 1, ""),
		s.cpuRatio(nginxName, unary).target("CPU of a gRPC unary request, of nginx's", 1, ""),
		s.cpuRatio(envoyName, unary).target("CPU of a gRPC unary request, of bare Envoy's", 0.33, ""),
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

// judged tells the ids of a trial's or a recording's workloads.
func judged(id string) bool {
	return strings.Contains(id, "-"+string(trial)) || strings.Contains(id, "-"+string(recording))
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
			held.add(base+(rss-base)*wholeIdle/float64(m.Held), "")
			if m.Held != wholeIdle {
				note = fmt.Sprintf("reckoned from %d, for a process may have no more descriptors here", m.Held)
			}
		}
	}
	for _, x := range s.Samples {
		if x.Proxy == tfiproxyName && strings.Contains(x.Workload+"-", fmt.Sprintf("-c%d-", loadConnections)) {
			loaded.add(float64(x.PeakRSS)/mib, x.Name)
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

// latencyTargets compare what a proxy adds to direct requests.
func (s *summary) latencyTargets() (all []target) {
	medians := map[key]result{}
	var ids []string
	for _, r := range s.results() {
		if r.P50 > 0 {
			if _, ok := medians[key{r.Workload, direct}]; !ok && r.Proxy == direct && !judged(r.Workload) {
				ids = append(ids, r.Workload)
			}
			medians[key{r.Workload, r.Proxy}] = r
		}
	}
	for _, sh := range []shape{shapeGet, shapeUnary} {
		var added, p99 worst
		for _, id := range ids {
			own, ok := medians[key{id, tfiproxyName}]
			if !ok || !strings.HasPrefix(id, string(sh)+"-") {
				continue
			}
			base := medians[key{id, direct}].P50
			if e, ok := medians[key{id, envoyName}]; ok && e.P50 > base {
				added.add((own.P50-base)/(e.P50-base), own.Name)
			}
			if n, ok := medians[key{id, nginxName}]; ok {
				p99.add(own.P99/n.P99, own.Name)
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
