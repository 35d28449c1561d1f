package report

import (
	"fmt"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// witnessGroup are trials that differ only in which of several equal calls they
// struck.
type witnessGroup struct {
	Fault, Half, Edge, API string
	// Ranks of the calls, as `1, 3–10`; empty where no rank is named.
	Ranks string
	Count int
}

// groupWitnesses groups trials in the order in which the groups appear.
func groupWitnesses(trials []*campaignv1.Trial) []witnessGroup {
	var groups []witnessGroup
	ranks := make(map[witnessGroup][]uint32)
	counts := make(map[witnessGroup]int)
	for _, t := range trials {
		row := newTrial(0, t)
		g := witnessGroup{Fault: row.Fault, Half: row.Half, Edge: row.Edge, API: row.API}
		if counts[g] == 0 {
			groups = append(groups, g)
		}
		counts[g]++
		for _, f := range t.GetTfics() {
			if k := f.GetTarget().GetK(); k > 0 {
				ranks[g] = append(ranks[g], k)
			}
		}
	}
	for i, g := range groups {
		groups[i].Count = counts[g]
		groups[i].Ranks = ranges(ranks[g])
	}
	return groups
}

// witnessLines says where witnesses struck, a line for each api of an edge:
// `GET /route (frontend → route): error req #1, 3–10; abort resp #4`.
func witnessLines(trials []*campaignv1.Trial) []string {
	type place struct{ edge, api string }
	var order []place
	byPlace := make(map[place][]witnessGroup)
	for _, g := range groupWitnesses(trials) {
		at := place{g.Edge, g.API}
		if byPlace[at] == nil {
			order = append(order, at)
		}
		byPlace[at] = append(byPlace[at], g)
	}
	var lines []string
	for _, at := range order {
		var parts []string
		for _, g := range byPlace[at] {
			text := g.Fault + " " + g.Half
			if g.Ranks != "" && g.Ranks != "1" {
				text += " #" + g.Ranks
			}
			parts = append(parts, text)
		}
		lines = append(lines, fmt.Sprintf("%s (%s): %s", at.api, at.edge, strings.Join(parts, "; ")))
	}
	return lines
}

// unsteady returns the trials that came to a finding and are no witnesses, since they might
// not come to it again: their reason says why.
func unsteady(r *campaignv1.CampaignReport, f *campaignv1.Finding) []*campaignv1.Trial {
	witnesses := make(map[string]bool)
	for _, w := range f.GetWitnesses() {
		witnesses[w.GetId()] = true
	}
	var out []*campaignv1.Trial
	for _, t := range r.GetTrials() {
		if t.GetPurpose() == "candidate" && t.GetVerdict() == campaignv1.Verdict_VERDICT_EFFECTIVE && t.GetReason() != "" &&
			!witnesses[t.GetId()] && t.GetSignature().GetId() == f.GetSignature().GetId() {
			out = append(out, t)
		}
	}
	return out
}

// NotChecked begins the reason of a witness of which it is not known whether it brings its
// outcome about each time.
const NotChecked = "not checked: "

// open returns the witnesses of a finding of which that is not known.
func open(f *campaignv1.Finding) []*campaignv1.Trial {
	var out []*campaignv1.Trial
	for _, w := range f.GetWitnesses() {
		if strings.HasPrefix(w.GetReason(), NotChecked) {
			out = append(out, w)
		}
	}
	return out
}

// doubts are trials of one reason to doubt that they come to a finding again.
type doubts struct {
	Why    string
	Trials []*campaignv1.Trial
}

// Because is the reason where it is said already that nothing was checked.
func (d doubts) Because() string { return strings.TrimPrefix(d.Why, NotChecked) }

// Groups of the trials.
func (d doubts) Groups() []witnessGroup { return groupWitnesses(d.Trials) }

// byReason groups trials by their reasons, in the order in which those appear.
func byReason(trials []*campaignv1.Trial) []doubts {
	var out []doubts
	for _, t := range trials {
		i := slices.IndexFunc(out, func(d doubts) bool { return d.Why == t.GetReason() })
		if i < 0 {
			i = len(out)
			out = append(out, doubts{Why: t.GetReason()})
		}
		out[i].Trials = append(out[i].Trials, t)
	}
	return out
}

// ranges writes numbers as `1, 3–10`.
func ranges(list []uint32) string {
	slices.Sort(list)
	list = slices.Compact(list)
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, fmt.Sprint(list[i]))
		case 1:
			parts = append(parts, fmt.Sprint(list[i]), fmt.Sprint(list[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d–%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
