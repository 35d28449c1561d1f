package campaign

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// answered is the beginning of a summary that says how one step was answered.
var answered = regexp.MustCompile(`^((?:[Rr]efused with )?HTTP )(?:\d+(?:, \d+)* or )?\d+\b`)

// title has the summary name all statuses that witnesses got: an outcome is one whatever
// the status of a refusal is, and the summary is that of the witness that came first.
func (k *found) title() {
	summary := k.GetSignature().GetSummary()
	prefix, i := stepOf(summary, k.Witnesses)
	said := answered.FindStringSubmatch(summary[len(prefix):])
	statuses := statusesOf(k.Witnesses, i)
	if said == nil || len(statuses) < 2 {
		return
	}
	// The signature is a witness's own, whose summary stays as it is.
	k.Signature = proto.CloneOf(k.GetSignature())
	k.Signature.Summary = prefix + said[1] + oneOf(statuses) + summary[len(prefix)+len(said[0]):]
}

// stepOf returns the part of a summary that names a step, and the step's index; the first
// step, where none is named.
func stepOf(summary string, witnesses []*campaignv1.Trial) (string, int) {
	for _, w := range witnesses {
		for i, answer := range w.GetAnswers() {
			if prefix := "Step " + answer.GetStep() + ": "; strings.HasPrefix(summary, prefix) {
				return prefix, i
			}
		}
	}
	return "", 0
}

// statusesOf returns the statuses of the i-th answers, sorted.
func statusesOf(witnesses []*campaignv1.Trial, i int) []uint32 {
	var out []uint32
	for _, w := range witnesses {
		if i < len(w.GetAnswers()) && w.GetAnswers()[i].GetStatus() != 0 {
			out = append(out, w.GetAnswers()[i].GetStatus())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// oneOf writes numbers as `500, 502 or 503`.
func oneOf(list []uint32) string {
	var texts []string
	for _, n := range list {
		texts = append(texts, strconv.Itoa(int(n)))
	}
	last := len(texts) - 1
	return fmt.Sprintf("%s or %s", strings.Join(texts[:last], ", "), texts[last])
}
