package report

import (
	"testing"
	"unicode/utf8"
)

// TestDrawingFitsThePage draws a request through five lanes, as in the demo: it must not
// scroll, nor its fault's words be cut at the edge.
func TestDrawingFitsThePage(t *testing.T) {
	r := hotrod()
	d := draw(r.GetFindings()[0].GetWitnesses()[0])
	if len(d.Lanes) < 4 || d.Width > pageWidth {
		t.Errorf("%d lanes are %d px wide, the page has %d", len(d.Lanes), d.Width, pageWidth)
	}
	if d.LeastWidth >= d.Width || d.LeastWidth < d.Width/2 {
		t.Errorf("of %d px at least %d are kept", d.Width, d.LeastWidth)
	}
	faults := 0
	for _, n := range d.Notes {
		if !n.Fault {
			continue
		}
		faults++
		const boldWidth = 7
		for _, line := range n.Lines {
			if end := line.X + boldWidth*utf8.RuneCountInString(line.Text); end > d.Width {
				t.Errorf("%q ends at %d of %d px", line.Text, end, d.Width)
			}
		}
	}
	if faults == 0 {
		t.Error("no fault is drawn")
	}
}
