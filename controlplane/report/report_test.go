package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got:\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	for name, r := range map[string]*campaignv1.CampaignReport{
		"hotrod": hotrod(), "busy": busy(), "empty": {Spec: &campaignv1.CampaignSpec{Name: "empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			for ext, write := range map[string]func(io.Writer, *campaignv1.CampaignReport) error{
				"html": HTML, "xml": JUnit, "summary.json": writeSummary,
				"txt": func(w io.Writer, r *campaignv1.CampaignReport) error {
					return Terminal(w, r, TerminalOptions{HTML: "out/demo/report.html"})
				},
			} {
				var b bytes.Buffer
				if err := write(&b, r); err != nil {
					t.Fatal(err)
				}
				golden(t, name+"."+ext, b.Bytes())
			}
		})
	}
}

func TestWriteAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	want := hotrod()
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%d files, want 4 (%v)", len(entries), err)
	}
	b, err := os.ReadFile(filepath.Join(dir, JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadJSON(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := ReadJSON([]byte("<html>")); err == nil {
		t.Error("HTML was read as report.json")
	}
	if err := Write(filepath.Join(dir, JSONFile), want); err == nil {
		t.Error("a file was taken for a directory")
	}
}

// A page with very many degraded outcomes must still open.
func TestDiagramsAreBounded(t *testing.T) {
	r := hotrod()
	one := r.GetDegraded()[0]
	for range maxDiagrams {
		r.Degraded = append(r.Degraded, one)
	}
	var b bytes.Buffer
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(b.String(), "<svg"), len(r.GetFindings())+maxDiagrams; got != want {
		t.Errorf("%d diagrams of %d outcomes, want %d", got, len(r.GetDegraded()), want)
	}
}

func TestSummaryCounts(t *testing.T) {
	got := Summarise(busy())
	want := Summary{Findings: 1, Suspected: 1, Degraded: 1, Trials: 21, Fired: 20, Invalid: 1, Seconds: 12.34, Proxies: []string{"envoy 1.37.0", "envoy 1.40.0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTerminalKeepsItsWidth(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		var b bytes.Buffer
		if err := Terminal(&b, busy(), TerminalOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > width && strings.Contains(strings.TrimSpace(line), " ") && !longWord(line, width) {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}

// longWord reports whether a line is long because of one word.
func longWord(line string, width int) bool {
	for _, w := range strings.Fields(line) {
		if utf8.RuneCountInString(w) > width-14 {
			return true
		}
	}
	return false
}

func TestTerminalColours(t *testing.T) {
	var plain, coloured bytes.Buffer
	if err := errors.Join(Terminal(&plain, hotrod(), TerminalOptions{}), Terminal(&coloured, hotrod(), TerminalOptions{Colour: true})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("escapes without colour")
	}
	stripped := coloured.String()
	for _, code := range []string{bold, red, green, yellow, grey, "0"} {
		stripped = strings.ReplaceAll(stripped, "\x1b["+code+"m", "")
	}
	if stripped != plain.String() {
		t.Errorf("colour changes more than colour:\n%s", cmp.Diff(plain.String(), stripped))
	}
}

// hostile are values that traces and answers could carry.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='x`, `</svg><script>`, `</title><b>`, `javascript:alert(1)`,
	"\x1b[31mred\x1b[0m", "a\r\nb: c", "\x00\x01", "\xff\xfe", "{{.Title}}", "]]>", "\u202eevil",
}

func TestHostileText(t *testing.T) {
	for _, bad := range hostile {
		r := busy()
		for _, trial := range r.Trials {
			trial.Reason, trial.Fault, trial.Pattern, trial.Purpose = bad, bad, bad, "candidate"
			for _, f := range trial.Tfics {
				f.Target.Api, f.Target.Caller, f.Target.Callee = "GET /"+bad, bad, bad
			}
			for _, e := range trial.Events {
				e.Op.Api, e.Atoms, e.Call = "GET /"+bad, []string{bad}, ""
				if e.Op.Peer != "" {
					e.Op.Peer = bad
				}
			}
			for _, a := range trial.Answers {
				a.Body, a.Error, a.Step, a.Headers = []byte(bad), bad, bad, map[string]string{"content-type": bad}
			}
		}
		r.Findings[0].Witnesses[0].Reason = NotChecked + bad
		for _, f := range append(r.Findings, r.Degraded...) {
			f.Signature.Summary, f.ReplayFile = bad, bad
			f.Signature.Shape, f.Id = []string{bad}, bad
		}
		for _, row := range r.Coverage.Rows {
			row.Api, row.Callee, row.Unreached = bad, bad, bad
		}
		r.Coverage.Unreached = map[string]uint32{bad: 1}
		r.Sidecars[0].Nack, r.Spec.Name, r.Interrupted, r.Coverage.Statement = bad, bad, bad, bad

		var html, junit, text bytes.Buffer
		if err := errors.Join(HTML(&html, r), JUnit(&junit, r), Terminal(&text, r, TerminalOptions{HTML: bad})); err != nil {
			t.Fatalf("%q: %v", bad, err)
		}
		page := html.String()
		for _, tag := range []string{"<script", "<img", "<b>alert", "onmouseover='x", "href=\"javascript"} {
			if strings.Contains(page, tag) {
				t.Errorf("%q: the page contains %s", bad, tag)
			}
		}
		if strings.Count(page, "</title>") != strings.Count(page, "<title>") {
			t.Errorf("%q: unbalanced titles", bad)
		}
		var suites struct{}
		if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
			t.Errorf("%q: junit.xml is not XML: %v", bad, err)
		}
		if i := strings.IndexFunc(text.String(), func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || r == 0x202e) }); i >= 0 {
			t.Errorf("%q: a control character reaches the terminal: %q", bad, text.String()[max(0, i-20):i+10])
		}
	}
}

func TestPageNeedsNothing(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, busy()); err != nil {
		t.Fatal(err)
	}
	for _, outside := range []string{"<script", "<link", "src=", "url(", "@import", "ZgotmplZ"} {
		if strings.Contains(b.String(), outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	// Every reference inside the page has its target.
	for _, part := range strings.Split(b.String(), `href="#`)[1:] {
		id, _, _ := strings.Cut(part, `"`)
		if !strings.Contains(b.String(), `id="`+id+`"`) {
			t.Errorf("no target for #%s", id)
		}
	}
}

func TestSummaryIsJSON(t *testing.T) {
	var b bytes.Buffer
	if err := writeSummary(&b, hotrod()); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"findings", "degraded", "trials", "fired", "invalid", "exhausted", "seconds"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("summary.json has no %s", name)
		}
	}
}

// TestUndoneIsShown: what was taken for compensation is said in each form of the report.
func TestUndoneIsShown(t *testing.T) {
	const undone = "pay POST /charge taken as undone by POST /note"
	r := hotrod()
	s := r.GetDegraded()[0].GetSignature()
	s.Effects, s.Summary = []string{undone}, "Refused with HTTP 502; "+undone+"."
	for name, write := range map[string]func(io.Writer) error{
		"terminal": func(w io.Writer) error { return Terminal(w, r, TerminalOptions{}) },
		"JSON":     func(w io.Writer) error { return JSON(w, r) },
		"HTML":     func(w io.Writer) error { return HTML(w, r) },
		"JUnit":    func(w io.Writer) error { return JUnit(w, r) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(got, undone) {
			t.Errorf("%s does not say it", name)
		}
	}
}
