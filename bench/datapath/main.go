// Command datapath compares what sidecars cost: TFIProxy, Envoy, nginx, HAProxy
// and two references in Go, all with one worker, in one interleaved run on loopback. It
// writes out/datapath/{table.txt,results.csv,summary.json}.
//
// The proxies have one CPU and all else another, where there are two. What counts is
// the CPU time of the proxy's process a request: it depends on the machine, but much less
// on what else the machine does than throughput and latency do. Ratios within one
// run are what can be compared.
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
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := doMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settle is how long idle connections are left alone before memory is read.
const settle = 7 * time.Second

type options struct {
	out      string
	rounds   int
	duration time.Duration
	rate     int
	idle     int
	only     string
}

func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("datapath", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	role := flags.String("role", "", "run as a part of the bench, in a process of its own")
	listen := flags.String("listen", "", "address of a role")
	upstream := flags.String("upstream", "", "upstream of a role")
	flags.StringVar(&o.out, "out", "out/datapath", "where results are written")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; the medians count")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "of one measurement")
	flags.IntVar(&o.rate, "rate", 2000, "requests a second of the latency measurement; must be below every proxy's knee")
	flags.IntVar(&o.idle, "idle", 9000, "idle connections for the memory measurement; 0: none (descriptors: twice as many in the proxy)")
	flags.StringVar(&o.only, "only", "", "names of proxies, separated by commas; empty: all")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	if *role != "" {
		f := roles[*role]
		if f == nil {
			fmt.Fprintf(stderr, "no role %q\n", *role)
			return 64
		}
		fmt.Fprintln(stderr, f(*listen, *upstream))
		return 1
	}
	if err := bench(ctx, &o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func workloads() []workload {
	var all []workload
	for _, n := range []int{1, 4, 8, 16, 64} {
		all = append(all, workload{name: fmt.Sprintf("HTTP/1.1, 12 B, %d connections", n), connections: n, bytes: 12})
	}
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		all = append(all, workload{name: fmt.Sprintf("HTTP/1.1, %d KiB, 8 connections", n>>10), connections: 8, bytes: n})
	}
	all = append(all, workload{name: "HTTP/1.1, 12 B, 8 connections, a trial's", connections: 8, bytes: 12, trial: true})
	for _, n := range []int{1, 8} {
		all = append(all, workload{name: fmt.Sprintf("gRPC unary, %d connections of 10", n), grpc: true, connections: n})
	}
	return append(all, workload{name: "gRPC unary, 8 connections of 10, a trial's", grpc: true, connections: 8, trial: true})
}

func bench(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	dir, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b := &bed{dir: dir, tfiproxy: filepath.Join(dir, "tfiproxy")}
	defer b.stop()
	if b.program, err = os.Executable(); err != nil {
		return err
	}
	for _, tool := range [][2]string{{"wrk", "wrk"}, {"h2load", "nghttp2-client"}} {
		if _, err := find(tool[0], tool[1]); err != nil {
			return err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.tfiproxy, "./plugin/tfiproxy/cmd/tfiproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	var loadPin []string
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() >= 2 {
		b.pinned, loadPin = []string{taskset, "-c", "1"}, []string{taskset, "-c", "0"}
	}
	proxies, err := b.startAll(ctx, o, stderr)
	defer func() {
		for _, p := range proxies {
			if p.stop != nil {
				p.stop()
			}
		}
	}()
	if err != nil {
		return err
	}
	body, err := b.write("message", "\x00\x00\x00\x00\x05hello")
	if err != nil {
		return err
	}
	s := newSummary(o, len(loadPin) > 0)
	for _, p := range proxies {
		if err := s.memory(p, "idle"); err != nil {
			return err
		}
	}
	all := workloads()
	for round := range o.rounds {
		for i := range all {
			for _, p := range proxies {
				if err := s.measure(ctx, &all[i], p, loadPin, body, o.duration); err != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					fmt.Fprintf(stderr, "%s, %s: %v\n", p.name, all[i].name, err)
				}
			}
			fmt.Fprintf(stderr, "\rround %d of %d: %-50s", round+1, o.rounds, all[i].name)
		}
		for _, p := range proxies {
			l, err := openLoop(ctx, p.http, o.rate, o.duration)
			if err != nil {
				return fmt.Errorf("latency of %s: %w", p.name, err)
			}
			s.latency(p, l)
		}
	}
	fmt.Fprintln(stderr)
	for _, p := range proxies {
		if err := s.memory(p, "after load"); err != nil {
			return err
		}
	}
	if o.idle > 0 {
		for _, p := range proxies {
			if p.pid == 0 {
				continue
			}
			done, err := idle(p.http, o.idle)
			if err != nil {
				fmt.Fprintf(stderr, "%s, %d idle connections: %v\n", p.name, o.idle, err)
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
			err = s.memory(p, fmt.Sprintf("%d idle connections", o.idle))
			done()
			if err != nil {
				return err
			}
		}
	}
	return s.write(dir, stdout)
}

// startAll starts the callees and all proxies that this machine has.
func (b *bed) startAll(ctx context.Context, o *options, stderr io.Writer) ([]*proxy, error) {
	b.http, b.grpc, b.collector = freeAddress(), freeAddress(), freeAddress()
	for role, address := range map[string]string{"backend": b.http, "grpc-backend": b.grpc, "collector": b.collector} {
		if _, err := b.start(false, b.program, "-role", role, "-listen", address); err != nil {
			return nil, err
		}
		if err := await(ctx, address); err != nil {
			return nil, err
		}
	}
	proxies := []*proxy{{name: "direct", http: b.http, grpc: b.grpc}}
	for _, x := range []struct {
		name  string
		start func() (*proxy, error)
	}{
		{"tfiproxy", func() (*proxy, error) { return b.startTFIProxy("tfiproxy", true) }},
		{"nginx", b.startNginx},
		{"haproxy", b.startHAProxy},
		{"envoy", func() (*proxy, error) { return b.startEnvoy(ctx) }},
		{"reverseproxy", func() (*proxy, error) { return b.startRole("reverseproxy", b.http) }},
		{"pump", func() (*proxy, error) { return b.startRole("pump", b.http) }},
	} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), x.name) {
			continue
		}
		p, err := x.start()
		if errors.Is(err, errMissing) {
			fmt.Fprintf(stderr, "left out: %v\n", err)
			continue
		}
		if err != nil {
			return proxies, fmt.Errorf("%s: %w", x.name, err)
		}
		proxies = append(proxies, p)
		if err := await(ctx, p.http); err != nil {
			return proxies, err
		}
	}
	return proxies, nil
}

// measure runs a workload at a proxy and takes down what it cost.
func (s *summary) measure(ctx context.Context, w *workload, p *proxy, pin []string, body string, d time.Duration) error {
	switch {
	case w.grpc && p.grpc == "",
		w.trial && p.name != "tfiproxy",
		p.name == "pump" && w.bytes > 8<<10: // it holds for answers of one read only
		return nil
	}
	var before envoy.Usage
	var err error
	if p.pid != 0 {
		if before, err = envoy.ReadUsage(p.pid); err != nil {
			return err
		}
	}
	begun := time.Now()
	n, err := w.run(ctx, p, pin, body, d)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if n == 0 {
		return errors.New("no request was answered")
	}
	var after envoy.Usage
	if p.pid != 0 {
		if after, err = envoy.ReadUsage(p.pid); err != nil {
			return err
		}
	}
	s.add(w.name, p.name, float64((after.CPU-before.CPU).Microseconds())/float64(n), float64(n)/took.Seconds(), after.RSS)
	return nil
}
