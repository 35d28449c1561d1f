package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

func (a *app) checkCommand() *cobra.Command {
	var f planeFlags
	c := &cobra.Command{
		Use:   "check campaign.yaml",
		Short: "Check that sidecars are reached and trace context survives",
		Long: `Check sends the campaign's requests, traced and with nothing injected, and shows
edge by edge whether trace context survives, where it is lost, and what that
costs. Broken propagation is the commonest reason for a first campaign to find
nothing.

Where nothing is wrong it finds out which trace formats the services forward, and
names the fewest that the topology's propagation needs. To write them there is up
to you: it spares Envoys look-ups. For all this check sends the requests twice;
then, unless the topology has one format only, once in each that
it has (all four if it names none), once in its traceHeader alone, and once in a
set of formats that seems enough, or up to four such sets until one is.

Exit code 3 says that something is wrong, or that a request is refused.`,
		Example: `  sequencefi check campaign.yaml`,
		Args:    oneFile("campaign file"),
	}
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		checked, err := onPlane(c.Context(), a, args[0], f, func(ctx context.Context, config campaign.Config) (*campaign.Checked, error) {
			checked, err := campaign.Check(ctx, config)
			if err == nil {
				if why := f.unreported(config.Topology, checked); why != "" {
					fmt.Fprintf(a.stdout, "problem: no report has come: %s\n", report.OneLine(why))
				}
			}
			return checked, err
		})
		if checked != nil {
			showCheck(a.stdout, checked)
		}
		if err != nil {
			return err
		}
		if !checked.OK() || len(refusals(checked.Answers, checked.Problems...)) > 0 {
			a.code = exitIncomplete
		}
		return nil
	}
	return c
}

func showCheck(w io.Writer, c *campaign.Checked) {
	fmt.Fprintln(w, "sidecars")
	for _, s := range c.Sidecars {
		fmt.Fprintf(w, "  %-36s %s\n", report.OneLine(s.Service+"/"+s.Instance+" ("+s.Proxy+")"), report.OneLine(stateOf(s)))
	}
	fmt.Fprintln(w, "answers")
	for _, answer := range c.Answers {
		got := fmt.Sprintf("HTTP %d, %s", answer.GetStatus(), count(len(answer.GetBody()), "byte"))
		if answer.GetError() != "" {
			got = "none: " + answer.GetError()
		} else if answer.GetStatus() == 0 {
			got = fmt.Sprintf("exit code %d", answer.GetExitCode())
		}
		fmt.Fprintf(w, "  step %s: %s\n", report.OneLine(answer.GetStep()), report.OneLine(got))
	}
	refused := refusals(c.Answers, c.Problems...)
	for _, text := range refused {
		fmt.Fprintf(w, "problem: %s\n", text)
	}
	fmt.Fprintln(w, "edges")
	for _, e := range c.Edges {
		text := fmt.Sprintf("  %-6s  %-32s %s", e.State, report.OneLine(edgeName(e.Caller, e.Callee)), count(e.Calls, "call")+byOf(&e)+failuresOf(&e))
		if !e.Declared && e.Caller != "" {
			text += ", not in the topology"
		}
		fmt.Fprintln(w, strings.TrimRight(text, " "))
		if failsAlways(&e) {
			fmt.Fprintf(w, "          with nothing injected: is %s up, and does %s reach it? A campaign learns little from calls that fail anyhow\n",
				report.OneLine(e.Callee), report.OneLine(outside(e.Caller)))
		}
		if e.Why != "" {
			fmt.Fprintf(w, "          %s\n", report.OneLine(e.Why))
		}
		if e.Costs != "" {
			fmt.Fprintf(w, "          it costs: %s\n", report.OneLine(e.Costs))
		}
	}
	showFormats(w, c)
	missed := slices.ContainsFunc(c.Edges, func(e campaign.Edge) bool { return e.State == campaign.EdgeUnseen })
	if len(c.Carried) > 0 && (missed || !c.OK()) {
		fmt.Fprintf(w, "requests carried %s only, by the topology's propagation: without that line check tries all formats\n", strings.Join(c.Carried, " and "))
	}
	if c.Incomplete != "" {
		fmt.Fprintf(w, "reports are incomplete: %s\n", report.OneLine(c.Incomplete))
	}
	for _, p := range c.Problems {
		fmt.Fprintf(w, "problem: %s\n", report.OneLine(p))
	}
	if !c.OK() || len(refused) > 0 {
		return
	}
	verdict := "all is well"
	if slices.ContainsFunc(c.Edges, func(e campaign.Edge) bool { return failsAlways(&e) }) {
		fmt.Fprintln(w, "trace context survives, but over an edge above every call fails")
		return
	}
	if slices.ContainsFunc(c.Edges, func(e campaign.Edge) bool { return e.State == campaign.EdgeUnseen }) {
		verdict = "nothing is wrong if this workload does not use the unseen edges"
	}
	fmt.Fprintf(w, "%s; the last report came %v after the answer\n", verdict, c.Tail.Round(time.Millisecond))
}

// showFormats says which trace formats are forwarded, and what to write into the topology.
func showFormats(w io.Writer, c *campaign.Checked) {
	f := c.Formats
	if f == nil {
		return
	}
	fmt.Fprintln(w, "trace formats")
	width := 8
	for _, one := range f.Each {
		width = max(width, len(report.OneLine(one.Name)))
	}
	own := "" // the header that is enough by itself
	for _, one := range f.Each {
		text := "survives over every edge above that was used"
		if len(one.Lost) > 0 {
			text = "lost over " + lostCalls(one.Lost)
		} else if !slices.Contains(topology.Formats(), one.Name) {
			own = one.Name
		}
		if one.Unknown != "" {
			text = "not known: not seen over " + lostCalls(one.Lost) + ", but its run was another one: " + one.Unknown
		}
		fmt.Fprintf(w, "  %-*s  %s\n", width, report.OneLine(one.Name), report.OneLine(text))
	}
	for _, e := range f.Unsteady {
		fmt.Fprintf(w, "  not known of %s, which not every ordinary run used\n", report.OneLine(edgeName(e.Caller, e.Callee)))
	}
	if len(f.Commands) > 0 {
		fmt.Fprintf(w, "  a command (step %s) may send trace headers of its own making beside the one format of a run\n", report.OneLine(strings.Join(f.Commands, ", ")))
	}
	if f.Enough == nil {
		fmt.Fprintf(w, "  the topology's propagation stays as it is: %s\n", report.OneLine(f.Why))
		return
	}
	spared := "a trial's requests then carry no other format, and that is all: TFIProxies look for every one anyhow"
	if f.Headers > 0 {
		spared = fmt.Sprintf("Envoys then look for %s in every ordinary request instead of %d", count(f.Left, "header"), f.Headers)
	}
	shown := "a run with that lost nothing"
	if own != "" {
		shown += ": " + report.OneLine(own) + " is enough by itself, and one format is the least that a topology has"
	}
	if slices.ContainsFunc(c.Edges, func(e campaign.Edge) bool { return e.State == campaign.EdgeUnseen }) {
		shown += "; the unseen edges may need more: see first why they are"
	}
	fmt.Fprintf(w, "you may write `propagation: [%s]` into the topology: %s (%s)\n", strings.Join(f.Enough, ", "), spared, shown)
}

// lostCalls names the first few.
func lostCalls(lost []campaign.LostCall) string {
	const most = 3
	var names []string
	for _, l := range lost[:min(most, len(lost))] {
		name := edgeName(l.Caller, l.Callee)
		if l.API != "" {
			name += " " + l.API
		}
		if l.Seen > 0 {
			name += fmt.Sprintf(" (%d of %s seen)", l.Seen, count(l.Of, "call"))
		}
		names = append(names, name)
	}
	if more := len(lost) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// edgeName names an edge for people.
func edgeName(caller, callee string) string { return outside(caller) + " → " + callee }

func outside(caller string) string {
	if caller == "" {
		return "client"
	}
	return caller
}

// byOf says what the trial was known by, where that is not what most applications forward.
func byOf(e *campaign.Edge) string {
	if len(e.By) == 0 || slices.Equal(e.By, []string{campaign.ByLongID}) {
		return ""
	}
	return ", known by " + strings.Join(e.By, " or ")
}

// failsAlways says whether no call over an edge succeeds. Its entry is no such edge: of what
// the client gets, refusals tell.
func failsAlways(e *campaign.Edge) bool {
	return e.Caller != "" && e.Answers > 0 && failed(e) == e.Answers
}

func failed(e *campaign.Edge) int {
	n := 0
	for _, of := range e.Failures {
		n += of
	}
	return n
}

// failuresOf says how many of an edge's calls failed, and how; empty: none did.
func failuresOf(e *campaign.Edge) string {
	kinds := slices.Sorted(maps.Keys(e.Failures))
	what := strings.Join(kinds, " or ")
	switch n := failed(e); {
	case n == 0:
		return ""
	case n < e.Answers:
		return fmt.Sprintf(", %d of %s in all runs: %s", n, count(e.Answers, "answer"), what)
	case e.Calls == 1:
		return ", " + what
	case e.Calls == 2:
		return ", both " + what
	default:
		return ", all " + what
	}
}
