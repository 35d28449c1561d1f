package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Error   *junitText `xml:"error"`
	Skipped *junitText `xml:"skipped"`
	Out     *junitBody `xml:"system-out"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Body    string `xml:",chardata"`
}

type junitBody struct {
	Text string `xml:",chardata"`
}

// JUnit writes the report as one JUnit suite: a finding is a failure, a clean
// refusal a pass with output, an invalid trial an error, and a part of the fault
// space that was not reached is skipped. A suspected finding passes too; its
// output says what would confirm it. The first case is the campaign itself, an
// error if it was stopped.
func JUnit(w io.Writer, r *campaignv1.CampaignReport) error {
	name := r.GetSpec().GetName()
	suite := junitSuite{Name: name, Time: seconds(r.GetDuration().AsDuration().Seconds())}
	if r.GetStart() != nil {
		suite.Timestamp = r.GetStart().AsTime().UTC().Format("2006-01-02T15:04:05")
	}
	add := func(class, name string, time float64) *junitCase {
		suite.Cases = append(suite.Cases, junitCase{Class: class, Name: name, Time: seconds(time)})
		return &suite.Cases[len(suite.Cases)-1]
	}

	first := add(name, "campaign", r.GetDuration().AsDuration().Seconds())
	first.Out = &junitBody{r.GetCoverage().GetStatement()}
	for _, text := range r.GetWarnings() {
		first.Out.Text += "\nwarning: " + text
	}
	if r.GetInterrupted() != "" {
		first.Error = &junitText{Message: "the campaign was stopped before its end", Type: "interrupted", Body: r.GetInterrupted()}
	}
	for _, f := range r.GetFindings() {
		c := add(name+".findings", f.GetId()+" "+outcome(f.GetSignature()), witnessSeconds(f))
		if f.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED {
			c.Out = &junitBody{"suspected: an annotation (oracle.stateChanging, oracle.harmless) or a probe (workload.after) would decide\n" + why(f)}
			continue
		}
		c.Failure = &junitText{Message: outcome(f.GetSignature()), Type: "finding", Body: why(f)}
	}
	for _, f := range r.GetDegraded() {
		c := add(name+".degraded", f.GetId()+" "+outcome(f.GetSignature()), witnessSeconds(f))
		c.Out = &junitBody{why(f)}
	}
	for _, t := range r.GetTrials() {
		if t.GetVerdict() != campaignv1.Verdict_VERDICT_INVALID || !isCandidate(t) {
			continue
		}
		c := add(name+".trials", trialName(t), t.GetDuration().AsDuration().Seconds())
		c.Error = &junitText{Message: t.GetReason(), Type: "invalid", Body: "repeated " + plural(int(t.GetRepeats()), "time", "times")}
	}
	rows := false
	for _, row := range r.GetCoverage().GetRows() {
		if row.GetUnreached() == "" {
			continue
		}
		rows = true
		c := add(name+".coverage", fmt.Sprintf("%s → %s %s %s %s", outside(row.GetCaller()), row.GetCallee(), row.GetApi(),
			phase(row.GetPhase()), row.GetFault()), 0)
		c.Skipped = &junitText{Message: row.GetUnreached()}
	}
	if !rows {
		unreached := r.GetCoverage().GetUnreached()
		for _, reason := range slices.Sorted(maps.Keys(unreached)) {
			c := add(name+".coverage", "not reached: "+reason, 0)
			c.Skipped = &junitText{Message: fmt.Sprintf("%s: %s", plural(int(unreached[reason]), "point", "points"), reason)}
		}
	}

	suite.Tests = len(suite.Cases)
	for _, c := range suite.Cases {
		switch {
		case c.Failure != nil:
			suite.Failures++
		case c.Error != nil:
			suite.Errors++
		case c.Skipped != nil:
			suite.Skipped++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

func witnessSeconds(f *campaignv1.Finding) float64 {
	if len(f.GetWitnesses()) == 0 {
		return 0
	}
	return f.GetWitnesses()[0].GetDuration().AsDuration().Seconds()
}

// why says what led to a finding, a line each.
func why(f *campaignv1.Finding) string {
	var b strings.Builder
	for i, t := range f.GetWitnesses() {
		for _, tfic := range t.GetTfics() {
			fmt.Fprintf(&b, "%s\n", Where(tfic))
			if i == 0 {
				for n, c := range When(tfic.GetGuard()) {
					fmt.Fprintf(&b, "  %s %s\n", Conjunction(n), c)
				}
			}
		}
	}
	for _, c := range f.GetContrasts() {
		fmt.Fprintf(&b, "%s: %s\n", c.GetBaseline(), reaches(c))
	}
	if command := ReplayCommand(f); command != "" {
		fmt.Fprintf(&b, "replay: %s\n", command)
	}
	return b.String()
}

// reaches says whether a static injection leads to the same.
func reaches(c *campaignv1.Contrast) string {
	if c.GetSame() {
		return "reaches it too"
	}
	if s := outcome(c.GetTrial().GetSignature()); s != "" {
		return "does not: " + s
	}
	return "does not"
}

// trialName tells trials apart for people.
func trialName(t *campaignv1.Trial) string {
	var ids []string
	for _, tfic := range t.GetTfics() {
		ids = append(ids, tfic.GetId())
	}
	if len(ids) == 0 {
		return t.GetPurpose() + " " + t.GetId()
	}
	return strings.Join(ids, " + ")
}
