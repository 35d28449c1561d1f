package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// syscallCount is how many system calls a request takes.
type syscallCount struct {
	Workload   string  `json:"workload"`
	Proxy      string  `json:"proxy"`
	PerRequest float64 `json:"per_request"`
}

// counter counts system calls with a program that attaches itself to a process.
type counter struct {
	name    string
	command func(pid int, file string) []string
	// attached reports whether it counts already.
	attached func(counter, pid int) bool
	count    *regexp.Regexp // in the file that it writes
}

var counters = []counter{
	{
		name: "perf",
		command: func(pid int, file string) []string {
			return []string{"stat", "-x,", "-o", file, "-e", "raw_syscalls:sys_enter", "-p", strconv.Itoa(pid)}
		},
		attached: func(counter, _ int) bool {
			links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", counter)) // the pattern is right
			for _, l := range links {
				if to, err := os.Readlink(l); err == nil && strings.Contains(to, "perf_event") {
					return true
				}
			}
			return false
		},
		count: regexp.MustCompile(`(?m)^(\d+),.*raw_syscalls:sys_enter`),
	},
	{
		name: "strace",
		command: func(pid int, file string) []string {
			return []string{"-c", "-f", "-o", file, "-p", strconv.Itoa(pid)}
		},
		attached: func(_, pid int) bool {
			files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is right
			for _, f := range files {
				if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("TracerPid:\t0\n")) {
					return false
				}
			}
			return true
		},
		count: regexp.MustCompile(`(?m)^100\.00 +\S+ +\S+ +(\d+) .*total`),
	},
}

// findCounter prefers perf, which slows nothing down; strace stops a process at
// each call, so that more comes at once than otherwise.
func findCounter(ctx context.Context) (*counter, error) {
	for i := range counters {
		c := &counters[i]
		path, err := exec.LookPath(c.name)
		if err != nil {
			continue
		}
		if c.name == "perf" && exec.CommandContext(ctx, path, "stat", "-e", "raw_syscalls:sys_enter", "true").Run() != nil {
			continue // not allowed here
		}
		return c, nil
	}
	return nil, fmt.Errorf("perf or strace %w: apt-get install linux-perf strace", errMissing)
}

// during counts the system calls of a process while f runs.
func (c *counter) during(ctx context.Context, b *bed, pid int, f func() error) (int64, error) {
	file := filepath.Join(b.work, "syscalls.txt")
	args := append(append([]string{}, b.otherCPU...), c.name)
	args = append(args, c.command(pid, file)...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var err error
	for end := time.Now().Add(10 * time.Second); !c.attached(cmd.Process.Pid, pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			err = fmt.Errorf("%s does not attach to process %d", c.name, pid)
			break
		}
	}
	if err == nil {
		err = f()
	}
	_ = cmd.Process.Signal(syscall.SIGINT) // it writes its count and ends by this signal
	_ = cmd.Wait()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	m := c.count.FindSubmatch(text)
	if m == nil {
		return 0, errors.New(tail(append(text, said.Bytes()...)))
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// syscalls counts those of a proxy under a workload.
func (b *bed) syscalls(ctx context.Context, c *counter, w workload, p *proxy) (*syscallCount, error) {
	var a answered
	n, err := c.during(ctx, b, p.pid, func() (err error) {
		a, err = b.closed(ctx, w, p, time.Second)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &syscallCount{Workload: w.name(), Proxy: p.name, PerRequest: float64(n) / float64(a.requests)}, nil
}
