package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
)

func (a *app) planCommand() *cobra.Command {
	var f planeFlags
	var candidates bool
	c := &cobra.Command{
		Use:   "plan campaign.yaml",
		Short: "Show what a campaign would try, and what that costs",
		Long: `Plan records clean runs, injects nothing, and shows which services and sidecars a
campaign would touch, the memory and CPU it adds to them, how many trials it
would make, and how long they would take.

Exit code 3 says that there is nothing to fault.`,
		Example: `  sequencefi plan campaign.yaml
  sequencefi plan campaign.yaml --candidates`,
		Args: oneFile("campaign file"),
	}
	f.add(c)
	c.Flags().BoolVar(&candidates, "candidates", false, "list every candidate")
	c.RunE = func(c *cobra.Command, args []string) error {
		planned, err := onPlane(c.Context(), a, args[0], f, campaign.Plan)
		if err != nil {
			return err
		}
		showPlan(a.stdout, planned, candidates)
		if planned.Nothing != "" {
			a.code = exitIncomplete
		}
		return nil
	}
	return c
}

func showPlan(w io.Writer, p *campaign.Planned, candidates bool) {
	var envoys, others int
	fmt.Fprintln(w, "services touched")
	for _, s := range p.Services {
		fmt.Fprintf(w, "  %-28s %s in a clean run\n", report.OneLine(s.Name), count(s.Calls, "call"))
		for _, one := range s.Sidecars {
			if strings.HasPrefix(one.Proxy, "envoy") {
				envoys++
			} else {
				others++
			}
			fmt.Fprintf(w, "    %s (%s)\n", report.OneLine(one.Instance), report.OneLine(one.Proxy))
		}
	}
	for _, leaf := range p.Leaves {
		fmt.Fprintf(w, "  %-28s no sidecar: faults are made at its callers\n", report.OneLine(leaf))
	}
	for _, text := range refusals(p.CleanAnswers) {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	if p.Nothing != "" {
		fmt.Fprintf(w, "there is nothing to fault: %s\n", report.OneLine(p.Nothing))
		return
	}
	if envoys > 0 {
		fmt.Fprintf(w, "added to each of %s while it runs\n", count(envoys, "Envoy"))
		fmt.Fprintf(w, "  memory  about %d MiB, of which Envoy keeps about %d MiB until it restarts\n", campaign.PluginBytes>>20, campaign.PluginKeptBytes>>20)
		fmt.Fprintf(w, "  CPU     about %v once, to compile the plugin\n", campaign.PluginLoadCPU)
	}
	if others > 0 {
		fmt.Fprintf(w, "nothing is loaded into %s\n", count(others, "native sidecar"))
	}

	fmt.Fprintln(w, "trials")
	fmt.Fprintf(w, "  %s, then %s with a fault and about %s\n", count(p.CleanRuns, "clean run"), count(p.Trials, "trial"), count(p.Controls, "control"))
	if c := p.Coverage; c != nil {
		fmt.Fprintf(w, "  of a fault space of %s; calls of one op are tried by representatives, the rest if those disagree\n", count(int(c.GetSpace()), "point"))
	}
	fmt.Fprintf(w, "  about %v each: about %v in all", p.OneRun.Round(10*time.Millisecond), p.Duration.Round(100*time.Millisecond))
	if envoys > 0 {
		fmt.Fprintf(w, ", after loading the plugin (%v just now)", p.Load.Round(100*time.Millisecond))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  budget  %s, %v\n", count(p.BudgetTrials, "trial"), p.BudgetDuration)
	if p.Trials > p.BudgetTrials {
		fmt.Fprintln(w, "  the budget ends it earlier: raise budget.trials for all of it")
	}
	if !candidates {
		return
	}
	fmt.Fprintln(w, "candidates")
	for _, c := range p.Candidates {
		fmt.Fprintf(w, "  %s (%s)\n", report.OneLine(c.GetId()), report.OneLine(c.GetPattern()))
		for _, t := range c.GetTfics() {
			fmt.Fprintf(w, "    %s\n", report.OneLine(report.Where(t)))
			for i, when := range report.When(t.GetGuard()) {
				fmt.Fprintf(w, "      %s %s\n", report.Conjunction(i), report.OneLine(when))
			}
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
