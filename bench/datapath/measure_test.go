package main

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/proto/valid"
)

func TestParseWrk(t *testing.T) {
	const head = "Running 1s test @ http://127.0.0.1:1/0\n  1 threads and 8 connections\n"
	for _, c := range []struct {
		out  string
		want answered
		says string
	}{
		{head + "  19521 requests in 1.10s, 1.12MB read\nRequests/sec: 17746.00\n", answered{19521, 1.1}, ""},
		{head + "  12 requests in 1.02m, 1.12MB read\n", answered{12, 61.2}, ""},
		{head + "  0 requests in 1.00s, 0.00B read\n", answered{}, "no request"},
		{head + "  9 requests in 1.00s, 1KB read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n", answered{}, "read 3"},
		{head + "  9 requests in 1.00s, 1KB read\n  Non-2xx or 3xx responses: 9\n", answered{}, "Non-2xx"},
		{"unable to connect", answered{}, "unable to connect"},
	} {
		got, err := parseWrk([]byte(c.out))
		checkAnswered(t, c.out, got, err, c.want, c.says)
	}
}

func TestParseH2load(t *testing.T) {
	out := func(finished, requests, codes string) string {
		return "starting benchmark...\n\nfinished in " + finished + ", 1 req/s, 1KB/s\nrequests: 100 total, 100 started, 90 done, " + requests +
			" errored, 0 timeout\nstatus codes: " + codes + "\n"
	}
	for _, c := range []struct {
		out  string
		want answered
		says string
	}{
		{out("1.00s", "90 succeeded, 10 failed, 10", "90 2xx, 0 3xx, 0 4xx, 0 5xx"), answered{90, 1}, ""},
		{out("250.50ms", "90 succeeded, 0 failed, 0", "90 2xx, 0 3xx, 0 4xx, 0 5xx"), answered{90, 0.2505}, ""},
		{out("1.00s", "90 succeeded, 11 failed, 11", "90 2xx, 0 3xx, 0 4xx, 0 5xx"), answered{}, "11 failed"},
		{out("1.00s", "90 succeeded, 0 failed, 0", "0 2xx, 0 3xx, 0 4xx, 90 5xx"), answered{}, "90 5xx"},
		{out("1.00s", "0 succeeded, 0 failed, 0", "0 2xx, 0 3xx, 0 4xx, 0 5xx"), answered{}, "no request"},
		{"Failed to resolve", answered{}, "Failed to resolve"},
	} {
		got, err := parseH2load([]byte(c.out), 10)
		checkAnswered(t, c.out, got, err, c.want, c.says)
	}
}

func checkAnswered(t *testing.T, out string, got answered, err error, want answered, says string) {
	t.Helper()
	switch {
	case says == "" && (err != nil || got != want):
		t.Errorf("%s: %+v, %v, want %+v", out, got, err, want)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Errorf("%s: %v, want %q in it", out, err, says)
	}
}

func TestCountersRead(t *testing.T) {
	for name, text := range map[string]string{
		"perf":   "# started on Mon\n\n4711,,raw_syscalls:sys_enter,1,100.00,,\n",
		"strace": "% time     seconds  usecs/call     calls    errors syscall\n------\n 99.00    0.000100           1       700           read\n------\n100.00    0.000101           0      4711        12 total\n",
	} {
		for _, c := range counters {
			m := c.count.FindStringSubmatch(text)
			if c.name == name && (m == nil || m[1] != "4711") {
				t.Errorf("%s: %q", name, m)
			}
		}
	}
}

// TestAllocObjects allocates, and looks for it in the runtime's own profile.
func TestAllocObjects(t *testing.T) {
	count := func() int64 {
		var b bytes.Buffer
		if err := pprof.Lookup("allocs").WriteTo(&b, 0); err != nil {
			t.Fatal(err)
		}
		n, err := allocObjects(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n <= 0 {
		t.Errorf("%d objects", n)
	}
	if _, err := allocObjects([]byte("no profile")); err == nil {
		t.Error("took nonsense for a profile")
	}
}

// TestPolicyIsValid: what sidecars refuse would make a trial's traffic ordinary.
func TestPolicyIsValid(t *testing.T) {
	if err := valid.Error(valid.Policy(policy(newKeys(), "1"))); err != nil {
		t.Error(err)
	}
}
