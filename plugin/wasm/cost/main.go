// Command cost measures what the filter costs an Envoy, against a bare one beside
// it: CPU a request, memory, and what others feel while the plugin is loaded.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sequencefi/sequencefi/deploy/envoy"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

func doMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "out/bench-envoy", "folder for summary.json and table.txt")
	generations := flags.Int("generations", 6, "times that all Envoys are started anew")
	rounds := flags.Int("rounds", 10, "rounds a generation; each measures every variant once, in turn")
	requests := flags.Int("requests", 1000, "requests a variant and round")
	connections := flags.Int("connections", 8, "connections at once")
	check := flags.Bool("check", false, "fail if a bound is missed")
	instructions := flags.Bool("instructions", false, "count the instructions of ordinary requests instead, with valgrind: the same on a busy machine")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *instructions {
		if err := countInstructions(ctx, stdout); err != nil {
			fmt.Fprintln(stderr, "cost:", err)
			return 1
		}
		return 0
	}
	s, err := measure(ctx, stderr, max(1, *generations), max(1, *rounds), max(1, *requests), max(1, *connections))
	if err == nil {
		err = write(s, *out, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "cost:", err)
		return 1
	}
	if *check && !s.OK {
		fmt.Fprintln(stderr, "cost: a bound is missed")
		return 1
	}
	return 0
}

// write writes the results.
func write(s *summary, dir string, stdout io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.json"), append(b, '\n'), 0o644); err != nil {
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
	var b strings.Builder
	fmt.Fprintf(&b, "Envoy %s, %s, %d cores, 1 worker, %d connections, %d times started anew, %d rounds of %d requests each; medians\n\n",
		envoy.Version, runtime.Version(), runtime.NumCPU(), s.Connections, s.Generations, s.Rounds, s.Requests)
	fmt.Fprintf(&b, "%-44s %12s %22s %13s %8s\n", "", "CPU-µs/req", "on top, paired", "quiet rounds", "bound")
	for _, v := range s.Variants {
		extra, quiet, bound := "", "", ""
		if v.Name != s.Variants[0].Name {
			extra = fmt.Sprintf("%+.1f %% (%+.0f…%+.0f)", v.ExtraPercent, v.ExtraMin, v.ExtraMax)
			quiet = fmt.Sprintf("%+.1f %%", v.QuietPercent)
		}
		if v.BoundPercent > 0 {
			bound = fmt.Sprintf("+%.0f %%", v.BoundPercent)
		}
		fmt.Fprintf(&b, "%-44s %12.1f %22s %13s %8s\n", v.Name, v.CPUMicros, extra, quiet, bound)
	}
	fmt.Fprintf(&b, "\n%-44s %12s\n", "", "RSS, MB")
	for _, m := range s.Memory {
		fmt.Fprintf(&b, "%-44s %12.1f\n", m.Name, m.MB)
	}
	fmt.Fprintf(&b, "\nOther requests while the plugin is loaded for the first time (%.1f s): p50 %.1f, p99 %.1f, slowest %.1f ms; before: p50 %.1f, p99 %.1f, slowest %.1f ms\n",
		s.LoadSeconds, s.DuringLoad.P50, s.DuringLoad.P99, s.DuringLoad.Max, s.BeforeLoad.P50, s.BeforeLoad.P99, s.BeforeLoad.Max)
	fmt.Fprintf(&b, "Answer at the client to its span at the collector: p50 %.1f, p99 %.1f, slowest %.1f ms\n", s.Report.P50, s.Report.P99, s.Report.Max)
	return b.String()
}
