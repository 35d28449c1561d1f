package tfiproxy

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// This test program is also the client and the callee in the other namespace.
var (
	getURL = flag.String("get", "", "fetch this, print it and exit")
	serve  = flag.String("serve", "", "answer with this until killed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// TestGet is no test but the client.
func TestGet(t *testing.T) {
	if *getURL == "" {
		t.Skip("it is run by TestRedirect")
	}
	fmt.Print(get(t, *getURL))
	os.Exit(0) // before the test framework says that it passed
}

// TestServe is no test but the callee.
func TestServe(t *testing.T) {
	if *serve == "" {
		t.Skip("it is run by TestRedirect")
	}
	fmt.Println("port", httpServer(t, *serve))
	select {} // until killed
}

// startSelf runs the callee in the namespace of a process, and returns its port.
func startSelf(t *testing.T, pid, says string) (port string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", "-t", pid, "-n", os.Args[0], "-test.run", "^TestServe$", "-serve", says)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if p, ok := strings.CutPrefix(lines.Text(), "port "); ok {
			return p
		}
	}
	t.Fatal("the callee does not start")
	return ""
}
