package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// TestMain lets the test binary be the roles as well, as the program is.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-role") {
		main()
	}
	os.Exit(m.Run())
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"-nonsense"}, []string{"nonsense"}},
		{[]string{"-role", "nobody"}, []string{`no role "nobody"`}},
		{[]string{"more"}, []string{"unexpected arguments"}},
		{
			[]string{"-rounds", "0", "-duration", "1500ms", "-paced", "1ms", "-requests", "10", "-idle", "-1", "-within", "-1s", "-only", "nginx,apache"},
			[]string{"-rounds", "-duration", "-paced", "-requests", "-idle", "-within", `"apache"`},
		},
	} {
		var out bytes.Buffer
		if code := doMain(t.Context(), c.args, &out, &out); code != exitUsage {
			t.Errorf("%v: code %d", c.args, code)
		}
		for _, s := range c.says {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%v: says %q, want %q in it", c.args, out.String(), s)
			}
		}
	}
}

// needTools skips where the load generators are missing.
func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range loadTools {
		if _, err := find(tool[0], tool[1]); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// read returns the results in a folder.
func read(t *testing.T, dir string) (s summary) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// running lists the processes whose command line names a folder.
func running(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(dir)) {
			all = append(all, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return all
}

// TestInterrupt interrupts a real run once it has measured something: nothing goes
// on running, and what was measured is written.
func TestInterrupt(t *testing.T) {
	needTools(t)
	t.Chdir(filepath.Join("..", ".."))
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A profile of system calls or a plot is not reached.
	log := &watcher{want: "measuring", found: func() {
		time.AfterFunc(5*time.Second, cancel)
	}}
	var out bytes.Buffer
	code := doMain(ctx, []string{"-quick", "-only", "pump,tfiproxy", "-requests", "20000", "-idle", "100", "-out", dir}, &out, log)
	if code != exitInterrupted {
		t.Errorf("code %d; says %s", code, log.b.String())
	}
	if left := running(t, dir); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
	s := read(t, dir)
	if !s.Interrupted || len(s.Memory) == 0 || len(s.Targets) == 0 {
		t.Errorf("interrupted %v, %d readings of memory, %d targets", s.Interrupted, len(s.Memory), len(s.Targets))
	}
	if !strings.Contains(out.String(), "Not finished") || !strings.Contains(out.String(), "not measured") {
		t.Errorf("the report does not say so: %s", out.String())
	}
}

// TestRoleEnds asks a callee to end, and kills a shell that has started another.
func TestRoleEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		signal os.Signal
	}{
		"asked":  {`exec "$0" -role callee-http -listen "$1"`, syscall.SIGTERM},
		"orphan": {`"$0" -role callee-http -listen "$1" & wait`, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", c.script, os.Args[0], address)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			listens := func() bool { return dial(address)(t.Context()) == nil }
			await(t, "it listens", listens)
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			await(t, "it has ended", func() bool { return !listens() })
			_ = cmd.Wait() // by the signal
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	a, err := process.FreeAddrs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return a[0]
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// watcher calls found once something has been written.
type watcher struct {
	b     bytes.Buffer
	want  string
	found func()
}

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.b.Write(b)
	if w.found != nil && strings.Contains(w.b.String(), w.want) {
		w.found()
		w.found = nil
	}
	return n, err
}

// TestEveryMeasurement makes each kind of measurement once, on real processes.
func TestEveryMeasurement(t *testing.T) {
	needTools(t)
	t.Chdir(filepath.Join("..", ".."))
	ctx := t.Context()
	dir := t.TempDir()
	o := &options{out: dir, quick: true, rounds: 1, duration: time.Second, paced: 200 * time.Millisecond, few: 500, many: 1000, idle: 50, profiled: 500, only: []string{pumpName, tfiproxyName, fasthttpName}}
	b := &bed{work: dir, keys: newKeys(), idle: o.idle}
	defer b.stop()
	var err error
	if b.program, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if err := b.startCallees(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.startProxies(ctx, o.only, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	c, err := findCounter(ctx)
	if err != nil {
		t.Log(err)
	}
	s := newSummary(o)
	// Each kind once for each proxy: of workloads, one of each shape and traffic.
	seen := map[string]bool{}
	var plan []step
	for _, x := range b.plan(o, s, c) {
		kind := x.name
		if i := strings.Index(kind, ","); i > 0 && strings.HasPrefix(kind, "HTTP") || strings.HasPrefix(kind, "gRPC") {
			kind = fmt.Sprint(kind[:i], strings.Contains(kind, "/s"), kind[strings.LastIndex(kind, "conn"):])
		}
		if x.proxy != nil {
			kind += x.proxy.name
		}
		if !seen[kind] {
			seen[kind] = true
			plan = append(plan, x)
		}
	}
	var log bytes.Buffer
	if err := s.follow(ctx, plan, &log); err != nil {
		t.Fatal(err)
	}
	if len(s.Problems) > 0 {
		t.Errorf("%q", s.Problems)
	}
	for _, x := range s.Samples {
		if x.Rate <= 0 || x.Proxy != direct && (x.CPUMicros <= 0 || x.Busy <= 0 || x.Busy > 1.1) {
			t.Errorf("%+v", x)
		}
	}
	for _, x := range s.Latencies {
		if x.P50 <= 0 || x.Requests == 0 {
			t.Errorf("%+v", x)
		}
	}
	// What knows no trial must not be measured as if it did.
	if _, err := b.cost(ctx, workload{shape: shapeGet, traffic: trial}, b.proxy[0], func() error { return nil }); !errors.Is(err, errUnreported) {
		t.Errorf("a trial that nobody reports: %v", err)
	}
	s.Results, s.Targets = s.results(), s.targets()
	for _, w := range []workload{{shape: shapeGet}, {shape: shapePost}, {shape: shapeUnary}, {shape: shapeSend}, {shape: shapeServer}, {shape: shapeBidi}} {
		n := 0
		for _, r := range s.Results {
			if strings.HasPrefix(r.Workload, string(w.shape)+"-") {
				n++
			}
		}
		if n < 3 {
			t.Errorf("%d results of %s", n, w.shape)
		}
	}
	if len(s.Allocations) != 4 || c != nil && len(s.Syscalls) != 5 {
		t.Errorf("%d allocations, %d counts of system calls", len(s.Allocations), len(s.Syscalls))
	}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	s.plot(ctx, dir, &log)
	for _, name := range []string{"table.md", "samples.csv", "latency.csv", "memory.csv", "memory.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v; %s", name, err, log.String())
		}
	}
}

// TestPlan checks that a run is interleaved: within a round all proxies do a
// workload before any does the next, and another one begins each time.
func TestPlan(t *testing.T) {
	b := &bed{}
	for _, name := range []string{direct, pumpName, tfiproxyName, nginxName} {
		p := &proxy{name: name, http: "x", pid: len(name), trials: name == tfiproxyName}
		if name != pumpName {
			p.grpc = "x"
		}
		b.proxy = append(b.proxy, p)
	}
	for _, quick := range []bool{true, false} {
		o := &options{quick: quick, rounds: 4, duration: time.Second, paced: time.Second, many: wholeMany}
		first := map[string]map[string]bool{}
		done := map[string]bool{}
		last := ""
		var order []string
		for _, x := range b.plan(o, newSummary(o), nil) {
			if x.name == "new keys" {
				clear(done)
			}
			if x.name == last {
				order = append(order, x.proxy.name)
				continue
			}
			if done[x.name] {
				t.Fatalf("%s is interrupted by other workloads", x.name)
			}
			if len(order) == 4 {
				if first[last] == nil {
					first[last] = map[string]bool{}
				}
				first[last][order[0]] = true
			}
			last, order = x.name, nil
			done[x.name] = true
			if x.proxy != nil {
				order = append(order, x.proxy.name)
			}
		}
		if n := len(first["HTTP/1.1, 0 B, 1 conn"]); n != 4 {
			t.Errorf("quick %v: %d proxies were first, want all 4", quick, n)
		}
		if quick {
			continue
		}
		for _, bytes := range bodySizes {
			for _, c := range connectionCounts {
				if w := (workload{shape: shapeGet, connections: c, bytes: bytes}); first[w.name()] == nil {
					t.Errorf("%s is not measured", w.name())
				}
			}
		}
	}
}

func TestWorkloadsAreDistinct(t *testing.T) {
	for _, quick := range []bool{true, false} {
		seen := map[string]bool{}
		for _, w := range workloads(quick) {
			if seen[w.id()] || seen[w.name()] {
				t.Errorf("%s twice", w.name())
			}
			seen[w.id()], seen[w.name()] = true, true
		}
		for _, p := range paces(quick) {
			if seen[p.id()] || seen[p.name()] {
				t.Errorf("%s twice", p.name())
			}
			seen[p.id()], seen[p.name()] = true, true
		}
	}
}
