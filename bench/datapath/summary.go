package main

import (
	"cmp"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// summary is what summary.json has: all that was measured, and what follows.
type summary struct {
	Machine     machine        `json:"machine"`
	Quick       bool           `json:"quick"`
	Rounds      int            `json:"rounds"`
	Measured    float64        `json:"seconds_a_measurement"`
	Paced       float64        `json:"seconds_a_measurement_at_a_fixed_rate"`
	Interrupted bool           `json:"interrupted"` // also while it goes on
	Seconds     float64        `json:"seconds"`
	Targets     []target       `json:"targets"`
	LeftOut     []string       `json:"left_out"` // what this machine lacks, and how to get it
	Problems    []string       `json:"problems"` // what failed
	Results     []result       `json:"results"`  // medians of Samples
	Memory      []memory       `json:"memory"`
	Syscalls    []syscallCount `json:"syscalls"`
	SyscallsBy  string         `json:"syscalls_counted_by"`
	Allocations []allocated    `json:"allocations"`

	Samples   []sample  `json:"-"` // samples.csv
	Latencies []latency `json:"-"` // latency.csv

	begun time.Time
	end   time.Time     // for what may be left out; zero: there is none
	dir   string        // where what there is so far is kept; empty: nowhere
	every time.Duration // how often
}

// machine says where and with what.
type machine struct {
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"`
	Pinned   bool              `json:"pinned"`
	LoadAt   [2]string         `json:"load_average"` // at the beginning and at the end
}

// sample is one measurement of the closed loop.
type sample struct {
	what      workload
	Round     int
	Proxy     string
	Requests  int
	Rate      float64 // requests a second
	CPUMicros float64 // of the proxy, a request
	Busy      float64 // share of its CPU that the proxy used
	Kernel    float64 // share of that CPU time in the kernel
	PeakRSS   int64   // bytes
}

// latency is one measurement of the open loop, in microseconds.
type latency struct {
	what      pace
	Round     int
	Proxy     string
	Requests  int
	CPUMicros float64

	P50, P99, P999, Max float64
}

// result is the median of a workload's samples at a proxy.
type result struct {
	what      workload
	Workload  string  `json:"workload"`
	Name      string  `json:"name"`
	Proxy     string  `json:"proxy"`
	Rounds    int     `json:"rounds"`
	Rate      float64 `json:"requests_per_second,omitempty"`
	CPUMicros float64 `json:"cpu_us_per_request,omitempty"`
	Busy      float64 `json:"busy,omitempty"`
	Kernel    float64 `json:"kernel,omitempty"`
	P50       float64 `json:"p50_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
	P999      float64 `json:"p999_us,omitempty"`
}

func newSummary(o *options) *summary {
	s := &summary{Quick: o.quick, Rounds: o.rounds, Measured: o.duration.Seconds(), Paced: o.paced.Seconds(), Interrupted: true, begun: time.Now()}
	s.Machine = machine{
		CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), Go: runtime.Version(), Versions: map[string]string{},
	}
	if out, err := exec.Command("uname", "-r").Output(); err == nil { //nolint:noctx // at once
		s.Machine.Kernel = strings.TrimSpace(string(out))
	}
	s.Machine.LoadAt[0] = loadAverage()
	return s
}

func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg") // told where there is one
	return strings.Join(strings.Fields(string(b) + " - - -")[:3], " ")
}

// field of a file with lines as `name : value`.
func field(file, name string) string {
	b, _ := os.ReadFile(file) // told where there is one
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// key names a cell of a table.
type key struct{ workload, proxy string }

// results are the medians, in the order in which they were first measured.
func (s *summary) results() []result {
	var order []key
	samples, latencies := map[key][]sample{}, map[key][]latency{}
	for _, x := range s.Samples {
		k := key{x.what.id(), x.Proxy}
		if samples[k] == nil {
			order = append(order, k)
		}
		samples[k] = append(samples[k], x)
	}
	for _, x := range s.Latencies {
		k := key{x.what.id(), x.Proxy}
		if latencies[k] == nil {
			order = append(order, k)
		}
		latencies[k] = append(latencies[k], x)
	}
	all := make([]result, 0, len(order))
	for _, k := range order {
		if x := samples[k]; x != nil {
			all = append(all, result{
				what: x[0].what, Workload: k.workload, Name: x[0].what.name(), Proxy: k.proxy, Rounds: len(x),
				Rate:      of(x, func(x sample) float64 { return x.Rate }),
				CPUMicros: of(x, func(x sample) float64 { return x.CPUMicros }),
				Busy:      of(x, func(x sample) float64 { return x.Busy }),
				Kernel:    of(x, func(x sample) float64 { return x.Kernel }),
			})
			continue
		}
		x := latencies[k]
		all = append(all, result{
			what: x[0].what.workload, Workload: k.workload, Name: x[0].what.name(), Proxy: k.proxy, Rounds: len(x),
			CPUMicros: of(x, func(x latency) float64 { return x.CPUMicros }),
			P50:       of(x, func(x latency) float64 { return x.P50 }),
			P99:       of(x, func(x latency) float64 { return x.P99 }),
			P999:      of(x, func(x latency) float64 { return x.P999 }),
		})
	}
	return all
}

// of is the median of a value.
func of[T any](all []T, value func(T) float64) float64 {
	v := make([]float64, len(all))
	for i, x := range all {
		v[i] = value(x)
	}
	return median(v)
}

// columns are the proxies that have results, in the order of starters.
func columns(all []result) []string {
	var names []string
	for _, r := range all {
		if !slices.Contains(names, r.Proxy) {
			names = append(names, r.Proxy)
		}
	}
	rank := func(name string) int {
		return slices.IndexFunc(starters, func(s starter) bool { return s.name == name }) // direct: -1, first
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}
