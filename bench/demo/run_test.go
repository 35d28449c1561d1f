package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
)

// runFake runs the demonstration with a script in the place of the product. The
// script finds the folder of the report in $4. runFake returns that folder and
// what the script wrote.
func runFake(ctx context.Context, t *testing.T, script string) (_ *Outcome, dir, output string, _ error) {
	t.Helper()
	dir = t.TempDir()
	o := RunOptions{
		Options: Options{Dir: dir, HotROD: hotrodBinary(t), Envoy: envoytest.Binary(t, envoy.Version)},
		Product: filepath.Join(t.TempDir(), "sequencefi"),
	}
	if err := os.WriteFile(o.Product, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	o.Output = log
	out, runErr := Run(ctx, o)
	b, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	return out, dir, string(b), runErr
}

// processesOf lists the command lines of processes that name dir.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func TestRun(t *testing.T) {
	out, dir, output, err := runFake(t.Context(), t, `
echo "$1 $(basename "$2") $3 $5"
echo '{"findings": 1, "degraded": 2, "trials": 20, "fired": 19, "invalid": 1, "exhausted": true, "seconds": 7.5}' > "$4/summary.json"
exit 1`)
	if err != nil {
		t.Fatal(err)
	}
	if output != "run campaign.yaml --out --throwaway\n" {
		t.Errorf("output %q", output)
	}
	want := report.Summary{Findings: 1, Degraded: 2, Trials: 20, Fired: 19, Invalid: 1, Exhausted: true, Seconds: 7.5}
	if diff := cmp.Diff(want, out.Summary); diff != "" || out.Dir != dir || out.ExitCode != exitFindings {
		t.Errorf("%+v: -want +got:\n%s", out, diff)
	}
}

func TestRunFails(t *testing.T) {
	for name, script := range map[string]string{
		"exit code":  `touch "$4/summary.json"; exit 3`,
		"no summary": `exit 0`,
		"unreadable": `echo x > "$4/summary.json"`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, _, err := runFake(t.Context(), t, script); !errors.Is(err, ErrProduct) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestRunInterrupted ends the context in mid-campaign, as Ctrl-C does: the
// product is asked to stop, and has the time to.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(began); err == nil {
				cancel()
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	_, _, output, err := runFake(ctx, t, `
trap 'sleep 0.2; echo cleared; exit 3' INT
touch "`+began+`"
while :; do sleep 0.01; done`)
	if !errors.Is(err, context.Canceled) || output != "cleared\n" {
		t.Errorf("%v, output %q", err, output)
	}
}
