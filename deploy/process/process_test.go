package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_PARENT") != "" {
		parent()
	}
	goleak.VerifyTestMain(m)
}

// parent starts a program, prints its pid, and hangs until it is killed.
func parent() {
	p, err := Start(Options{Name: "child", Path: "/bin/sleep", Args: []string{"600"}, LogDir: os.Getenv("PROCESS_TEST_PARENT")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.Pid())
	<-p.Done()
	os.Exit(0)
}

func shell(t *testing.T, script string, o Options) *Process {
	t.Helper()
	o.Name, o.Path, o.Args, o.LogDir = "sh", "/bin/sh", []string{"-c", script}, t.TempDir()
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func TestReadyAndStop(t *testing.T) {
	p := shell(t, "echo $GREETING; exec sleep 600", Options{Env: []string{"GREETING=hello"}})
	err := p.WaitReady(t.Context(), func(context.Context) error {
		if log, err := p.Log(); err != nil || string(log) != "hello\n" {
			return fmt.Errorf("log %q %w", log, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Or a Ctrl-C in the terminal would end it behind this process's back.
	if group, err := syscall.Getpgid(p.Pid()); err != nil || group != p.Pid() {
		t.Errorf("it is in process group %d, %v", group, err)
	}
	p.Stop()
	p.Stop()
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal: %v", err)
	}
}

func TestEndsTooEarly(t *testing.T) {
	p := shell(t, "echo no such port >&2; exit 3", Options{})
	err := p.WaitReady(t.Context(), func(context.Context) error { return errors.New("refused") })
	if !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "no such port") {
		t.Errorf("got %v", err)
	}
	if p.ExitCode() != 3 {
		t.Errorf("exit code %d", p.ExitCode())
	}
}

func TestNotReady(t *testing.T) {
	p := shell(t, "exec sleep 600", Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	never := errors.New("refused")
	if err := p.WaitReady(ctx, func(context.Context) error { return never }); !errors.Is(err, never) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestStopKillsTheDeaf(t *testing.T) {
	p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done", Options{Grace: 50 * time.Millisecond})
	if err := p.WaitReady(t.Context(), func(context.Context) error {
		if log, _ := p.Log(); len(log) == 0 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if code := p.ExitCode(); code != -1 {
		t.Errorf("exit code %d", code)
	}
}

// TestEndsWithItsParent kills a process that has started one.
func TestEndsWithItsParent(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_PARENT="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatal("the child does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	deadline := time.After(10 * time.Second)
	for alive(child) {
		select {
		case <-deadline:
			t.Fatal("the child outlived its parent")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// alive tells whether pid runs; one that waits for its parent to take note has ended.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestStartErrors(t *testing.T) {
	if _, err := Start(Options{Name: "x", Path: "/no/such/program", LogDir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := Start(Options{Name: "x", Path: "/bin/sh", LogDir: "/no/such/folder"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTool(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if _, err := Tool("drill", "DRILL"); !errors.Is(err, ErrNoTool) || !strings.Contains(err.Error(), "make drill") {
		t.Errorf("missing: %v", err)
	}
	path := filepath.Join(dir, ".tools", "bin", "drill")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755), os.Mkdir("sub", 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Chdir("sub")
	if got, err := Tool("drill", "DRILL"); err != nil || got != path {
		t.Errorf("got %q %v", got, err)
	}
	t.Setenv("DRILL", "/no/such/drill")
	if _, err := Tool("drill", "DRILL"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("own path: %v", err)
	}
}

func TestFreeAddrs(t *testing.T) {
	addrs, err := FreeAddrs(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range addrs {
		seen[a] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d different addresses", len(seen))
	}
}
