package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mainChild names the arguments of a process that is this program.
const mainChild = "SEQUENCEFI_TEST_MAIN"

// TestMainChild is not a test: it is this program.
func TestMainChild(t *testing.T) {
	args := os.Getenv(mainChild)
	if args == "" {
		t.Skip("run by other tests")
	}
	os.Args = append([]string{"sequencefi"}, strings.Split(args, "\n")...)
	main()
}

// TestInterruptedInput: the first Ctrl-C ends a program that waits for its input.
func TestInterruptedInput(t *testing.T) {
	for _, file := range []string{"-", "/dev/stdin"} {
		t.Run(file, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMainChild$")
			c.Env = append(os.Environ(), mainChild+"=solve\n"+file)
			says := newLines()
			c.Stdout, c.Stderr = says, says
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			defer r.Close()
			c.Stdin = r
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.Wait() // the exit code says more
			}()
			// A full pipe that is emptied is read: the signal is waited for by then.
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("it goes on waiting")
				_ = c.Process.Kill()
				<-ended
			}
			if got := c.ProcessState.ExitCode(); got != exitIncomplete || !strings.Contains(says.String(), "stopped while waiting for the traces in "+file) {
				t.Errorf("exit code %d: %s", got, says)
			}
		})
	}
}

// TestHangUp closes the terminal of a run: it stops as by Ctrl-C, and leaves a report. Where
// the signal is ignored, as nohup has it, the run goes on.
func TestHangUp(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	out := filepath.Join(dir, "out")
	// A signal that is handled here is not ignored there, though nohup may have run this test.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	start := func(t *testing.T, wait string, ignored bool) *lines {
		t.Helper()
		shell := `exec "$0" -test.run='^TestMainChild$'`
		if ignored {
			shell = `trap "" HUP; ` + shell
		}
		c := exec.CommandContext(t.Context(), "sh", "-c", shell, os.Args[0])
		c.Env = append(os.Environ(), mainChild+"="+strings.Join([]string{
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
