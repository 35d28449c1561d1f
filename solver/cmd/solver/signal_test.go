package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// TestHangUp closes the terminal of a solver, which ends it as Ctrl-C does.
func TestHangUp(t *testing.T) {
	const variable = "SOLVER_TEST_MAIN"
	if os.Getenv(variable) != "" {
		os.Args = []string{"solver", "--listen", "127.0.0.1:0"}
		main()
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHangUp$")
	c.Env = append(os.Environ(), variable+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	c.Stderr = &errOut
	// A signal that is handled here is not ignored there, though nohup may have run this test.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := io.ReadAtLeast(out, line, len("solver: listening on 127.0.0.1:1"))
	if err != nil || !strings.Contains(string(line[:n]), "listening on") {
		t.Fatalf("%v: %s", err, line[:n])
	}
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, &errOut)
	}
}
