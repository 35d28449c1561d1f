package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// write writes what was measured, however little that is. Each file is replaced in
// one step: who is killed meanwhile leaves the one before.
func (s *summary) write(dir string) error {
	s.Machine.LoadAt[1], s.Seconds = loadAverage(), time.Since(s.begun).Seconds()
	s.Results, s.Targets = s.results(), s.targets()
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		replace(filepath.Join(dir, "summary.json"), append(b, '\n')),
		replace(filepath.Join(dir, "table.md"), []byte(s.markdown())),
		s.writeSamples(filepath.Join(dir, "samples.csv")),
		s.writeLatencies(filepath.Join(dir, "latency.csv")),
		s.writeMemory(filepath.Join(dir, "memory.csv")),
	)
}

func writeCSV(file string, rows [][]string) error {
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		return err
	}
	return replace(file, b.Bytes())
}

func replace(file string, text []byte) error {
	part := file + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, file)
}

func (s *summary) writeSamples(file string) error {
	rows := [][]string{{"round", "workload", "name", "proxy", "requests", "requests_per_second", "cpu_us_per_request", "busy", "kernel", "peak_rss_bytes"}}
	for _, x := range s.Samples {
		rows = append(rows, []string{
			strconv.Itoa(x.Round), x.what.id(), x.what.name(), x.Proxy, strconv.Itoa(x.Requests),
			number(x.Rate, 0), number(x.CPUMicros, 3), number(x.Busy, 3), number(x.Kernel, 2), strconv.FormatInt(x.PeakRSS, 10),
		})
	}
	return writeCSV(file, rows)
}

func (s *summary) writeLatencies(file string) error {
	rows := [][]string{{"round", "workload", "name", "proxy", "requests", "cpu_us_per_request", "p50_us", "p99_us", "p999_us", "max_us"}}
	for _, x := range s.Latencies {
		rows = append(rows, []string{
			strconv.Itoa(x.Round), x.what.id(), x.what.name(), x.Proxy, strconv.Itoa(x.Requests),
			number(x.CPUMicros, 3), number(x.P50, 1), number(x.P99, 1), number(x.P999, 1), number(x.Max, 1),
		})
	}
	return writeCSV(file, rows)
}

func (s *summary) writeMemory(file string) error {
	rows := [][]string{{"proxy", "when", "requests", "connections_held", "rss_bytes", "pss_bytes"}}
	for _, x := range s.Memory {
		rows = append(rows, []string{
			x.Proxy, x.When, strconv.Itoa(x.Requests), strconv.Itoa(x.Held),
			strconv.FormatInt(x.RSS, 10), strconv.FormatInt(x.PSS, 10),
		})
	}
	return writeCSV(file, rows)
}

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// markdown is the report for people. Its tables are aligned, so that a terminal
// can show them as they are.
func (s *summary) markdown() string {
	var b strings.Builder
	m := s.Machine
	fmt.Fprintf(&b, "# What a sidecar costs\n\n%s, %d CPUs, Linux %s, %s; load average %s before, %s after.\n", m.CPU, m.CPUs, m.Kernel, m.Go, m.LoadAt[0], m.LoadAt[1])
	pinned := "nothing is pinned"
	if m.Pinned {
		pinned = "proxies on one CPU, all else on the others"
	}
	fmt.Fprintf(&b, "One worker each, %s; medians of up to %d interleaved rounds, %v s a measurement, %v s at a fixed rate.\n", pinned, s.Rounds, s.Measured, s.Paced)
	for _, name := range columns(s.Results) {
		if v := m.Versions[name]; v != "" {
			fmt.Fprintf(&b, "%s: %s. ", name, v)
		}
	}
	b.WriteString("\n")
	if s.Interrupted {
		b.WriteString("\n**Not finished: only what was measured until then.**\n")
	}
	b.WriteString("\n## Targets of TFIProxy\n\n")
	b.WriteString(s.targetTable())
	closed, open := s.split()
	for _, t := range []struct {
		title string
		cell  func(result) string
	}{
		{"CPU-µs of the proxy, a request", func(r result) string { return number(r.CPUMicros, 1) }},
		{"Requests a second, as fast as they are answered", func(r result) string { return number(r.Rate, 0) }},
		{"Share of its CPU that the proxy used meanwhile (1: it was the bottleneck)", func(r result) string { return number(r.Busy, 2) }},
		{"Share of the kernel in that", func(r result) string { return number(r.Kernel, 2) }},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s", t.title, pivot(closed, t.cell))
	}
	for _, t := range []struct {
		title string
		cell  func(result) string
	}{
		{"p50 / p99 / p99.9 latency at a fixed rate, µs", func(r result) string {
			return number(r.P50, 0) + " / " + number(r.P99, 0) + " / " + number(r.P999, 0)
		}},
		{"CPU-µs of the proxy, a request, at that rate", func(r result) string { return number(r.CPUMicros, 1) }},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s", t.title, pivot(open, t.cell))
	}
	b.WriteString(s.memoryTable())
	b.WriteString(s.smallTables())
	for _, list := range []struct {
		title string
		lines []string
	}{{"Left out", s.LeftOut}, {"What failed", s.Problems}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n- %s\n", list.title, strings.Join(list.lines, "\n- "))
		}
	}
	return b.String()
}

func (s *summary) split() (closed, open []result) {
	for _, r := range s.Results {
		if r.P50 > 0 {
			open = append(open, r)
		} else {
			closed = append(closed, r)
		}
	}
	return closed, open
}

func (s *summary) targetTable() string {
	rows := [][]string{{"", "aim", "measured", "", "worst case"}}
	for _, t := range s.Targets {
		value, met := "-", "not measured"
		if t.Value != nil {
			value, met = number(*t.Value, 2), "missed"
			if t.Met {
				met = "met"
			}
		}
		where := t.Where
		if t.Note != "" {
			where = strings.TrimPrefix(where+"; "+t.Note, "; ")
		}
		rows = append(rows, []string{t.Name, "≤ " + strconv.FormatFloat(t.Bound, 'g', -1, 64), value, met, where})
	}
	return tabulate(rows)
}

// pivot makes a table with a row a workload and a column a proxy, without those
// that have nothing to say: direct requests have no proxy that costs anything.
func pivot(all []result, cell func(result) string) string {
	text := func(r result) string {
		t := cell(r)
		if strings.Trim(t, "0./ ") == "" {
			return ""
		}
		return t
	}
	names := columns(slices.DeleteFunc(slices.Clone(all), func(r result) bool { return text(r) == "" }))
	rows := [][]string{append([]string{""}, names...)}
	at := map[string]int{}
	for _, r := range all {
		column := 1 + slices.Index(names, r.Proxy)
		if column == 0 {
			continue
		}
		i, ok := at[r.Workload]
		if !ok {
			i = len(rows)
			at[r.Workload] = i
			rows = append(rows, append([]string{r.Name}, make([]string, len(names))...))
		}
		rows[i][column] = text(r)
	}
	return tabulate(rows)
}

func (s *summary) memoryTable() string {
	if len(s.Memory) == 0 {
		return ""
	}
	rows := [][]string{{""}}
	at := map[string]int{}
	for _, m := range s.Memory {
		title := m.When
		switch {
		case m.Held > 0:
			title = fmt.Sprintf("%d idle connections", m.Held)
		case m.When == whenLoaded:
			title = fmt.Sprintf("peak, %d connections", loadConnections)
		case m.Requests > 0:
			title = fmt.Sprintf("after %d requests", m.Requests)
		}
		column := slices.Index(rows[0], title)
		if column < 0 {
			column = len(rows[0])
			rows[0] = append(rows[0], title)
		}
		i, ok := at[m.Proxy]
		if !ok {
			i = len(rows)
			at[m.Proxy] = i
			rows = append(rows, []string{m.Proxy})
		}
		for len(rows[i]) <= column {
			rows[i] = append(rows[i], "")
		}
		rows[i][column] = number(float64(m.RSS)/mib, 1)
		if m.PSS > 0 {
			rows[i][column] += " / " + number(float64(m.PSS)/mib, 1)
		}
	}
	return "\n## Memory, MiB: RSS / PSS\n\n" + tabulate(rows)
}

func (s *summary) smallTables() string {
	var b strings.Builder
	if len(s.Syscalls) > 0 {
		var all []result
		for _, c := range s.Syscalls {
			all = append(all, result{Workload: c.Workload, Name: c.Workload, Proxy: c.Proxy, CPUMicros: c.PerRequest})
		}
		fmt.Fprintf(&b, "\n## System calls a request (counted by %s)\n\n%s", s.SyscallsBy, pivot(all, func(r result) string { return number(r.CPUMicros, 2) }))
	}
	if len(s.Allocations) > 0 {
		rows := [][]string{{"", "objects"}}
		for _, a := range s.Allocations {
			rows = append(rows, []string{a.Workload, number(a.PerRequest, 4)})
		}
		b.WriteString("\n## Objects that TFIProxy allocates for a request\n\n" + tabulate(rows))
	}
	return b.String()
}

// tabulate makes an aligned Markdown table; its first row is the heading.
func tabulate(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	line := func(r []string) {
		for i, w := range width {
			text := ""
			if i < len(r) {
				text = r[i]
			}
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(text))
			if i == 0 || strings.ContainsAny(text, "abcdefghijklmnopqrstuvwxyz") {
				text += pad
			} else {
				text = pad + text
			}
			b.WriteString("| " + text + " ")
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for _, w := range width {
		b.WriteString("|" + strings.Repeat("-", w+2))
	}
	b.WriteString("|\n")
	for _, r := range rows[1:] {
		line(r)
	}
	return b.String()
}
