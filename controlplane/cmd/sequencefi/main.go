// Command sequencefi runs campaigns: it finds the moments at which a fault
// changes what a client gets. `sequencefi --help` lists its commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/policypoll"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/traces"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// version is set when the program is built.
var version = "unknown"

// The exit codes; the root command's help lists them.
const (
	exitNothing    = 0
	exitFindings   = 1
	exitUsage      = 2
	exitIncomplete = 3
)

func main() {
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stopping = append(stopping, syscall.SIGHUP) // a closed terminal; nohup is to outlast it
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopping...)
	go func() {
		// The first signal ends the work cleanly; a second one kills.
		<-ctx.Done()
		stop()
	}()
	os.Exit(doMain(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// doMain runs the program until its end, or cleanly to a stop when ctx ends,
// and returns its exit code.
func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean this process's own
	err := root.ExecuteContext(ctx)
	if err == nil {
		return a.code
	}
	fmt.Fprintf(stderr, "sequencefi: %s\n", plain(err.Error()))
	if usage := (*usageError)(nil); errors.As(err, &usage) && usage.command != nil {
		fmt.Fprintf(stderr, "%s --help shows how it is used\n", usage.command.CommandPath())
	}
	return exitCode(err)
}

// plain makes an error's text, which may quote files, proxies and services, safe for
// a terminal. Its lines stay.
func plain(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = report.OneLine(line)
	}
	return strings.Join(lines, "\n")
}

// app is what the commands share.
type app struct {
	stdout, stderr io.Writer
	// code is the exit code of a command that did its work.
	code int
	// throwaway: the system is not there any more when somebody reads the report.
	throwaway bool
}

// usageError is an error in how the program was called.
type usageError struct {
	command *cobra.Command
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *usageError) Unwrap() error { return e.err }

// badUsage says that a command was called wrongly.
func badUsage(c *cobra.Command, format string, args ...any) error {
	return &usageError{c, fmt.Errorf(format, args...)}
}

// incompleteError is what ended a campaign that had made trials, whatever they found.
type incompleteError struct{ err error }

func (e *incompleteError) Error() string { return e.err.Error() }

// Unwrap returns the error itself.
func (e *incompleteError) Unwrap() error { return e.err }

// exitCode tells what the user must put right from what went wrong.
func exitCode(err error) int {
	var incomplete *incompleteError
	if errors.As(err, &incomplete) {
		return exitIncomplete
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	for _, configuration := range []error{
		valid.ErrInvalid, topology.ErrInvalid, bootstrap.ErrIncomplete, policypoll.ErrTopology, policypoll.ErrFlags, errToken, traces.ErrTarget, traces.ErrEndpoint, ecds.ErrConfig, ecds.ErrNotWasm,
		campaign.ErrConfig, fs.ErrNotExist, fs.ErrPermission, syscall.EISDIR, bounded.ErrTooLarge, bounded.ErrNotRegular, trace.ErrFormat, trace.ErrNoEvents, trace.ErrSpan,
	} {
		if errors.Is(err, configuration) {
			return exitUsage
		}
	}
	return exitIncomplete
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sequencefi",
		Short: "Find the moments at which a fault breaks an answer",
		Long: `SequenceFI injects faults at one moment of a request (after the charge succeeded
but before its answer arrived) and finds those that change what the client gets,
without touching application code.

Exit codes:
  0  nothing was found (degraded and suspected outcomes count as nothing)
  1  there are findings; for replay: it was reproduced
  2  the command line or a file is wrong
  3  not completed, whatever was found until then: stopped, no sidecars or solver
     any more, nothing could be injected`,
		Example: `  sequencefi init --curl "curl http://shop.example/checkout -d @cart.json"
  sequencefi check campaign.yaml
  sequencefi run campaign.yaml --out out/checkout`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{c, err} })
	root.AddCommand(
		a.initCommand(), a.planCommand(), a.checkCommand(), a.runCommand(), a.replayCommand(), a.serveCommand(),
		a.solveCommand(), a.envoyCommand(), a.tfiproxyCommand(), a.reportCommand(), a.schemaCommand(), a.versionCommand(),
	)
	// The completion command takes its output from the root when it is made.
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.InitDefaultCompletionCmd()
	wrapArgs(root)
	return root
}

// wrapArgs makes cobra's complaints about arguments usage errors.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return &usageError{c, err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// oneFile is the check of commands that take a file.
func oneFile(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("want one %s, got %d arguments", what, len(args))
		}
		return nil
	}
}
