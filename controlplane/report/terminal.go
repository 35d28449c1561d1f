package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TerminalOptions of [Terminal].
type TerminalOptions struct {
	// Width in columns; 0 means 80.
	Width int
	// Colour by ANSI escapes.
	Colour bool
	// HTML is where the page is, to point at; empty: nowhere.
	HTML string
}

// Terminal writes the report for a terminal or a log.
func Terminal(w io.Writer, r *campaignv1.CampaignReport, o TerminalOptions) error {
	if o.Width == 0 {
		o.Width = 80
	}
	t := terminal{w: bufio.NewWriter(w), width: max(60, o.Width), colour: o.Colour}
	s := Summarise(r)
	t.head(r, s)
	for _, f := range r.GetFindings() {
		t.finding(f, unsteady(r, f))
	}
	if slices.ContainsFunc(r.GetFindings(), func(f *campaignv1.Finding) bool { return len(f.GetContrasts()) > 0 }) {
		fmt.Fprintln(t.w)
		t.wrap("", "  ", "static: the same fault without its moment: static-req on every request, static-phase on every message of its half, static-k on the k-th of them")
	}
	if len(r.GetDegraded()) > 0 {
		t.heading("degraded: clean refusals, no findings")
		for _, f := range r.GetDegraded() {
			t.entry(f.GetId(), yellow, outcome(f.GetSignature()))
			t.places("by", f.GetWitnesses())
			t.places("maybe", unsteady(r, f))
		}
	}
	t.coverage(r.GetCoverage())
	t.sidecars(r.GetSidecars())
	if o.HTML != "" {
		fmt.Fprintf(t.w, "\nreport: %s\n", clean(o.HTML))
	}
	return t.w.Flush()
}

type terminal struct {
	w      *bufio.Writer
	width  int
	colour bool
}

const (
	bold   = "1"
	red    = "1;31"
	green  = "32"
	yellow = "33"
	grey   = "2"
)

func (t *terminal) paint(style, s string) string {
	if !t.colour {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (t *terminal) head(r *campaignv1.CampaignReport, s Summary) {
	count := plural(s.Findings, "finding", "findings")
	style := green
	if s.Findings > 0 {
		style = red
	}
	parts := []string{t.paint(style, count)}
	if s.Suspected > 0 {
		parts = append(parts, t.paint(yellow, fmt.Sprintf("%d suspected", s.Suspected)))
	}
	parts = append(parts, fmt.Sprintf("%d degraded", s.Degraded))
	fmt.Fprintf(t.w, "%s: %s\n", t.paint(bold, clean(r.GetSpec().GetName())), strings.Join(parts, ", "))
	fmt.Fprintf(t.w, "%s (%d fired, %d invalid) in %.1f s\n", plural(s.Trials, "trial", "trials"), s.Fired, s.Invalid, s.Seconds)
	if c := r.GetCoverage().GetStatement(); c != "" {
		t.wrap("", "", c)
	}
	if r.GetInterrupted() != "" {
		fmt.Fprintln(t.w, t.paint(yellow, "stopped before its end: "+clean(joinLines(r.GetInterrupted()))))
	}
}

func (t *terminal) heading(s string) {
	fmt.Fprintf(t.w, "\n%s\n", t.paint(bold, s))
}

func (t *terminal) finding(f *campaignv1.Finding, unsteady []*campaignv1.Trial) {
	kind, style := "finding", red
	if f.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED {
		kind, style = "suspected", yellow
	}
	fmt.Fprintln(t.w)
	t.entry(kind+" "+f.GetId(), style, outcome(f.GetSignature()))
	if len(f.GetWitnesses()) > 0 {
		first := f.GetWitnesses()[0]
		for _, tfic := range first.GetTfics() {
			t.item("fault", Where(tfic))
			for i, c := range When(tfic.GetGuard()) {
				t.item(Conjunction(i), c)
			}
		}
		if n := len(f.GetWitnesses()); n > 1 {
			t.places(fmt.Sprintf("by %d", n), f.GetWitnesses())
		}
	}
	t.doubts("open", open(f))
	t.doubts("maybe", unsteady)
	if text := contrastText(f); text != "" {
		t.item("static", text)
	}
	for _, text := range otherDefects(f) {
		t.item("static", text)
	}
	if command := ReplayCommand(f); command != "" {
		t.item("replay", command)
	}
}

// maxPlaces and maxRows bound what the terminal lists; the page has all.
const (
	maxPlaces = 8
	maxRows   = 40
)

// places lists where witnesses struck.
func (t *terminal) places(name string, trials []*campaignv1.Trial) {
	lines := witnessLines(trials)
	for i, line := range lines {
		if i == maxPlaces {
			t.item("", fmt.Sprintf("and %s more", plural(len(lines)-maxPlaces, "place", "places")))
			return
		}
		t.item(name, line)
		name = ""
	}
}

// doubts lists where trials struck that might not come to a finding again, and why.
func (t *terminal) doubts(name string, trials []*campaignv1.Trial) {
	for _, d := range byReason(trials) {
		t.places(name, d.Trials)
		t.item("", d.Why)
	}
}

// entry is a painted title and text, wrapped under it.
func (t *terminal) entry(title, style, text string) {
	title = clean(title)
	t.wrapPainted(t.paint(style, title)+"  ", utf8.RuneCountInString(title)+2, "    ", text)
}

func (t *terminal) item(name, text string) {
	t.wrap(fmt.Sprintf("    %-7s ", name), strings.Repeat(" ", 12), text)
}

func (t *terminal) wrap(first, rest, text string) {
	t.wrapPainted(first, utf8.RuneCountInString(first), rest, text)
}

// wrapPainted writes text in lines of the terminal's width. A word that is
// longer than a line keeps its line to itself: cutting it would break what
// people copy.
func (t *terminal) wrapPainted(first string, firstWidth int, rest, text string) {
	_, _ = t.w.WriteString(first)
	column, start := firstWidth, true
	for _, word := range strings.Fields(clean(text)) {
		n := utf8.RuneCountInString(word)
		if !start && column+1+n > t.width {
			_, _ = t.w.WriteString("\n" + rest)
			column, start = utf8.RuneCountInString(rest), true
		}
		if !start {
			_ = t.w.WriteByte(' ')
			column++
		}
		_, _ = t.w.WriteString(word)
		column, start = column+n, false
	}
	_ = t.w.WriteByte('\n')
}

func (t *terminal) coverage(c *campaignv1.Coverage) {
	if c == nil {
		return
	}
	t.heading(fmt.Sprintf("fault space: %d of %d reached, %d represented", c.GetReached(), c.GetSpace(), c.GetRepresented()))
	if len(c.GetRows()) > 0 {
		const fixed = 2 + 1 + 1 + 4 + 1 + 8 + 1 + 5 + 1 + 7 + 1 + 5 // all but edge and api
		edgeWidth := 4
		for _, r := range c.GetRows() {
			edgeWidth = max(edgeWidth, utf8.RuneCountInString(rowEdge(r)))
		}
		edgeWidth = min(edgeWidth, (t.width-fixed)*3/5)
		apiWidth := t.width - fixed - edgeWidth
		line := fmt.Sprintf("  %%-%ds %%-%ds %%-4s %%-8s %%5s %%7s %%5s\n", edgeWidth, apiWidth)
		head := fmt.Sprintf(line, "edge", "api", "half", "fault", "calls", "reached", "repr.")
		fmt.Fprintln(t.w, t.paint(grey, strings.TrimSuffix(head, "\n")))
		for i, r := range c.GetRows() {
			if i == maxRows {
				fmt.Fprintf(t.w, "  and %s more\n", plural(len(c.GetRows())-maxRows, "row", "rows"))
				break
			}
			fmt.Fprintf(t.w, line, clip(clean(rowEdge(r)), edgeWidth), clip(clean(r.GetApi()), apiWidth),
				phase(r.GetPhase()), clip(clean(r.GetFault()), 8), fmt.Sprint(r.GetCalls()), fmt.Sprint(r.GetReached()), fmt.Sprint(r.GetRepresented()))
			if r.GetUnreached() != "" {
				t.wrap("      not reached: ", "      ", r.GetUnreached())
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(c.GetUnreached())) {
		t.wrap("  ", "    ", fmt.Sprintf("%s not reached: %s", plural(int(c.GetUnreached()[reason]), "point", "points"), reason))
	}
}

func rowEdge(r *campaignv1.CoverageRow) string {
	return outside(r.GetCaller()) + " → " + r.GetCallee()
}

func (t *terminal) sidecars(list []*campaignv1.SidecarStatus) {
	bad := false
	for _, s := range list {
		bad = bad || s.GetNack() != ""
	}
	if !bad {
		return
	}
	t.heading("sidecars that refused a policy")
	for _, s := range list {
		if s.GetNack() != "" {
			t.wrap("  ", "    ", fmt.Sprintf("%s %s (%s): %s", s.GetService(), s.GetInstance(), s.GetProxy(), s.GetNack()))
		}
	}
}
