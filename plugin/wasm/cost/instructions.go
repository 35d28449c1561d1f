package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/load"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// countedRequests are sent over one connection, so that each has a turn of
// Envoy's loop to itself, which makes the numbers repeatable.
const countedRequests = 400

// countInstructions prints the instructions that Envoy itself executes for a
// request of no trial (those of the kernel are not seen), as valgrind counts them.
// Such a request never enters the filter, so an empty one stands in its place:
// valgrind takes minutes to compile the real one.
func countInstructions(ctx context.Context, stdout io.Writer) error {
	for _, program := range []string{"valgrind", "callgrind_control"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("-instructions needs valgrind (Debian: apt-get install valgrind): %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "sequencefi-cost-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := envoy.Find(envoy.Version)
	if err != nil {
		return err
	}
	wrapper := filepath.Join(dir, "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec valgrind -q --tool=callgrind --separate-threads=yes --callgrind-out-file=%s/%%p.out '%s' \"$@\"\n", dir, binary)
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	module := filepath.Join(dir, "empty.wasm")
	if err := os.WriteFile(module, emptyFilter(), 0o600); err != nil {
		return err
	}
	var base float64
	fmt.Fprintf(stdout, "Envoy %s, instructions outside the kernel for a request of no trial\n\n", envoy.Version)
	all, w3c := behaviour.Policy("1"), behaviour.Policy("1")
	w3c.TraceFormats = []tfiv1.TraceFormat{tfiv1.TraceFormat_TRACE_FORMAT_W3C}
	for _, v := range []struct {
		name   string
		form   testbed.Form
		policy *tfiv1.Policy
	}{
		{"bare Envoy", testbed.Bare, nil},
		{"place for the gate, no campaign", testbed.Pushed, nil},
		{"campaign runs", testbed.Pushed, all},
		{"campaign runs, propagation: [w3c]", testbed.Pushed, w3c},
		{"campaign runs, form for Envoy before 1.40", testbed.PushedWrapped, all},
	} {
		n, err := instructions(ctx, dir, testbed.Options{Form: v.form, Module: module, Envoy: wrapper}, v.policy)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if base == 0 {
			base = n
		}
		fmt.Fprintf(stdout, "%-44s %10.0f %+8.0f %+6.1f %%\n", v.name, n, n-base, 100*(n/base-1))
	}
	return nil
}

// instructions counts those of a request through an Envoy under valgrind.
func instructions(ctx context.Context, dir string, o testbed.Options, policy *tfiv1.Policy) (float64, error) {
	bed, err := testbed.Start(ctx, o)
	if err != nil {
		return 0, err
	}
	defer bed.Close()
	if policy != nil {
		if err := bed.Apply(ctx, policy); err != nil {
			return 0, err
		}
	}
	run := &load.Run{
		Addr: bed.Outbound, Connections: 1, Requests: countedRequests,
		Trace: func(int) string { return behaviour.OrdinaryTrace.String() },
	}
	if err := send(ctx, run); err != nil { // warms up
		return 0, err
	}
	pid := strconv.Itoa(bed.Process.Pid())
	if err := control(ctx, "-z", pid); err != nil {
		return 0, err
	}
	if err := send(ctx, run); err != nil {
		return 0, err
	}
	if err := control(ctx, "-d", pid); err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(filepath.Join(dir, pid+".out.1-*"))
	if err != nil {
		return 0, err
	}
	var most float64 // the worker's; the others flush statistics and the like
	for _, file := range threads {
		dump, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		if total := callgrindTotal.FindSubmatch(dump); total != nil {
			n, err := strconv.ParseFloat(string(total[1]), 64)
			if err != nil {
				return 0, err
			}
			most = max(most, n)
		}
	}
	if most == 0 {
		return 0, errNoTotal
	}
	return most / countedRequests, nil
}

var (
	callgrindTotal = regexp.MustCompile(`(?m)^(?:totals|summary): (\d+)`)
	errNoTotal     = errors.New("callgrind's dump has no total")
)

// control tells callgrind in a process to zero its counts (-z) or to dump them (-d).
func control(ctx context.Context, what, pid string) error {
	if b, err := exec.CommandContext(ctx, "callgrind_control", what, pid).CombinedOutput(); err != nil {
		return fmt.Errorf("callgrind_control %s: %w\n%s", what, err, b)
	}
	return nil
}
