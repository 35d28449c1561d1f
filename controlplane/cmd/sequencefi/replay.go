package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func (a *app) replayCommand() *cobra.Command {
	var f planeFlags
	var times int
	var other string
	var all bool
	c := &cobra.Command{
		Use:   "replay finding.yaml",
		Short: "Reproduce a finding",
		Long: `Replay runs a finding's smallest witness again, against clean runs of its own, and
says how often the same outcome came back, and what came instead. --all runs its
other witnesses too, which came to it by another fault or another call. The file
that run wrote has all it needs. Where the system now has other addresses,
--campaign names a campaign file that has them.

Runs count in which the fault was injected. Exit code 1 says that each was
reproduced each time, 0 that none ever was, and 3 that some were now and then, that
a fault was never injected, or that replay could not be completed.`,
		Example: `  sequencefi replay out/checkout/findings/F1.yaml
  sequencefi replay out/checkout/findings/F1.yaml --times 20
  sequencefi replay out/checkout/findings/F1.yaml --all
  sequencefi replay F1.yaml --campaign staging/campaign.yaml`,
		Args: oneFile("replay file"),
	}
	f.add(c)
	c.Flags().IntVarP(&times, "times", "n", 5, "how often to run each witness")
	c.Flags().BoolVar(&all, "all", false, "run every witness, not the smallest only")
	c.Flags().StringVar(&other, "campaign", "", "take workload, oracle and topology from this campaign `file`")
	c.RunE = func(c *cobra.Command, args []string) error {
		if times < 1 {
			return badUsage(c, "--times must be at least 1, not %d", times)
		}
		return a.replay(c.Context(), args[0], other, f, times, all)
	}
	return c
}

func (a *app) replay(ctx context.Context, path, other string, f planeFlags, times int, all bool) error {
	file, t, err := campaign.LoadReplay(path)
	err = explainKind(path, kindReplay, err)
	if errors.Is(err, campaign.ErrReplayFile) {
		return &usageError{err: err}
	}
	if err != nil {
		return err
	}
	spec := file.GetSpec()
	switch {
	case other != "":
		if spec, t, err = a.load(other, &f); err != nil {
			return err
		}
	case f.topology != "":
		if t, err = topology.Load(f.topology); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.stdout, "%s: %s\n", report.OneLine(file.GetFinding()), report.OneLine(file.GetSignature().GetSummary()))
	witnesses := campaign.Witnesses(file)
	if !all {
		witnesses = witnesses[:1]
		a.showWitness(witnesses[0])
	}
	p, err := startPlane(ctx, f, t, a.stderr)
	if err != nil {
		return err
	}
	defer p.close()
	progress := newProgress(a.stderr)
	seen, err := campaign.Replay(ctx, p.config(spec, t, f, progress), file, witnesses, times)
	progress.close()
	err = f.unreached(t, err)
	for i, r := range seen {
		if all {
			a.showWitness(witnesses[i])
		}
		if r.Runs > 0 {
			a.showReplay(r)
		}
	}
	if errors.Is(err, campaign.ErrNotReady) && !errors.Is(err, campaign.ErrPush) && other == "" && f.topology == "" {
		return fmt.Errorf("%w\nthe addresses are those of %s; where the system has others now, --campaign names the campaign file that has them", err, path)
	}
	if err != nil {
		return err
	}
	a.code = replayCode(seen)
	return nil
}

// replayCode is the exit code of a replay that was completed. A witness whose fault was
// never injected says nothing either way.
func replayCode(seen []*campaign.Replayed) int {
	injected, reproduced := 0, 0
	for _, r := range seen {
		if r.Injected == 0 {
			return exitIncomplete
		}
		injected, reproduced = injected+r.Injected, reproduced+r.Reproduced
	}
	switch reproduced {
	case 0:
		return exitNothing
	case injected:
		return exitFindings
	}
	return exitIncomplete
}

func (a *app) showWitness(w *campaignv1.ReplayWitness) {
	for _, tfic := range w.GetTfics() {
		fmt.Fprintf(a.stdout, "  %s\n", report.OneLine(report.Where(tfic)))
		for i, when := range report.When(tfic.GetGuard()) {
			fmt.Fprintf(a.stdout, "    %s %s\n", report.Conjunction(i), report.OneLine(when))
		}
	}
}

func (a *app) showReplay(r *campaign.Replayed) {
	fmt.Fprintln(a.stdout, report.OneLine(r.String()))
	for _, what := range slices.Sorted(maps.Keys(r.Otherwise)) {
		text := strings.TrimSpace(report.OneLine(what))
		if text == "" {
			text = "as in clean runs"
		}
		fmt.Fprintf(a.stdout, "  %d× instead: %s\n", r.Otherwise[what], text)
	}
	if r.Disturbed != "" {
		fmt.Fprintf(a.stdout, "the clean run after them was not clean (%s): reset the system's state in the workload's before steps\n", report.OneLine(r.Disturbed))
	}
}
