package envoy

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has cost so far.
type Usage struct {
	// CPU time, user and system.
	CPU time.Duration
	// RSS is its resident memory in bytes.
	RSS int64
}

// clockTick is the unit of /proc's times: USER_HZ, 100 on every Linux that Go runs on.
const clockTick = time.Second / 100

// ReadUsage reads the usage of a process from /proc.
func ReadUsage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The command's name, in parentheses, may hold blanks: count from behind it.
	_, rest, ok := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 22 {
		return Usage{}, fmt.Errorf("/proc/%d/stat: unknown form", pid)
	}
	var n [3]int64 // utime, stime, rss: fields 14, 15 and 24 of proc(5)
	for i, at := range []int{11, 12, 21} {
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return Usage{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return Usage{CPU: time.Duration(n[0]+n[1]) * clockTick, RSS: n[2] * int64(os.Getpagesize())}, nil
}

// Usage reads what the process has cost so far.
func (p *Process) Usage() (Usage, error) { return ReadUsage(p.Pid()) }
