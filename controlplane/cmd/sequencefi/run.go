package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/service"
)

func (a *app) runCommand() *cobra.Command {
	var f planeFlags
	var out, solver string
	var throwaway bool
	c := &cobra.Command{
		Use:   "run campaign.yaml",
		Short: "Run a campaign and report what it found",
		Long: `Run waits for the sidecars of the topology, records clean runs, tries fault after
fault until nothing new can be found, and writes the report. Ctrl-C stops it:
every activation is taken back, and what was found until then is kept. The exit
code is then 3, as for any run that did not come to its end.

It writes into the --out directory report.html, report.json, junit.xml,
summary.json and a replay file for each finding. A run that made no trial leaves
those of an earlier run as they are; one that was stopped writes into the folder
interrupted there, if the earlier one was not.`,
		Example: `  sequencefi run campaign.yaml --out out/checkout
  sequencefi run campaign.yaml --traces jaeger://127.0.0.1:16685
  sequencefi run campaign.yaml --solver 127.0.0.1:18080`,
		Args: oneFile("campaign file"),
	}
	f.add(c)
	c.Flags().StringVar(&out, "out", "", "`directory` for the report (default: out/<campaign's name>)")
	c.Flags().StringVar(&solver, "solver", "", "`address` of a solver service (default: solve in this process)")
	c.Flags().BoolVar(&throwaway, "throwaway", false, "the system ends with this run, as in a test: show no command that replays on it")
	c.RunE = func(c *cobra.Command, args []string) error {
		a.throwaway = throwaway
		if solver != "" && !isSolverAddress(c.Context(), solver) {
			return badUsage(c, "--solver must be host:port of a solver service, not %q: start one by solver --listen 127.0.0.1:18080, or leave --solver out to solve in this process", solver)
		}
		spec, t, err := a.load(args[0], &f)
		if err != nil {
			return err
		}
		if out == "" {
			out = filepath.Join("out", spec.GetName())
		}
		if err := checkWritable(out); err != nil {
			return badUsage(c, "%w", err)
		}
		return a.run(c.Context(), spec, t, f, out, solver)
	}
	return c
}

// load reads a campaign with its topology and judges both.
func (a *app) load(path string, f *planeFlags) (*campaignv1.CampaignSpec, *topology.Topology, error) {
	spec, err := campaignfile.Load(path)
	if err != nil {
		return nil, nil, explainKind(path, kindCampaign, err)
	}
	t, err := f.loadTopology(campaignfile.TopologyPath(path, spec))
	if err != nil {
		return nil, nil, err
	}
	if err := campaign.Validate(spec, t); err != nil {
		return nil, nil, fmt.Errorf("campaign file %s: %w", path, err)
	}
	return spec, t, nil
}

func (a *app) run(ctx context.Context, spec *campaignv1.CampaignSpec, t *topology.Topology, f planeFlags, out, solver string) error {
	start := campaign.StartSolver(campaign.Embedded)
	if solver != "" {
		conn, err := dialSolver(ctx, solver)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		start = campaign.Remote(conn)
	}
	p, err := startPlane(ctx, f, t, a.stderr)
	if err != nil {
		return err
	}
	defer p.close()
	progress := newProgress(a.stderr)
	for _, note := range p.notes {
		progress.line(note)
	}
	// Sidecars that compile the plugin answer late.
	defer context.AfterFunc(ctx, func() { progress.line("stopping: taking the activations back") })()
	c := p.config(spec, t, f, progress)
	c.StartSolver = start
	r, err := campaign.Run(ctx, c)
	err = f.unreached(t, err)
	if gone := (*campaign.SolverGoneError)(nil); errors.As(err, &gone) {
		why := fmt.Sprintf("the solver at %s %s", solver, gone.What)
		if r != nil {
			r.Interrupted = why
		}
		err = fmt.Errorf("%s: %s", why, solverAdvice("start it again", solver))
	}
	progress.close()
	if r == nil {
		return err
	}
	r.Warnings = progress.warnings
	if err != nil && len(r.GetTrials()) > 0 {
		err = &incompleteError{err}
	}
	if failed := a.finish(r, t, out); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}

// solverTimeout bounds how long a solver service may take to answer at all.
const solverTimeout = 5 * time.Second

// isSolverAddress says whether text can be the address of a solver service: host:port, or a
// target with a scheme that gRPC knows, as unix:/run/solver.sock or dns:///shop:18080.
func isSolverAddress(ctx context.Context, text string) bool {
	if isTarget(text) {
		return true
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return false
	}
	_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	return err == nil
}

// isTarget says whether gRPC reads text as a scheme and what that names.
func isTarget(text string) bool {
	u, err := url.Parse(text)
	return err == nil && strings.Trim(u.Opaque+u.Host+u.Path, "/") != "" && resolver.Get(u.Scheme) != nil
}

// dialSolver connects to a solver service, so that a wrong address is seen
// before sidecars are touched. ctx's end is an error of its own.
func dialSolver(ctx context.Context, address string) (*grpc.ClientConn, error) {
	conn, err := service.NewClient(address)
	if err != nil {
		return nil, fmt.Errorf("--solver %s: %w", address, err)
	}
	waiting, cancel := context.WithTimeout(ctx, solverTimeout)
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.TransientFailure || !conn.WaitForStateChange(waiting, state) {
			_ = conn.Close()
			if ctx.Err() != nil {
				return nil, fmt.Errorf("connect to the solver at %s: %w", address, ctx.Err())
			}
			return nil, fmt.Errorf("no solver answers at %s: %s", address, solverAdvice("start one", address))
		}
	}
	return conn, nil
}

// solverAdvice says what to do where no solver service is at an address.
func solverAdvice(start, address string) string {
	how := " by solver --listen " + address
	if isTarget(address) {
		how = " there"
	}
	return start + how + ", or leave --solver out to solve in this process"
}

// finish writes a campaign's files, shows it, and sets the exit code.
func (a *app) finish(r *campaignv1.CampaignReport, t *topology.Topology, out string) error {
	s := report.Summarise(r)
	// What says nothing, or less, must not replace what says more.
	kept := s.Trials == 0 && hasResults(out)
	earlier := ""
	if !kept && r.GetInterrupted() != "" && hasComplete(out) {
		earlier, out = out, filepath.Join(out, interruptedDir)
	}
	o := report.TerminalOptions{Width: width(a.stdout), Colour: colour(a.stdout), HTML: filepath.Join(out, report.HTMLFile)}
	var failed error
	if !kept {
		// What cannot be written is shown at least: it took a whole campaign.
		failed = errors.Join(writeFindings(r, t, out, a.throwaway), report.Write(out, r))
	}
	if kept || failed != nil {
		o.HTML = ""
	}
	switch {
	case r.GetInterrupted() != "", s.Fired == 0:
		a.code = exitIncomplete
	case s.Findings > 0:
		a.code = exitFindings
	default:
		a.code = exitNothing
	}
	if err := report.Terminal(a.stdout, r, o); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	if r.GetInterrupted() == "" && r.GetCoverage() != nil && s.Fired == 0 {
		fmt.Fprintln(a.stdout, "\nno fault was made: sequencefi check shows edge by edge why there was nothing to fault, sequencefi plan what would be tried")
	}
	if kept {
		fmt.Fprintf(a.stdout, "\nno trial was made: the report and the findings of an earlier run in %s are left as they are\n", report.OneLine(out))
	}
	if earlier != "" {
		fmt.Fprintf(a.stdout, "\nthis run was stopped: its report is in %s, and that of an earlier, complete run in %s is left as it is\n",
			report.OneLine(out), report.OneLine(earlier))
	}
	return nil
}

// checkWritable makes the directory and a file in it, so that a wrong --out is seen
// before a campaign and not after it.
func checkWritable(out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	f, err := os.CreateTemp(out, ".sequencefi-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour follows https://no-color.org.
func colour(w any) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// width of a terminal, at most 120 columns; 80 for everything else.
func width(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 80
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 80
	}
	return min(n, 120)
}
