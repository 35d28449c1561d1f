// Command soak sends many requests of trials through a real Envoy while policies
// are pushed and the plugin's garbage collector runs all the time. No request may
// fail, and memory must stay flat.
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
	"time"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

func doMain(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "out/soak", "folder for summary.json")
	requests := flags.Int("requests", 300_000, "requests of trials")
	rate := flags.Int("pushes", 10, "policies a second")
	gc := flags.Int("gc", 5, "the plugin's garbage collection percentage")
	workers := flags.Int("workers", 2, "Envoy's workers")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := soak(ctx, *workers, *gc, testbed.SoakOptions{
		Requests: *requests, Connections: 16,
		PushEvery: time.Second / time.Duration(max(1, *rate)), SampleEvery: time.Second,
	})
	if r != nil {
		fmt.Fprintf(stdout, "%d requests, %d failed, %d pushes in %v; memory %d MB early, %d MB late\n",
			r.Requests, r.Failed, r.Pushes, r.Took.Round(time.Second), r.Early>>20, r.Late>>20)
		err = errors.Join(err, r.Err(), write(*out, r))
	}
	if err != nil {
		fmt.Fprintln(stderr, "soak:", err)
		return 1
	}
	return 0
}

func soak(ctx context.Context, workers, gc int, o testbed.SoakOptions) (*testbed.SoakResult, error) {
	dir, err := os.MkdirTemp("", "sequencefi-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	module, err := testbed.Build(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	bed, err := testbed.Start(ctx, testbed.Options{Module: module, Workers: workers, Settings: fmt.Sprintf("gc=%d", gc)})
	if err != nil {
		return nil, err
	}
	defer bed.Close()
	r, err := testbed.Soak(ctx, bed, o)
	return r, errors.Join(err, bed.Bad())
}

func write(dir string, r *testbed.SoakResult) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "summary.json"), append(b, '\n'), 0o644)
}
