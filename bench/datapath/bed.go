package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// bed is the machine room: what all proxies stand in front of, and how processes
// are started there.
type bed struct {
	work      string        // folder of configurations, logs and what was built
	program   string        // this one
	idle      int           // connections that proxies must be able to hold
	said      io.Writer     // what goes on; nil: nobody wants to know
	settle    time.Duration // how long a process is left alone before its memory is read
	http      string        // the callees
	grpc      string
	collector string // of spans

	keys  keys
	proxy []*proxy
	// taskset and its arguments for the proxies' CPU and for all else; empty: not pinned.
	proxyCPU, otherCPU []string

	mu      sync.Mutex
	cleanup []func()
}

// proxy is one of those that are compared.
type proxy struct {
	name       string
	version    string
	http, grpc string // addresses; empty: it does not speak that
	pid        int    // 0: there is none in between
	trials     bool   // it knows trials
	admin      string // of TFIProxy
	stop       func() // of TFIProxy: ends it before the bed is torn down
	// refresh gives it the keys of a new round; nil: it has none.
	refresh func(context.Context) error
}

// speaks reports whether it can do a workload.
func (p *proxy) speaks(w workload) bool {
	return p.address(w) != "" && (w.traffic == ordinary || p.trials)
}

func (p *proxy) address(w workload) string {
	if w.shape.grpc() {
		return p.grpc
	}
	return p.http
}

// pin takes the last CPU that this process may use for the proxies and leaves the
// others to all else, this process included.
func (b *bed) pin(ctx context.Context) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	var cpus []string
	for i := range 8 * int(unsafe.Sizeof(allowed)) {
		if allowed.IsSet(i) {
			cpus = append(cpus, strconv.Itoa(i))
		}
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil || len(cpus) < 2 {
		return fmt.Errorf("taskset (util-linux), or a second CPU %w: nothing is pinned", errMissing)
	}
	last := len(cpus) - 1
	b.proxyCPU = []string{taskset, "-c", cpus[last]}
	b.otherCPU = []string{taskset, "-c", strings.Join(cpus[:last], ",")}
	b.later(func() {
		_ = b.pinProcess(context.WithoutCancel(ctx), []string{taskset, "-c", strings.Join(cpus, ",")}, os.Getpid()) // it goes on without
	})
	return b.pinProcess(ctx, b.otherCPU, os.Getpid())
}

// pinProcess pins all threads that a process has.
func (b *bed) pinProcess(ctx context.Context, cpu []string, pid int) (err error) {
	if len(cpu) == 0 {
		return nil
	}
	for range 3 { // a thread that ends meanwhile fails it
		var out []byte
		out, err = exec.CommandContext(ctx, cpu[0], "-a", "-c", "-p", cpu[2], strconv.Itoa(pid)).CombinedOutput()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("pin process %d: %w: %s", pid, err, strings.TrimSpace(string(out)))
	}
	return err
}

func (b *bed) say(format string, args ...any) {
	if b.said != nil {
		fmt.Fprintf(b.said, format+"\n", args...)
	}
}

// start runs a program until the bed is torn down.
func (b *bed) start(cpu []string, name string, command ...string) (*process.Process, error) {
	args := append(append([]string{}, cpu...), command...)
	p, err := process.Start(process.Options{Name: name, Path: args[0], Args: args[1:], Env: []string{"GOMAXPROCS=1"}, LogDir: b.work, Grace: time.Second})
	if err != nil {
		return nil, err
	}
	b.later(p.Stop)
	return p, nil
}

// startProxy starts one that is compared, and waits until it answers.
func (b *bed) startProxy(ctx context.Context, p *proxy, command ...string) (*proxy, error) {
	started, err := b.start(b.proxyCPU, p.name, command...)
	if err != nil {
		return nil, err
	}
	p.pid = started.Pid()
	for _, address := range []string{p.http, p.grpc} {
		if address != "" {
			if err := ready(ctx, started, dial(address)); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// readyWithin is how long a program may take until it does what it is for.
const readyWithin = time.Minute

func ready(ctx context.Context, p *process.Process, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return p.WaitReady(ctx, check)
}

// dial returns a check that somebody listens.
func dial(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// later has something done when the bed is torn down.
func (b *bed) later(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanup = append(b.cleanup, f)
}

// stop ends all at once: none waits for another's grace.
func (b *bed) stop() {
	b.mu.Lock()
	all := b.cleanup
	b.cleanup = nil
	b.mu.Unlock()
	var ended sync.WaitGroup
	for _, f := range all {
		ended.Go(f)
	}
	ended.Wait()
}

func (b *bed) write(name, text string) (string, error) {
	file := filepath.Join(b.work, name)
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// startCallees starts what all proxies stand in front of.
func (b *bed) startCallees(ctx context.Context) error {
	addresses, err := process.FreeAddrs(ctx, 3)
	if err != nil {
		return err
	}
	b.say("starting callees")
	b.http, b.grpc, b.collector = addresses[0], addresses[1], addresses[2]
	for i, role := range []string{"callee-http", "callee-grpc", "collector"} {
		p, err := b.start(b.otherCPU, role, b.program, "-role", role, "-listen", addresses[i])
		if err != nil {
			return err
		}
		if err := ready(ctx, p, dial(addresses[i])); err != nil {
			return err
		}
	}
	b.proxy = []*proxy{{name: direct, http: b.http, grpc: b.grpc}}
	return nil
}

// errMissing says that something is not on this machine; it is left out.
var errMissing = errors.New("not found")

// find looks for a program, also where daemons are; debian is its package.
func find(name, debian string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s %w: apt-get install %s", name, errMissing, debian)
}

// firstLine of what a program says, for its version.
func firstLine(ctx context.Context, command ...string) string {
	out, _ := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput() // told as it is
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// build builds a Go program of this repository, or of the module in a folder of it.
func (b *bed) build(ctx context.Context, name, folder, pkg string, env ...string) (string, error) {
	out := filepath.Join(b.work, name)
	args := []string{"build", "-C", folder, "-trimpath", "-ldflags", "-s -w", "-o", out}
	if strings.HasSuffix(name, ".wasm") {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.WaitDelay = time.Second // its compilers may live on for a moment
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, text)
	}
	return out, nil
}
