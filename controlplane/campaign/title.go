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

// maxMarks bounds what a summary names beside the worst that was seen.
const maxMarks = 3

// tellApart has summaries that read alike name what else there is to their outcomes: each is of
// the worst that was seen, and of the first of several.
func (f *findings) tellApart() {
	alike := make(map[string][]*found)
	for _, k := range f.list {
		alike[k.GetSignature().GetSummary()] = append(alike[k.GetSignature().GetSummary()], k)
	}
	for _, group := range alike {
		have := make(map[string]int)
		for _, k := range group {
			for _, mark := range k.marks() {
				have[mark]++
			}
		}
		for _, k := range group {
			own := slices.DeleteFunc(k.marks(), func(mark string) bool { return have[mark] == len(group) })
			if n := len(own) - maxMarks; n > 0 {
				own = append(own[:maxMarks], fmt.Sprintf("%d more", n))
			}
			k.lengthen(own)
		}
	}
}

func (k *found) lengthen(marks []string) {
	if len(marks) == 0 {
		return
	}
	k.more = " Also: " + strings.Join(marks, "; ") + "."
	k.Signature = proto.CloneOf(k.GetSignature())
	k.Signature.Summary += k.more
}

// shorten takes back what lengthen added: there may be other outcomes to tell it from by now.
func (k *found) shorten() {
	if k.more != "" {
		k.Signature.Summary = strings.TrimSuffix(k.GetSignature().GetSummary(), k.more)
		k.more = ""
	}
}

// marks are all that makes the outcome what it is. None is there twice.
func (k *found) marks() []string {
	s := k.GetSignature()
	var answers []*campaignv1.Answer
	if len(k.Witnesses) > 0 {
		answers = k.Witnesses[0].GetAnswers()
	}
	var out []string
	for i, class := range s.GetAnswers() {
		step := strconv.Itoa(i + 1)
		if i < len(answers) {
			step = answers[i].GetStep()
		}
		out = append(out, fmt.Sprintf("step %s ends in a %s", step, class))
	}
	for _, line := range s.GetShape() {
		if step, at, ok := strings.Cut(line, ": "); ok && len(s.GetAnswers()) == 1 {
			line = at
		} else if ok {
			line = fmt.Sprintf("step %s, %s", step, at)
		}
		out = append(out, line)
	}
	for _, line := range s.GetEffects() {
		out = append(out, "effect "+line)
	}
	for _, line := range s.GetProbes() {
		out = append(out, "probe "+line)
	}
	for _, name := range s.GetInvariants() {
		out = append(out, "invariant "+name)
	}
	return out
}
