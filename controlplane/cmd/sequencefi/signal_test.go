package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHangUp closes the terminal of a run: it stops as by Ctrl-C, and leaves a report. Where
// the signal is ignored, as nohup has it, the run goes on.
func TestHangUp(t *testing.T) {
	const variable = "SEQUENCEFI_TEST_MAIN"
	if args := os.Getenv(variable); args != "" {
		os.Args = append([]string{"sequencefi"}, strings.Split(args, "\n")...)
		main()
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	out := filepath.Join(dir, "out")
	// A signal that is handled here is not ignored there, though nohup may have run this test.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	start := func(t *testing.T, wait string, ignored bool) *lines {
		t.Helper()
		shell := `exec "$0" -test.run='^TestHangUp$'`
		if ignored {
			shell = `trap "" HUP; ` + shell
		}
		c := exec.CommandContext(t.Context(), "sh", "-c", shell, os.Args[0])
		c.Env = append(os.Environ(), variable+"="+strings.Join([]string{
			"run", file, "--out", out, "--wait", wait,
			"--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--plugin", plugin(t, dir),
		}, "\n"))
		says := newLines()
		c.Stdout, c.Stderr = says, says
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		says.await(t, "xDS on")
		if err := c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // the exit code says more
		if got := c.ProcessState.ExitCode(); got != exitIncomplete {
			t.Errorf("exit code %d: %s", got, says)
		}
		return says
	}
	t.Run("stops", func(t *testing.T) {
		says := start(t, "10m", false)
		if !strings.Contains(says.String(), "stopping: taking the activations back") {
			t.Error(says)
		}
		if _, err := os.Stat(filepath.Join(out, "report.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("ignored", func(t *testing.T) {
		says := start(t, "300ms", true)
		if strings.Contains(says.String(), "stopping") || !strings.Contains(says.String(), "no sidecar is connected") {
			t.Error(says)
		}
	})
}
