package report

import (
	"encoding/json"
	"io"
	"slices"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Summary is a campaign in numbers; summary.json holds it.
type Summary struct {
	// Findings are signatures that are findings for certain.
	Findings int `json:"findings"`
	// Suspected are those that only an annotation or a probe could confirm.
	Suspected int `json:"suspected"`
	// Degraded are clean refusals.
	Degraded int `json:"degraded"`
	// Trials with a candidate; clean runs, controls and contrasts not counted.
	Trials int `json:"trials"`
	// Fired and Invalid are how many of them fired, or said nothing.
	Fired   int `json:"fired"`
	Invalid int `json:"invalid"`
	// Exhausted: every point of the fault space was judged.
	Exhausted bool `json:"exhausted"`
	// Seconds from the fleet's readiness to the last judgement.
	Seconds float64 `json:"seconds"`
	// Proxies are the kinds of sidecars that took part, with their versions, sorted.
	Proxies []string `json:"proxies"`
}

// Summarise counts.
func Summarise(r *campaignv1.CampaignReport) Summary {
	s := Summary{
		Degraded:  len(r.GetDegraded()),
		Exhausted: r.GetCoverage().GetExhausted(),
		Seconds:   r.GetSearchDuration().AsDuration().Seconds(),
		Proxies:   []string{},
	}
	for _, sidecar := range r.GetSidecars() {
		s.Proxies = append(s.Proxies, sidecar.GetProxy())
	}
	slices.Sort(s.Proxies)
	s.Proxies = slices.Compact(s.Proxies)
	if r.GetSearchDuration() == nil {
		s.Seconds = r.GetDuration().AsDuration().Seconds()
	}
	for _, f := range r.GetFindings() {
		if f.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED {
			s.Suspected++
		} else {
			s.Findings++
		}
	}
	for _, t := range r.GetTrials() {
		if !isCandidate(t) {
			continue
		}
		s.Trials++
		if len(t.GetFired()) > 0 {
			s.Fired++
		}
		if t.GetVerdict() == campaignv1.Verdict_VERDICT_INVALID {
			s.Invalid++
		}
	}
	return s
}

// isCandidate reports whether a trial tried a candidate of the solver.
func isCandidate(t *campaignv1.Trial) bool {
	return t.GetPurpose() == "candidate" || t.GetPurpose() == ""
}

func writeSummary(w io.Writer, r *campaignv1.CampaignReport) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(Summarise(r))
}
