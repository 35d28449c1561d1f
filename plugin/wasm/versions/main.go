// Command versions runs the table of behaviour on several versions of Envoy, each
// in the form that works there, and prints what came of it. Arguments are versions.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

func doMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("versions", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "out/e2e-versions", "folder for summary.json")
	missing := flags.Bool("missing-ok", false, "skip versions that are not installed")
	requests := flags.Int("requests", 20_000, "requests of trials under pushes, after the table")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	versions := flags.Args()
	if len(versions) == 0 {
		versions = []string{"1.36.4", "1.37.0", "1.39.0", envoy.Version}
	}
	rows, err := run(ctx, versions, *requests, stdout)
	for _, r := range rows {
		if r.Problems > 0 || r.Missing && !*missing {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Version, r.First))
		}
	}
	if err = errors.Join(err, write(*out, rows)); err != nil {
		fmt.Fprintln(stderr, "versions:", err)
		return 1
	}
	return 0
}

// row is what came of one version.
type row struct {
	Version  string `json:"version"`
	Form     string `json:"form"`
	Settings string `json:"settings,omitempty"`
	Missing  bool   `json:"missing,omitempty"`
	Cases    int    `json:"cases"`
	Problems int    `json:"problems"`
	First    string `json:"firstProblem,omitempty"`
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	RSSMB    int64  `json:"rssMB"`
	StartMB  int64  `json:"startRSSMB"`
}

// form that works in a version. Before 1.39 Envoy crashes at the first matching
// request if V8 starts with the first push, and at the end of a garbage collection
// (golang/go#78513); before 1.40 the composite filter takes no matcher.
func form(version string) (testbed.Form, string) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && major == 1 {
		switch {
		case minor < 39:
			return testbed.PushedOverDefault, "gc=off"
		case minor < 40:
			return testbed.PushedWrapped, ""
		}
	}
	return testbed.Pushed, ""
}

func run(ctx context.Context, versions []string, requests int, stdout io.Writer) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "sequencefi-versions-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	module, err := testbed.Build(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	const format = "%-8s  %-32s  %-8s  %9s  %18s  %12s  %s\n"
	fmt.Fprintf(stdout, format, "Envoy", "form", "settings", "cases", "requests (failed)", "RSS MB", "")
	for _, v := range versions {
		r := try(ctx, v, module, requests)
		rows = append(rows, r)
		fmt.Fprintf(stdout, format, r.Version, r.Form, r.Settings, fmt.Sprintf("%d/%d", r.Cases-r.Problems, r.Cases),
			fmt.Sprintf("%d (%d)", r.Requests, r.Failed), fmt.Sprintf("%d to %d", r.StartMB, r.RSSMB), r.First)
		if ctx.Err() != nil {
			break
		}
	}
	return rows, ctx.Err()
}

func try(ctx context.Context, version, module string, requests int) row {
	f, settings := form(version)
	r := row{Version: version, Form: f.String(), Settings: settings}
	fail := func(format string, args ...any) {
		r.Problems++
		if r.First == "" {
			r.First = fmt.Sprintf(format, args...)
		}
	}
	binary, err := envoy.Find(version)
	if err != nil {
		r.Missing, r.First = true, err.Error()
		return r
	}
	bed, err := testbed.Start(ctx, testbed.Options{Form: f, Module: module, Settings: settings, Envoy: binary, Workers: 2})
	if err != nil {
		fail("%v", err)
		return r
	}
	defer bed.Close()
	if u, err := bed.Process.Usage(); err == nil {
		r.StartMB = u.RSS >> 20
	}
	for _, c := range behaviour.Table() {
		r.Cases++
		if problems := behaviour.Check(ctx, bed, &c); len(problems) > 0 {
			fail("%s: %s", c.Name, problems[0])
		}
		select {
		case <-bed.Process.Done():
			fail("Envoy ended")
			return r
		default:
		}
	}
	s, err := testbed.Soak(ctx, bed, testbed.SoakOptions{
		Requests: requests, Connections: 16, PushEvery: 100 * time.Millisecond, SampleEvery: time.Second,
	})
	if err != nil {
		fail("under load: %v", err)
		return r
	}
	r.Requests, r.Failed = s.Requests, s.Failed
	if s.Failed > 0 {
		left, _ := bed.Process.Stats(ctx, regexp.MustCompile(`sequencefi\.(paused|internal)|_rq_active|wasm.*(active|created)`)) // what there is
		log, _ := bed.Process.Log()
		fail("%v; %v\n%s", s.Err(), left, log[max(0, len(log)-4096):])
	}
	if u, err := bed.Process.Usage(); err == nil {
		r.RSSMB = u.RSS >> 20
	}
	return r
}

func write(dir string, rows []row) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "summary.json"), append(b, '\n'), 0o644)
}
