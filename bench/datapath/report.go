package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy"
)

// summary is what summary.json has.
type summary struct {
	Go       string        `json:"go"`
	CPUs     int           `json:"cpus"`
	Pinned   bool          `json:"pinned"`
	Rounds   int           `json:"rounds"`
	Duration time.Duration `json:"duration_ns"`
	Rate     int           `json:"open_loop_rate"`
	Results  []*result     `json:"results"`
	Latency  []*latency    `json:"latency"`
	Memory   []memory      `json:"memory"`
}

// result is one workload at one proxy.
type result struct {
	Workload  string    `json:"workload"`
	Proxy     string    `json:"proxy"`
	CPUMicros []float64 `json:"cpu_us_per_request"` // by round
	Rate      []float64 `json:"requests_per_second"`
	RSSMax    int64     `json:"rss_bytes_max"`
}

// latency holds the quantiles of each round's open loop, in microseconds.
type latency struct {
	Proxy string    `json:"proxy"`
	P50   []float64 `json:"p50_us"`
	P99   []float64 `json:"p99_us"`
	P999  []float64 `json:"p999_us"`
}

type memory struct {
	Proxy string `json:"proxy"`
	When  string `json:"when"`
	RSS   int64  `json:"rss_bytes"`
	PSS   int64  `json:"pss_bytes"`
}

func newSummary(o *options, pinned bool) *summary {
	return &summary{
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Pinned: pinned,
		Rounds: o.rounds, Duration: o.duration, Rate: o.rate,
	}
}

func (s *summary) add(workload, proxy string, cpu, rate float64, rss int64) {
	for _, r := range s.Results {
		if r.Workload == workload && r.Proxy == proxy {
			r.CPUMicros, r.Rate, r.RSSMax = append(r.CPUMicros, cpu), append(r.Rate, rate), max(r.RSSMax, rss)
			return
		}
	}
	s.Results = append(s.Results, &result{
		Workload: workload, Proxy: proxy, CPUMicros: []float64{cpu}, Rate: []float64{rate}, RSSMax: rss,
	})
}

func (s *summary) latency(p *proxy, sorted []time.Duration) {
	at := func(q float64) float64 {
		return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Microseconds())
	}
	i := slices.IndexFunc(s.Latency, func(l *latency) bool { return l.Proxy == p.name })
	if i < 0 {
		i = len(s.Latency)
		s.Latency = append(s.Latency, &latency{Proxy: p.name})
	}
	l := s.Latency[i]
	l.P50, l.P99, l.P999 = append(l.P50, at(0.5)), append(l.P99, at(0.99)), append(l.P999, at(0.999))
}

func (s *summary) memory(p *proxy, when string) error {
	if p.pid == 0 {
		return nil
	}
	u, err := envoy.ReadUsage(p.pid)
	if err != nil {
		return err
	}
	m := memory{Proxy: p.name, When: when, RSS: u.RSS}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "Pss:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return err
			}
			m.PSS = kb << 10
		}
	}
	s.Memory = append(s.Memory, m)
	return nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func (s *summary) write(dir string, stdout io.Writer) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.json"), b, 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "results.csv"))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	_ = w.Write([]string{"workload", "proxy", "cpu_us_per_request", "requests_per_second"}) // Error tells
	for _, r := range s.Results {
		_ = w.Write([]string{r.Workload, r.Proxy, fmt.Sprintf("%.2f", median(r.CPUMicros)), fmt.Sprintf("%.0f", median(r.Rate))})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	table := s.table()
	if err := os.WriteFile(filepath.Join(dir, "table.txt"), []byte(table), 0o644); err != nil {
		return err
	}
	_, err = io.WriteString(stdout, table)
	return err
}

func (s *summary) table() string {
	var proxies, workloads []string
	for _, r := range s.Results {
		if !slices.Contains(proxies, r.Proxy) {
			proxies = append(proxies, r.Proxy)
		}
		if !slices.Contains(workloads, r.Workload) {
			workloads = append(workloads, r.Workload)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs, pinned: %v, one worker each, medians of %d interleaved rounds of %v\n", s.Go, s.CPUs, s.Pinned, s.Rounds, s.Duration)
	for _, what := range []struct {
		title, format string
		of            func(*result) float64
	}{
		{"CPU-µs of the proxy a request", "%12.1f", func(r *result) float64 { return median(r.CPUMicros) }},
		{"requests a second, as fast as they are answered", "%12.0f", func(r *result) float64 { return median(r.Rate) }},
	} {
		fmt.Fprintf(&b, "\n%-48s", what.title)
		for _, p := range proxies {
			fmt.Fprintf(&b, "%12s", p)
		}
		b.WriteByte('\n')
		for _, w := range workloads {
			fmt.Fprintf(&b, "%-48s", w)
			for _, p := range proxies {
				i := slices.IndexFunc(s.Results, func(r *result) bool { return r.Workload == w && r.Proxy == p })
				if i < 0 {
					fmt.Fprintf(&b, "%12s", "-")
					continue
				}
				fmt.Fprintf(&b, what.format, what.of(s.Results[i]))
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "\nlatency at %d requests a second, µs %13s%12s%12s\n", s.Rate, "p50", "p99", "p99.9")
	for _, l := range s.Latency {
		fmt.Fprintf(&b, "%-48s%12.0f%12.0f%12.0f\n", l.Proxy, median(l.P50), median(l.P99), median(l.P999))
	}
	fmt.Fprintf(&b, "\n%-48s%12s%12s\n", "memory, MiB", "RSS", "PSS")
	for _, m := range s.Memory {
		fmt.Fprintf(&b, "%-48s%12.1f%12.1f\n", m.Proxy+", "+m.When, float64(m.RSS)/(1<<20), float64(m.PSS)/(1<<20))
	}
	return b.String()
}
