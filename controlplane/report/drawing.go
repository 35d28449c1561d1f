package report

import (
	"fmt"
	"slices"
	"strings"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// Measures of a drawing, in CSS pixels. Text is 12 px; a character of the
// monospaced font is 7.25 wide there, of the other about 6.2.
const (
	textWidth   = 312
	pageWidth   = 1100 // what a card of a page of 1285 px has room for
	leastGap    = 84
	mostGap     = 120
	noteWidth   = 290
	rowHeight   = 24
	lineHeight  = 15
	headHeight  = 44
	textColumns = 34
	noteColumns = 42
	// faultColumns are fewer: a fault's note is bold.
	faultColumns = 36
	noteGap      = 10
)

// drawing is a sequence with places on paper. It holds only numbers and texts:
// the template writes the SVG and escapes.
type drawing struct {
	Width, Height int
	// LeastWidth is how far it may shrink and be read.
	LeastWidth int
	Label      string
	Lanes      []drawnLane
	Rows       []drawnRow
	Arrows     []drawnArrow
	Bands      []drawnBand
	Marks      []drawnMark
	Notes      []drawnNote
	Cut        int
}

type drawnLane struct {
	X, Top, Bottom, FootY int
	BoxX, BoxWidth        int
	Name, Full            string
	Unseen                bool
}

type drawnRow struct {
	Y                    int
	Half, Full           string
	Lines                []drawnText
	Status               string
	StatusX, HalfX, X    int
	Failed, Faulty, Band bool
	Top, Height, LineEnd int
}

type drawnArrow struct {
	X1, Y1, X2, Y2 int
	Class          string
	// Head is the arrow's point as an SVG polygon.
	Head string
	// Cross is where a message that never arrives ends.
	Cross        bool
	CrossX1      int
	CrossX2      int
	CrossY1      int
	CrossY2      int
	OpenHeadPath string
}

type drawnBand struct {
	X, Y, W, H int
}

type drawnText struct {
	X, Y int
	Text string
}

type drawnMark struct {
	X, Y  int
	Fault bool
	Shape string // polygon of an atom's diamond
}

type drawnNote struct {
	Y     int
	X     int
	Fault bool
	Lines []drawnText
}

// draw gives a trial's sequence its places; nil if there is nothing to draw.
func draw(t *campaignv1.Trial) *drawing {
	s := plot(t)
	if len(s.rows) == 0 {
		return nil
	}
	// As wide as the page has room for. Where it has none the drawing shrinks, and
	// scrolls once it could not be read.
	laneGap := min(mostGap, max(leastGap, (pageWidth-textWidth-noteWidth-noteGap)/len(s.lanes)))
	lanesLeft := textWidth + laneGap/2
	x := func(lane string) int { return lanesLeft + laneGap*max(0, slices.Index(s.lanes, lane)) }
	notesLeft := textWidth + laneGap*len(s.lanes) + noteGap

	d := &drawing{
		Width: notesLeft + noteWidth,
		Label: fmt.Sprintf("Sequence of %s between %s", plural(len(t.GetEvents()), "event", "events"), strings.Join(s.lanes, ", ")),
		Cut:   s.cut,
	}
	d.LeastWidth = d.Width * 3 / 4
	// Heights first: notes and bands need more than a row.
	ys, heights := make([]int, len(s.rows)), make([]int, len(s.rows))
	y := headHeight + 10
	notes := make([][][]string, len(s.rows))
	for i, r := range s.rows {
		lines := 0
		for _, n := range r.notes {
			columns := noteColumns
			if n.fault {
				columns = faultColumns
			}
			wrapped := wrapText(n.text, columns, 4)
			notes[i] = append(notes[i], wrapped)
			lines += len(wrapped)
		}
		height := max(rowHeight, lines*lineHeight+8)
		if r.band != nil {
			height = max(height, len(r.band.lines)*lineHeight+16)
		}
		heights[i] = height
		ys[i] = y + rowHeight/2
		if r.band != nil {
			ys[i] = y + height/2
		}
		y += height
	}
	d.Height = y + 40

	for i, r := range s.rows {
		d.row(r, ys[i], heights[i])
		switch {
		case r.band != nil:
			d.band(r.band, x, ys[i])
		case r.arrow != nil:
			d.arrow(r, x, ys[i], ys[r.arrow.toRow])
		}
		at := ys[i] + 4
		for j, n := range r.notes {
			mark := drawnMark{X: x(n.lane), Y: ys[i], Fault: n.fault}
			mark.Shape = fmt.Sprintf("%d,%d %d,%d %d,%d %d,%d", mark.X, mark.Y-6, mark.X+6, mark.Y, mark.X, mark.Y+6, mark.X-6, mark.Y)
			d.Marks = append(d.Marks, mark)
			drawn := drawnNote{X: notesLeft, Y: at, Fault: n.fault}
			for _, line := range notes[i][j] {
				drawn.Lines = append(drawn.Lines, drawnText{X: notesLeft + 16, Y: at, Text: line})
				at += lineHeight
			}
			d.Notes = append(d.Notes, drawn)
		}
	}
	for _, lane := range s.lanes {
		d.Lanes = append(d.Lanes, drawnLane{
			X: x(lane), Top: headHeight - 8, Bottom: d.Height - 34, FootY: d.Height - 34,
			BoxX: x(lane) - laneGap/2 + 5, BoxWidth: laneGap - 10,
			Name: clip(clean(lane), (laneGap-14)/7), Full: clean(lane), Unseen: s.unseen[lane],
		})
	}
	return d
}

func (d *drawing) row(r row, y, height int) {
	full := clean(r.text)
	out := drawnRow{
		Y: y, HalfX: 4, X: 46, StatusX: textWidth - 8, Half: r.half, Full: full,
		Status: clip(clean(r.status), 14), Failed: r.failed, Band: r.band != nil,
		Top: y - rowHeight/2, Height: height, LineEnd: d.Width,
	}
	lines := []string{full}
	if r.band != nil {
		lines = r.band.lines
	}
	columns := textColumns - len([]rune(out.Status))
	for i, line := range lines {
		out.Lines = append(out.Lines, drawnText{
			X: out.X, Y: y + 4 + i*lineHeight - (len(lines)-1)*lineHeight/2, Text: clip(clean(line), columns),
		})
	}
	for _, n := range r.notes {
		out.Faulty = out.Faulty || n.fault
	}
	d.Rows = append(d.Rows, out)
}

func (d *drawing) band(b *band, x func(string) int, y int) {
	lines := len(b.lines)
	h := lines*lineHeight + 8
	out := drawnBand{X: x(b.from) - 12, Y: y - h/2, W: x(b.to) - x(b.from) + 24, H: h}
	d.Bands = append(d.Bands, out)
}

func (d *drawing) arrow(r row, x func(string) int, y1, y2 int) {
	a := r.arrow
	out := drawnArrow{X1: x(a.from), Y1: y1, X2: x(a.to), Y2: y2, Class: "call"}
	if a.answer {
		out.Class = "answer"
	}
	if r.failed {
		out.Class += " failed"
	}
	direction := 1
	if out.X2 < out.X1 {
		direction = -1
	}
	if a.stopped {
		out.Class += " stopped"
		out.X2 = out.X1 + (out.X2-out.X1)*3/5
		out.Cross = true
		out.CrossX1, out.CrossX2 = out.X2-6, out.X2+6
		out.CrossY1, out.CrossY2 = out.Y2-6, out.Y2+6
		d.Arrows = append(d.Arrows, out)
		return
	}
	if out.X1 == out.X2 { // a service that calls itself
		out.OpenHeadPath = fmt.Sprintf("M %d %d h 30 v 10 h -30", out.X1, y1-5)
		out.Head = fmt.Sprintf("%d,%d %d,%d %d,%d", out.X1+1, y1+5, out.X1+9, y1+1, out.X1+9, y1+9)
		d.Arrows = append(d.Arrows, out)
		return
	}
	tip := out.X2 - direction
	for _, n := range r.notes {
		if n.lane == a.to { // its mark stands there
			tip = out.X2 - 9*direction
		}
	}
	out.Head = fmt.Sprintf("%d,%d %d,%d %d,%d", tip, y2, tip-9*direction, y2-4, tip-9*direction, y2+4)
	out.X2 = tip - 7*direction
	d.Arrows = append(d.Arrows, out)
}

// wrapText breaks text into at most most lines of about columns runes.
func wrapText(text string, columns, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(clean(text)) {
		word = clip(word, columns)
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= columns:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	lines = append(lines, line)
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = clip(lines[most-1]+" …", columns)
	}
	return lines
}
