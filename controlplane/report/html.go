package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed style.css
var style string

// maxDiagrams bounds how many degraded outcomes get a diagram of their own.
const maxDiagrams = 20

// page is what the template reads. Everything in it is plain text; html/template
// escapes it for where it stands.
type page struct {
	Style     template.CSS
	Title     string
	Version   string
	Start     string
	Summary   Summary
	Duration  string
	Stopped   string
	Warnings  []string
	Statement string
	Workload  []string
	Findings  []pageFinding
	Degraded  []pageFinding
	Coverage  pageCoverage
	Sidecars  []*campaignv1.SidecarStatus
	Nacks     int
	Trials    []pageTrial
	Others    []pageTrial
}

type pageFinding struct {
	ID, Summary  string
	Suspected    bool
	TemporalOnly bool
	Contrast     string
	Strikes      []strike
	Differences  []difference
	Diagram      *drawing
	Answers      []comparison
	Contrasts    []pageContrast
	Witnesses    int
	Groups       []witnessGroup
	// Open are the witnesses that might not come to it again, which was not checked.
	// Unsteady trials came to it, too, and might not again.
	Open, Unsteady []doubts
	Replay         string
}

// strike is one fault of a witness.
type strike struct {
	Where string
	When  []string
}

// difference is one entry of a signature.
type difference struct{ Kind, Text string }

type pageContrast struct {
	Baseline, Where, Outcome, Verdict string
	Same                              bool
}

type pageTrial struct {
	Number                                                       int
	ID, Name, Purpose, Fault, Half, Edge, API, K, Verdict, Class string
	Outcome, Reason, Duration, Fired, Pattern                    string
	// Finding has the id of the one that it came to; empty: none.
	Finding string
}

type pageCoverage struct {
	Space, Reached, Represented, Unreached uint32
	ReachedPercent, RepresentedPercent     int
	Rows                                   []pageRow
	Reasons                                []pageReason
}

type pageRow struct {
	Edge, API, Half, Fault, Unreached string
	Calls, Reached, Represented       uint32
	// Percent reached, and MorePercent by representatives.
	Percent, MorePercent int
}

type pageReason struct {
	Count  uint32
	Reason string
}

var pageParsed = template.Must(template.New("page").Parse(pageTemplate))

// HTML writes the report as one page that needs no other file and no script.
func HTML(w io.Writer, r *campaignv1.CampaignReport) error {
	return pageParsed.Execute(w, newPage(r))
}

func newPage(r *campaignv1.CampaignReport) page {
	p := page{
		Style:     template.CSS(style), //nolint:gosec // our own file
		Title:     r.GetSpec().GetName(),
		Version:   r.GetVersion(),
		Summary:   Summarise(r),
		Duration:  duration(r.GetDuration()),
		Stopped:   r.GetInterrupted(),
		Warnings:  r.GetWarnings(),
		Statement: r.GetCoverage().GetStatement(),
		Coverage:  newCoverage(r.GetCoverage()),
		Sidecars:  r.GetSidecars(),
	}
	if r.GetStart() != nil {
		p.Start = r.GetStart().AsTime().UTC().Format("2 January 2006, 15:04:05 UTC")
	}
	for _, s := range r.GetSpec().GetWorkload().GetSteps() {
		p.Workload = append(p.Workload, stepText(s))
	}
	for _, f := range r.GetFindings() {
		one := newFinding(f, true)
		one.Unsteady = byReason(unsteady(r, f))
		p.Findings = append(p.Findings, one)
	}
	for i, f := range r.GetDegraded() {
		one := newFinding(f, i < maxDiagrams)
		one.Unsteady = byReason(unsteady(r, f))
		p.Degraded = append(p.Degraded, one)
	}
	for _, s := range r.GetSidecars() {
		if s.GetNack() != "" {
			p.Nacks++
		}
	}
	findings := make(map[string]string) // by signature
	for _, f := range slices.Concat(r.GetFindings(), r.GetDegraded()) {
		findings[f.GetSignature().GetId()] = f.GetId()
	}
	for _, t := range r.GetTrials() {
		to := &p.Others
		if isCandidate(t) {
			to = &p.Trials
		}
		one := newTrial(len(*to)+1, t)
		if t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE {
			one.Finding = findings[t.GetSignature().GetId()]
		}
		*to = append(*to, one)
	}
	return p
}

func stepText(s *campaignv1.Step) string {
	switch a := s.GetAction().(type) {
	case *campaignv1.Step_Http:
		method := a.Http.GetMethod()
		if method == "" {
			method = "GET"
		}
		return method + " " + a.Http.GetUrl()
	case *campaignv1.Step_Command:
		var words []string
		for _, w := range a.Command.GetArgv() {
			words = append(words, shellQuote(w))
		}
		return "$ " + strings.Join(words, " ")
	}
	return s.GetName()
}

func newFinding(f *campaignv1.Finding, diagram bool) pageFinding {
	out := pageFinding{
		ID: f.GetId(), Summary: outcome(f.GetSignature()),
		Suspected:    f.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED,
		TemporalOnly: f.GetTemporalOnly(),
		Contrast:     contrastText(f),
		Replay:       ReplayCommand(f),
	}
	s := f.GetSignature()
	for _, list := range []struct {
		kind    string
		entries []string
	}{{"shape", s.GetShape()}, {"effect", s.GetEffects()}, {"probe", s.GetProbes()}, {"invariant", s.GetInvariants()}} {
		for _, e := range list.entries {
			out.Differences = append(out.Differences, difference{list.kind, clip(e, maxLine)})
		}
	}
	out.Witnesses, out.Groups = len(f.GetWitnesses()), groupWitnesses(f.GetWitnesses())
	out.Open = byReason(open(f))
	if len(f.GetWitnesses()) > 0 {
		t := f.GetWitnesses()[0]
		for _, tfic := range t.GetTfics() {
			out.Strikes = append(out.Strikes, strike{Where(tfic), When(tfic.GetGuard())})
		}
		out.Answers = compare(f.GetCleanAnswers(), t.GetAnswers())
		if diagram {
			out.Diagram = draw(t)
		}
	}
	for _, c := range f.GetContrasts() {
		one := pageContrast{Baseline: c.GetBaseline(), Same: c.GetSame(), Outcome: outcome(c.GetTrial().GetSignature()), Verdict: verdict(c.GetTrial().GetVerdict())}
		for _, tfic := range c.GetTrial().GetTfics() {
			one.Where = Where(tfic)
		}
		out.Contrasts = append(out.Contrasts, one)
	}
	return out
}

func newTrial(n int, t *campaignv1.Trial) pageTrial {
	out := pageTrial{
		Number: n, ID: t.GetId(), Name: trialName(t), Purpose: t.GetPurpose(), Fault: t.GetFault(), Pattern: t.GetPattern(),
		Verdict: verdict(t.GetVerdict()), Outcome: outcome(t.GetSignature()), Reason: t.GetReason(),
		Duration: duration(t.GetDuration()),
		Class:    strings.ToLower(strings.TrimPrefix(t.GetSignature().GetClass().String(), "OUTCOME_CLASS_")),
	}
	for i, tfic := range t.GetTfics() {
		s := tfic.GetTarget()
		if i > 0 {
			out.API += " + "
			out.Edge += " + "
		}
		out.API += s.GetApi()
		out.Edge += edge(s)
		out.Half = phase(s.GetPhase())
		if s.GetK() > 0 {
			out.K = fmt.Sprint(s.GetK())
		}
		if out.Fault == "" {
			out.Fault = faultOn(tfic.GetFault(), s.GetApi())
		}
	}
	if n := len(t.GetFired()); n != 1 {
		out.Fired = fmt.Sprintf("fired %d×", n)
	}
	return out
}

func newCoverage(c *campaignv1.Coverage) pageCoverage {
	out := pageCoverage{Space: c.GetSpace(), Reached: c.GetReached(), Represented: c.GetRepresented()}
	if done := c.GetReached() + c.GetRepresented(); c.GetSpace() > done {
		out.Unreached = c.GetSpace() - done
	}
	percent := func(n uint32) int { return percentOf(n, c.GetSpace()) }
	out.ReachedPercent = percent(out.Reached)
	out.RepresentedPercent = percent(out.Reached+out.Represented) - out.ReachedPercent
	for _, r := range c.GetRows() {
		reached := percentOf(r.GetReached(), r.GetCalls())
		out.Rows = append(out.Rows, pageRow{
			Edge: outside(r.GetCaller()) + " → " + r.GetCallee(), API: r.GetApi(), Half: phase(r.GetPhase()), Fault: r.GetFault(),
			Calls: r.GetCalls(), Reached: r.GetReached(), Represented: r.GetRepresented(), Unreached: r.GetUnreached(),
			Percent: reached, MorePercent: percentOf(r.GetReached()+r.GetRepresented(), r.GetCalls()) - reached,
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(c.GetUnreached())) {
		out.Reasons = append(out.Reasons, pageReason{c.GetUnreached()[reason], reason})
	}
	return out
}

func percentOf(n, all uint32) int {
	if all == 0 {
		return 0
	}
	return min(100, int(uint64(n)*100/uint64(all)))
}
