package report

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Bounds of a comparison; more is cut.
const (
	maxDiffLines = 300
	maxLine      = 400
	diffContext  = 3
)

// comparison is one step's answers side by side.
type comparison struct {
	Step         string
	Clean, Fault answerHead
	Rows         []diffRow
	// Same: the answers do not differ in what is shown.
	Same bool
}

// answerHead is what stands above an answer's body.
type answerHead struct {
	Status, Type, Duration string
	Missing                bool
	// StatusDiffers and TypeDiffers mark what is not as in the clean run.
	StatusDiffers, TypeDiffers bool
}

// diffRow is a line of both bodies: equal, removed (left only), added (right
// only) or changed (both, unlike). Skipped counts equal lines that are left out.
type diffRow struct {
	Left, Right       string
	HasLeft, HasRight bool
	Equal             bool
	Skipped           int
}

// compare puts the answers of a clean run beside those of a trial, step by step.
func compare(clean, faulty []*campaignv1.Answer) []comparison {
	var out []comparison
	for i, f := range faulty {
		var c *campaignv1.Answer
		for j, a := range clean {
			if a.GetStep() == f.GetStep() && (f.GetStep() != "" || i == j) {
				c = a
				break
			}
		}
		one := comparison{Step: f.GetStep(), Clean: head(c), Fault: head(f)}
		one.Fault.StatusDiffers = c != nil && one.Clean.Status != one.Fault.Status
		one.Fault.TypeDiffers = c != nil && one.Clean.Type != one.Fault.Type
		rows := diffLines(bodyLines(c), bodyLines(f))
		one.Same = c != nil && !one.Fault.StatusDiffers && !one.Fault.TypeDiffers &&
			!slices.ContainsFunc(rows, func(r diffRow) bool { return !r.Equal })
		one.Rows = skipEqual(rows)
		out = append(out, one)
	}
	return out
}

func head(a *campaignv1.Answer) answerHead {
	if a == nil {
		return answerHead{Missing: true, Status: "no such answer"}
	}
	h := answerHead{Duration: duration(a.GetDuration())}
	switch {
	case a.GetError() != "":
		h.Status = "no answer: " + a.GetError()
	case a.GetStatus() != 0:
		h.Status = fmt.Sprintf("HTTP %d", a.GetStatus())
	default:
		h.Status = fmt.Sprintf("exit code %d", a.GetExitCode())
	}
	for name, value := range a.GetHeaders() {
		if strings.EqualFold(name, "content-type") {
			h.Type = clip(value, 80)
		}
	}
	return h
}

// bodyLines returns a body as lines to read: JSON indented, bytes in hex.
func bodyLines(a *campaignv1.Answer) []string {
	body := a.GetBody()
	if len(body) == 0 {
		return nil
	}
	var text string
	var pretty bytes.Buffer
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0:
		return []string{fmt.Sprintf("(white space, %s)", plural(len(body), "byte", "bytes"))}
	case !utf8.Valid(body):
		text = strings.TrimSuffix(hex.Dump(body[:min(len(body), 1024)]), "\n")
	case json.Indent(&pretty, trimmed, "", "  ") == nil:
		text = pretty.String()
	default:
		text = strings.TrimSuffix(string(body), "\n")
	}
	lines := strings.Split(text, "\n")
	more := len(lines) - maxDiffLines
	if more > 0 {
		lines = append(lines[:maxDiffLines:maxDiffLines], fmt.Sprintf("… %d more lines", more))
	}
	for i := range lines {
		lines[i] = clip(strings.TrimSuffix(lines[i], "\r"), maxLine)
	}
	if a.GetBodyTruncated() {
		lines = append(lines, "… cut when it was recorded")
	}
	return lines
}

// diffLines pairs lines by a longest common subsequence; between two common
// lines, what was removed stands beside what was added.
func diffLines(a, b []string) []diffRow {
	// length[i][j] is that of a[i:] and b[j:].
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var rows []diffRow
	var removed, added []string
	flush := func() {
		for k := range max(len(removed), len(added)) {
			r := diffRow{HasLeft: k < len(removed), HasRight: k < len(added)}
			if r.HasLeft {
				r.Left = removed[k]
			}
			if r.HasRight {
				r.Right = added[k]
			}
			rows = append(rows, r)
		}
		removed, added = nil, nil
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			flush()
			rows = append(rows, diffRow{Left: a[i], Right: b[j], HasLeft: true, HasRight: true, Equal: true})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			removed = append(removed, a[i])
			i++
		default:
			added = append(added, b[j])
			j++
		}
	}
	flush()
	return rows
}

// skipEqual leaves out equal lines that are far from any difference.
func skipEqual(rows []diffRow) []diffRow {
	keep := make([]bool, len(rows))
	for i, r := range rows {
		if r.Equal {
			continue
		}
		for j := max(0, i-diffContext); j <= min(len(rows)-1, i+diffContext); j++ {
			keep[j] = true
		}
	}
	if !slices.Contains(keep, true) { // nothing differs: show the beginning
		for j := range min(len(rows), 12) {
			keep[j] = true
		}
	}
	var out []diffRow
	skipped := 0
	for i, r := range rows {
		if !keep[i] {
			skipped++
			continue
		}
		if skipped > 0 {
			out = append(out, diffRow{Skipped: skipped})
			skipped = 0
		}
		out = append(out, r)
	}
	if skipped > 0 {
		out = append(out, diffRow{Skipped: skipped})
	}
	return out
}
