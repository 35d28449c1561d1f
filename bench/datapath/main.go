// Command datapath compares what sidecars cost: TFIProxy, Envoy bare and with our
// plugin, nginx, HAProxy, and as references a byte pump and two reverse proxies in Go;
// all with one worker, in one interleaved run on loopback. README.md says how, and
// what it writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sequencefi/sequencefi/deploy/envoy"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // who asks twice has no more patience
	os.Exit(doMain(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes: all was measured; something failed; bad usage (sysexits.h); interrupted.
const (
	exitOK, exitFailed, exitUsage, exitInterrupted = 0, 1, 64, 130
)

// What a whole run measures memory with, as the targets say.
const (
	wholeFew, wholeMany, wholeIdle = 10_000, 1_000_000, 10_000
)

type options struct {
	out      string
	quick    bool
	check    bool
	rounds   int
	duration time.Duration
	paced    time.Duration
	within   time.Duration // of the whole run; 0: no bound
	few      int
	many     int
	idle     int
	profiled int
	only     []string
}

func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("datapath", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	role := flags.String("role", "", "run as a part of the bench, in a process of its own")
	listen := flags.String("listen", "", "address of a role")
	upstream := flags.String("upstream", "", "upstream of a role")
	only := flags.String("only", "", "names of proxies, separated by commas; empty: all")
	flags.StringVar(&o.out, "out", filepath.Join("out", "datapath"), "where results are written")
	flags.BoolVar(&o.quick, "quick", false, "fewer workloads, 2 rounds and fewer requests: some minutes")
	flags.BoolVar(&o.check, "check", false, "fail if a target is missed")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds, if -within has room for them; medians count")
	flags.DurationVar(&o.duration, "duration", time.Second, "of one measurement as fast as requests are answered; whole seconds")
	flags.DurationVar(&o.paced, "paced", 2*time.Second, "of one measurement at a fixed rate")
	flags.DurationVar(&o.within, "within", 44*time.Minute, "of the whole run: what later rounds would take longer with is left out; 0: no bound")
	flags.IntVar(&o.many, "requests", wholeMany, "requests after which memory is measured")
	flags.IntVar(&o.idle, "idle", wholeIdle, "idle connections for the memory measurement; 0: none")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if *role != "" {
		f := roles[*role]
		if f == nil {
			fmt.Fprintf(stderr, "no role %q\n", *role)
			return exitUsage
		}
		// A part ends when it is told to, and with the whole, also where a script started it.
		signal.Reset()
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0) // it may outlive it then
		if err := f(*listen, *upstream); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", *role, err)
			return exitFailed
		}
		return exitOK
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.quick {
		o.lessen(given)
	}
	o.few, o.profiled = wholeFew, 50_000
	if err := o.validate(flags.Args()); err != nil {
		fmt.Fprintln(stderr, "datapath:", err)
		return exitUsage
	}
	return bench(ctx, &o, stdout, stderr)
}

// lessen makes a run quick, where flags do not say otherwise.
func (o *options) lessen(given map[string]bool) {
	if !given["rounds"] {
		o.rounds = 2
	}
	if !given["requests"] {
		o.many = 2 * wholeFew
	}
}

func (o *options) validate(args []string) error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(len(args) > 0, "unexpected arguments %q", args)
	bad(o.rounds < 1, "-rounds must be at least 1, is %d", o.rounds)
	bad(o.duration < time.Second || o.duration%time.Second != 0, "-duration must be whole seconds, is %v", o.duration)
	bad(o.paced < 100*time.Millisecond, "-paced must be at least 100ms, is %v", o.paced)
	bad(o.within < 0, "-within must not be negative, is %v", o.within)
	bad(o.many < 2*o.few, "-requests must be at least %d, is %d", 2*o.few, o.many)
	bad(o.idle < 0, "-idle must not be negative, is %d", o.idle)
	for _, name := range o.only {
		known := slices.ContainsFunc(starters, func(s starter) bool { return s.name == name })
		bad(!known, "-only: no proxy is called %q", name)
	}
	return errors.Join(errs...)
}

// bench runs everything and returns an exit code.
func bench(ctx context.Context, o *options, stdout, stderr io.Writer) int {
	s := newSummary(o)
	dir, err := filepath.Abs(o.out)
	if err == nil {
		err = s.run(ctx, o, dir, stderr)
	}
	s.Interrupted = ctx.Err() != nil
	if len(s.Samples)+len(s.Memory) > 0 {
		if e := s.write(dir); e != nil {
			err = errors.Join(err, e)
		} else {
			fmt.Fprint(stdout, s.markdown())
			s.plot(ctx, dir, stderr)
			fmt.Fprintf(stderr, "results are in %s\n", o.out)
		}
	}
	switch {
	case s.Interrupted:
		fmt.Fprintln(stderr, "datapath: interrupted")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "datapath:", err)
		return exitFailed
	case len(s.Problems) > 0:
		fmt.Fprintf(stderr, "datapath: %d measurements failed\n", len(s.Problems))
		return exitFailed
	case o.check && slices.ContainsFunc(s.Targets, func(t target) bool { return !t.Met }):
		fmt.Fprintln(stderr, "datapath: a target is missed")
		return exitFailed
	}
	return exitOK
}

// run measures everything; s has what there is, also where it fails.
func (s *summary) run(ctx context.Context, o *options, dir string, stderr io.Writer) error {
	b := &bed{work: filepath.Join(dir, "work"), keys: newKeys(), settle: 3 * time.Second, said: stderr}
	defer b.stop()
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return err
	}
	var err error
	if b.program, err = os.Executable(); err != nil {
		return err
	}
	leave := func(err error) {
		fmt.Fprintln(stderr, "left out:", err)
		if errors.Is(err, errMissing) || errors.Is(err, envoy.ErrNotFound) {
			s.LeftOut = append(s.LeftOut, err.Error())
		} else {
			s.Problems = append(s.Problems, oneLine(err))
		}
	}
	missing := false
	for _, tool := range loadTools {
		if _, err := find(tool[0], tool[1]); err != nil {
			leave(err)
			missing = true
		}
	}
	if missing {
		return errors.New("without a load generator there is nothing to measure")
	}
	// A proxy needs two descriptors for each connection, and some for itself.
	if most := int(raiseFiles()-100) / 2; o.idle > most {
		o.idle = most
	}
	b.idle = o.idle
	if err := b.pin(ctx); err != nil {
		leave(err)
	}
	s.Machine.Pinned = len(b.proxyCPU) > 0
	if err := b.startCallees(ctx); err != nil {
		return err
	}
	if err := b.startProxies(ctx, o.only, leave); err != nil {
		return err
	}
	for _, p := range b.proxy {
		s.Machine.Versions[p.name] = p.version
	}
	c, err := findCounter(ctx)
	if err != nil {
		leave(fmt.Errorf("system calls: %w", err))
	} else {
		s.SyscallsBy = c.name
	}
	s.dir, s.every = dir, keepEvery
	if o.within > 0 {
		s.end = s.begun.Add(o.within)
	}
	return s.follow(ctx, b.plan(o, s, c), stderr)
}

// plot draws the results. It needs a module of its own, so it may fail.
func (s *summary) plot(ctx context.Context, dir string, stderr io.Writer) {
	args := []string{"run", "-C", filepath.Join("bench", "datapath", "tools"), "./plot", dir}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(stderr, "left out: plots (go %s): %v %s\n", strings.Join(args, " "), err, tail(out))
	}
}
