package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the time that a process has run, all its threads together, by its
// own clock: finer than the 10 ms ticks of /proc/PID/stat.
func cpuTime(pid int) (time.Duration, error) {
	const process, scheduled = 0, 2 // CPUCLOCK_SCHED of linux/posix-timers.h
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|process|scheduled, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ticks are those that a process has spent as itself and in the kernel; only their
// proportion is of use, and only over a second or so.
func ticks(pid int) (user, kernel int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // a name may hold blanks
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: unknown form", pid)
	}
	user, e1 := strconv.ParseInt(f[11], 10, 64)
	kernel, e2 := strconv.ParseInt(f[12], 10, 64)
	return user, kernel, errors.Join(e1, e2)
}

// memoryOf a process now, in bytes.
func memoryOf(pid int) (rss, pss int64, err error) {
	if rss, err = procField(pid, "smaps_rollup", "Rss"); err != nil {
		return 0, 0, err
	}
	pss, err = procField(pid, "smaps_rollup", "Pss")
	return rss, pss, err
}

// peakOf is the most RSS of a process since resetPeak.
func peakOf(pid int) (int64, error) { return procField(pid, "status", "VmHWM") }

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
