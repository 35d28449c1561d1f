package main

import (
	"cmp"
	"errors"
	"image/color"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figure is one picture: a line for each proxy.
type figure struct {
	name, title string
	x, y        string // titles of the axes
	rows        []row
	at, value   func(row) float64
}

const width, height = 18 * vg.Centimeter, 11 * vg.Centimeter

// order of proxies, each with its colour in all pictures: ours first. The colours
// are Okabe and Ito's, which most people can tell apart.
var order = []struct {
	name   string
	colour color.Color
}{
	{"tfiproxy", color.RGBA{0xd5, 0x5e, 0x00, 0xff}},
	{"nginx", color.RGBA{0x00, 0x9e, 0x73, 0xff}},
	{"haproxy", color.RGBA{0x56, 0xb4, 0xe9, 0xff}},
	{"envoy", color.RGBA{0x00, 0x72, 0xb2, 0xff}},
	{"envoy+plugin", color.RGBA{0xcc, 0x79, 0xa7, 0xff}},
	{"reverseproxy", color.RGBA{0x88, 0x88, 0x88, 0xff}},
	{"fasthttp", color.RGBA{0xe6, 0x9f, 0x00, 0xff}},
	{"pump", color.RGBA{0x00, 0x00, 0x00, 0xff}},
	{"direct", color.RGBA{0xbb, 0xbb, 0xbb, 0xff}},
}

func (f *figure) draw(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, f.x, f.y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(oneTwoFive)
	style(p)
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	ticks := map[float64]bool{}
	for i, o := range order {
		points := f.points(o.name)
		if len(points) == 0 {
			continue
		}
		for _, x := range points {
			ticks[x.X] = true
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color, line.Width = o.colour, o.colour, vg.Points(1.5)
		if o.name == "tfiproxy" {
			line.Width = vg.Points(3)
		}
		dots.Shape = glyph(i)
		p.Add(line, dots)
		p.Legend.Add(o.name, line, dots)
	}
	if len(ticks) < 2 {
		return nil // a quick run has no line here
	}
	var marks []plot.Tick
	for _, x := range slices.Sorted(maps.Keys(ticks)) {
		marks = append(marks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(marks)
	first, last := marks[0].Value, marks[len(marks)-1].Value
	// Room for the legend beside the lines.
	p.X.Min, p.X.Max = first/1.05, last*math.Pow(last/first, 0.3)
	p.Y.Min, p.Y.Max = p.Y.Min/1.1, p.Y.Max*1.1
	return p.Save(width, height, file)
}

// style is what all pictures have.
func style(p *plot.Plot) {
	p.Title.Padding, p.Title.TextStyle.Font.Size = vg.Points(8), vg.Points(13)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(4)
	p.Legend.Padding, p.Legend.XOffs, p.Legend.ThumbnailWidth = vg.Points(3), vg.Points(-4), vg.Points(24)
}

// oneTwoFive labels a logarithmic axis.
func oneTwoFive(least, most float64) (ticks []plot.Tick) {
	for decade := math.Pow(10, math.Floor(math.Log10(least))); decade <= most; decade *= 10 {
		for n := 1.0; n < 10; n++ {
			t := plot.Tick{Value: n * decade}
			if n == 1 || n == 2 || n == 5 {
				t.Label = strconv.FormatFloat(t.Value, 'f', -1, 64)
			}
			if t.Value >= least && t.Value <= most {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// glyph tells lines apart without colours as well.
func glyph(i int) draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{
		draw.CircleGlyph{},
		draw.BoxGlyph{},
		draw.TriangleGlyph{},
		draw.PyramidGlyph{},
		draw.CrossGlyph{},
		draw.PlusGlyph{},
		draw.RingGlyph{},
		draw.SquareGlyph{},
		draw.CircleGlyph{},
	}
	return shapes[i%len(shapes)]
}

// points are the medians over the rounds.
func (f *figure) points(proxy string) plotter.XYs {
	values := map[float64][]float64{}
	for _, x := range f.rows {
		if v := f.value(x); x.proxy == proxy && v > 0 {
			values[f.at(x)] = append(values[f.at(x)], v)
		}
	}
	var points plotter.XYs
	for at, v := range values {
		slices.Sort(v)
		points = append(points, plotter.XY{X: at, Y: (v[len(v)/2] + v[(len(v)-1)/2]) / 2})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return points
}

// drawMemory draws RSS as bars: a group for each moment.
func drawMemory(dir, format string) error {
	records, err := readRecords(filepath.Join(dir, "memory.csv"))
	if errors.Is(err, fs.ErrNotExist) || len(records) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	moments := []struct{ when, title string }{
		{"idle", "idle"}, {"under load", "peak under load"}, {"after many", "after it"}, {"connections held", "idle connections"},
	}
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "Memory: RSS", "MiB"
	style(p)
	p.Legend.Top = true
	names := make([]string, len(moments))
	for i, m := range moments {
		names[i] = m.title
	}
	const bar = 9 // points
	n := 0
	for _, o := range order {
		values := make(plotter.Values, len(moments))
		drawn := false
		for _, r := range records {
			i := slices.IndexFunc(moments, func(m struct{ when, title string }) bool { return m.when == r["when"] })
			if v, err := strconv.ParseFloat(r["rss_bytes"], 64); err == nil && r["proxy"] == o.name && i >= 0 {
				values[i], drawn = v/(1<<20), true
			}
		}
		if !drawn {
			continue
		}
		bars, err := plotter.NewBarChart(values, vg.Points(bar))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = o.colour, 0, vg.Points(float64(n-3)*bar)
		bars.XMin = 0
		n++
		p.Add(bars)
		p.Legend.Add(o.name, bars)
	}
	p.NominalX(names...)
	p.X.Max = float64(len(moments)) + 0.3
	return p.Save(width, height, filepath.Join(dir, "memory."+format))
}
