package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// refusals says of each step that is refused with nothing injected what to look at. A campaign
// may be about a refusal, so it is not an error; mostly the system is down or the URL wrong.
// A probe that never answers cannot tell harm from none. told are problems known already.
func refusals(answers []*campaignv1.Answer, told ...string) []string {
	var out []string
	for _, a := range answers {
		var what, right string
		switch {
		case a.GetError() != "":
			known := func(problem string) bool { return strings.HasPrefix(problem, "step "+a.GetStep()+": no answer") }
			if slices.ContainsFunc(told, known) {
				continue
			}
			what, right = "none ("+report.OneLine(a.GetError())+")", "is what it asks for there? A campaign learns nothing from answers that never come"
		case a.GetStatus() >= 400:
			what, right = fmt.Sprintf("HTTP %d", a.GetStatus()), "is the system up and the URL right? A campaign on a refused request finds little"
		case a.GetExitCode() != 0:
			what, right = fmt.Sprintf("exit code %d", a.GetExitCode()), "does it pass without SequenceFI? A campaign on a failing command finds little"
		default:
			continue
		}
		out = append(out, fmt.Sprintf("step %s: clean answers are %s: %s", report.OneLine(a.GetStep()), what, right))
	}
	return out
}
