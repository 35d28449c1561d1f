package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is the time that all threads of a process have run: finer than the 10 ms
// ticks of /proc/PID/stat.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		n, err := strconv.ParseInt(strings.Fields(string(b) + " 0")[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		sum += n
	}
	if sum == 0 {
		return 0, fmt.Errorf("process %d: no CPU time in /proc", pid)
	}
	return time.Duration(sum), nil
}

// memoryOf a process now, in bytes; peak is the most RSS since resetPeak.
func memoryOf(pid int) (rss, pss, peak int64, err error) {
	if rss, err = procField(pid, "smaps_rollup", "Rss"); err != nil {
		return 0, 0, 0, err
	}
	if pss, err = procField(pid, "smaps_rollup", "Pss"); err != nil {
		return 0, 0, 0, err
	}
	peak, err = procField(pid, "status", "VmHWM")
	return rss, pss, peak, err
}

// procField reads a field in kB of a file of a process.
func procField(pid int, file, name string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name+":" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

// resetPeak lets the kernel forget a process's largest RSS.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// raiseFiles raises the number of descriptors that this process and those it
// starts may have, and returns it.
func raiseFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	for _, want := range []uint64{32 << 10, l.Max} {
		raised := syscall.Rlimit{Cur: want, Max: max(want, l.Max)}
		if want >= l.Cur && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
			return want
		}
	}
	return l.Cur
}
