// Command demo runs a campaign on HotROD behind real sidecars (`make demo`).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sequencefi/sequencefi/bench/demo"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes.
const (
	exitFound       = 0 // the campaign ran and found something, as it should
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

const usage = `Runs a campaign on HotROD behind real sidecars and leaves the report in out/demo.

  demo                    four Envoys, everything else embedded
  demo --proxy tfiproxy   four TFIProxies; mixed: two of each
  demo --jaeger           with a real Jaeger, which gets the spans and is asked for them
  demo --hold             start the environment only, and keep it until Ctrl-C

`

// doMain is the command; it returns the exit code.
func doMain(args []string, stdout, stderr *os.File) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	var o demo.RunOptions
	bin := binDir()
	flags.StringVar(&o.Dir, "out", filepath.Join("out", "demo"), "where the report is written")
	flags.BoolVar(&o.Jaeger, "jaeger", false, "use a real Jaeger")
	flags.BoolVar(&o.Fetch, "fetch", false, "let the sidecars fetch the plugin over HTTP")
	flags.IntVar(&o.Workers, "workers", 1, "workers of each sidecar")
	flags.StringVar(&o.Product, "sequencefi", filepath.Join(bin, "sequencefi"), "the sequencefi command")
	flags.StringVar(&o.Plugin, "plugin", "", "the wasm module (default: the one beside the sequencefi command)")
	proxy := flags.String("proxy", "envoy", "the sidecars: envoy, tfiproxy or mixed")
	flags.StringVar(&o.TFIProxy, "tfiproxy", filepath.Join(bin, "tfiproxy"), "the tfiproxy command")
	flags.StringVar(&o.EnvoyVersion, "envoy-version", "", "another version of Envoy; before 1.39 it needs --plugin")
	hold := flags.Bool("hold", false, "run no campaign; keep the environment until Ctrl-C")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "demo: %q is not a flag; see demo --help\n", flags.Arg(0))
		return exitUsage
	}
	var known bool
	if o.Native, known = demo.Native[*proxy]; !known {
		fmt.Fprintf(stderr, "demo: --proxy must be envoy, tfiproxy or mixed, not %q\n", *proxy)
		return exitUsage
	}
	// A second Ctrl-C ends this process at once, and with it, by the kernel, all
	// that it started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)

	began := time.Now()
	o.Step = func(line string) { fmt.Fprintf(stdout, "%6.1fs  %s\n", time.Since(began).Seconds(), line) }
	o.Output = stdout
	var err error
	if *hold {
		err = keep(ctx, o, stdout)
	} else {
		err = run(ctx, o, stdout, began)
	}
	switch {
	case err == nil:
		return exitFound
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "demo: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "demo: %v\n", err)
	return exitFailed
}

var errNothingFound = errors.New("the campaign found nothing, although HotROD has a bug to be found")

func run(ctx context.Context, o demo.RunOptions, stdout io.Writer, began time.Time) error {
	out, err := demo.Run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, `
  sidecars %s
  findings %d, degraded %d, suspected %d; %d trials, %d fired, %d invalid, exhausted: %v
  search %.1fs, with getting the sidecars ready %.1fs, all in all %.1fs
  report %s
  to replay a finding: keep the system running by %s --hold%s, and beside it
  %s replay %s --campaign %s
`, strings.Join(out.Proxies, ", "), out.Findings, out.Degraded, out.Suspected, out.Trials, out.Fired, out.Invalid, out.Exhausted,
		out.Seconds, out.Search.Seconds(), time.Since(began).Seconds(), filepath.Join(out.Dir, "report.html"),
		filepath.Join(binDir(), "demo"), proxyFlag(o), o.Product, filepath.Join(out.Dir, "findings", "F1.yaml"), filepath.Join(out.Dir, "campaign.yaml"))
	if out.Findings == 0 {
		return errNothingFound
	}
	return nil
}

// keep holds the environment, for those who want to look around in it.
func keep(ctx context.Context, o demo.RunOptions, stdout io.Writer) error {
	env, err := demo.Start(ctx, o.Options)
	if err != nil {
		return err
	}
	defer env.Close()
	var traces string
	if t := env.Traces(); t != "" {
		traces = " --traces " + t
	}
	fmt.Fprintf(stdout, "\n  %s run %s --out %s%s\n", o.Product, env.CampaignFile, env.Dir, traces)
	fmt.Fprintf(stdout, "  %s replay %s --campaign %s%s\n", o.Product, filepath.Join(env.Dir, "findings", "F1.yaml"), env.CampaignFile, traces)
	fmt.Fprintln(stdout, "  Ctrl-C ends the environment")
	<-ctx.Done()
	return nil
}

// proxyFlag is the flag that asks for the same sidecars again.
func proxyFlag(o demo.RunOptions) string {
	switch {
	case len(o.Native) == 0:
		return ""
	case len(o.Native) == len(demo.Native["tfiproxy"]):
		return " --proxy tfiproxy"
	}
	return " --proxy mixed"
}

// binDir is where this command stands, and the product with it.
func binDir() string {
	self, err := os.Executable()
	if err != nil {
		return "bin"
	}
	return filepath.Dir(self)
}
