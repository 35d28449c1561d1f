package main

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write golden files")

// fixture is a run of two rounds, the second of which was disturbed.
func fixture() *summary {
	s := &summary{Rounds: 2, Measured: 1, Paced: 4, LeftOut: []string{"fasthttp: not found"}, Problems: []string{"envoy: x: reset"}, SyscallsBy: "perf"}
	s.Machine = machine{CPU: "Some CPU", CPUs: 2, Kernel: "6.1", Go: "go1.26", Pinned: true, LoadAt: [2]string{"0 0 0", "1 1 1"}, Versions: map[string]string{nginxName: "nginx/1.22.1"}}
	for round, factor := range []float64{1, 3} {
		add := func(w workload, name string, cpu float64) {
			s.Samples = append(s.Samples, sample{what: w, Round: round, Proxy: name, Requests: 1000, Rate: 1e6 / cpu / factor, CPUMicros: cpu * factor, Busy: 0.5, Kernel: 0.75, PeakRSS: 9 * mib})
		}
		for _, sh := range []shape{shapeGet, shapeUnary} {
			w := workload{shape: sh, connections: 8}
			for name, cpu := range map[string]float64{pumpName: 9, tfiproxyName: 10, nginxName: 10, haproxyName: 8, envoyName: 50} {
				add(w, name, cpu)
			}
			w.traffic = trial
			add(w, tfiproxyName, 12)
		}
		add(workload{shape: shapeGet, connections: 8, bytes: 64 << 10}, tfiproxyName, 30)
		add(workload{shape: shapeGet, connections: 8, bytes: 64 << 10}, nginxName, 20)
		x := pace{workload{shape: shapeGet, connections: 16}, 2000}
		for name, p50 := range map[string]float64{direct: 50, tfiproxyName: 80, nginxName: 90, envoyName: 150} {
			s.Latencies = append(s.Latencies, latency{what: x, Round: round, Proxy: name, Requests: 100, CPUMicros: 5, P50: p50 * factor, P99: 2 * p50 * factor, P999: 3 * p50 * factor})
		}
	}
	s.Memory = []memory{
		{Proxy: tfiproxyName, When: whenIdle, RSS: 5 * mib, PSS: 4 * mib},
		{Proxy: nginxName, When: whenIdle, RSS: 7 * mib, PSS: 6 * mib},
		{Proxy: tfiproxyName, When: whenFew, Requests: wholeFew, RSS: 8 * mib, PSS: 8 * mib},
		{Proxy: tfiproxyName, When: whenMany, Requests: wholeMany, RSS: 10 * mib, PSS: 10 * mib},
		{Proxy: tfiproxyName, When: whenLoaded, Requests: wholeMany, RSS: 11 * mib},
		{Proxy: tfiproxyName, When: whenHeld, Held: 5000, RSS: 30 * mib, PSS: 30 * mib},
	}
	s.Allocations = []allocated{
		{Workload: workload{shape: shapeGet, connections: 8}.name(), Requests: 1000, PerRequest: 0.001},
		{Workload: workload{shape: shapeGet, connections: 8, traffic: trial}.name(), Requests: 1000, PerRequest: 2.5},
	}
	s.Syscalls = []syscallCount{{Workload: "HTTP/1.1", Proxy: nginxName, PerRequest: 5.5}}
	return s
}

func TestTargets(t *testing.T) {
	type want struct {
		value float64 // negative: not measured
		met   bool
	}
	s := fixture()
	got := s.targets()
	for i, w := range []want{
		{1, true},     // nginx
		{1.25, false}, // HAProxy
		{0.2, true},   // Envoy
		{1.5, false},  // large
		{-1, false},   // uploads
		{1, true},
		{0.2, true},
		{-1, false}, // large gRPC
		{-1, false}, // its uploads
		{1.2, true}, // a trial's
		{1.2, true},
		{5, true}, // memory
		{11, true},
		{1.25, false},
		{55, true}, // 5 and twice 25
		{0.001, true},
		{2.5, false},
		{0.3, true},   // 30 of 100 µs
		{0.889, true}, // 80 of 90
		{-1, false},
		{-1, false},
	} {
		if i >= len(got) {
			t.Fatalf("%d targets", len(got))
		}
		g := got[i]
		if w.value < 0 {
			if g.Value != nil || g.Met {
				t.Errorf("%s: %v, want none", g.Name, g.Value)
			}
			continue
		}
		if g.Value == nil || *g.Value != w.value || g.Met != w.met {
			t.Errorf("%s: %+v, want %+v", g.Name, g, w)
			if g.Value != nil {
				t.Errorf("  value %v", *g.Value)
			}
		}
	}
}

// TestTargetsOfNothing: what was not measured is not met.
func TestTargetsOfNothing(t *testing.T) {
	for _, g := range (&summary{}).targets() {
		if g.Value != nil || g.Met {
			t.Errorf("%s: %+v", g.Name, g)
		}
	}
}

// TestRatioIsPaired: a round that one proxy missed does not count for the other.
func TestRatioIsPaired(t *testing.T) {
	s, w := &summary{}, workload{shape: shapeGet, connections: 8}
	for i, cpu := range []float64{10, 10, 1000, 1000} {
		s.Samples = append(s.Samples, sample{what: w, Round: i, Proxy: tfiproxyName, CPUMicros: cpu})
		if i < 2 {
			s.Samples = append(s.Samples, sample{what: w, Round: i, Proxy: nginxName, CPUMicros: 20})
		}
	}
	if r := s.ratios(tfiproxyName, nginxName)[w]; r != 0.5 {
		t.Errorf("ratio %v, want 0.5", r)
	}
}

// TestLatencyIsPaired: a round that was slow for all tells nothing about one of them.
func TestLatencyIsPaired(t *testing.T) {
	s := &summary{Rounds: 3}
	x := pace{workload{shape: shapeGet, connections: 16}, 2000}
	for round, slower := range []float64{0, 1000, 0} {
		for name, p50 := range map[string]float64{direct: 50, tfiproxyName: 80, nginxName: 90, envoyName: 150} {
			if round == 2 && name != tfiproxyName {
				continue // they failed
			}
			s.Latencies = append(s.Latencies, latency{what: x, Round: round, Proxy: name, P50: p50 + slower, P99: 2 * (p50 + slower)})
		}
	}
	for i, want := range []float64{0.3, 0.94} { // the latter is between 80/90 and 1080/1090
		got := s.latencyTargets()[i]
		if got.Value == nil || math.Abs(*got.Value-want) > 0.01 {
			t.Errorf("%s: %+v, want %v", got.Name, got, want)
		}
	}
}

// TestNoNumber: JSON has no infinity, so one would lose the whole report.
func TestNoNumber(t *testing.T) {
	s := fixture()
	for i := range s.Latencies {
		s.Latencies[i].P99 = 0
	}
	for i := range s.Memory {
		if s.Memory[i].When == whenFew {
			s.Memory[i].RSS = 0
		}
	}
	if err := s.write(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestReportGolden(t *testing.T) {
	s := fixture()
	s.Results, s.Targets = s.results(), s.targets()
	got := []byte(s.markdown())
	file := filepath.Join("testdata", "table.md")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v: %v", c.v, got)
		}
	}
}
