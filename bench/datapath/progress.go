package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// follow makes the steps of a plan one after the other. One that fails is noted,
// and the others go on.
func (s *summary) follow(ctx context.Context, plan []step, stderr io.Writer) error {
	var total time.Duration
	for _, x := range plan {
		total += x.takes
	}
	p := newProgress(total, stderr)
	defer p.end()
	for _, x := range plan {
		name := x.name
		if x.proxy != nil {
			name = x.proxy.name + ": " + name
		}
		p.begin(name)
		err := x.do(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			text := name + ": " + strings.Join(strings.Fields(err.Error()), " ")
			s.Problems = append(s.Problems, text)
			p.note("failed: " + text)
		}
		p.done(x.takes)
	}
	return nil
}

// progress is a bar on a terminal, and else a line every minute.
type progress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	begun time.Time
	last  time.Time
	made  time.Duration // of total, as planned
	total time.Duration
}

func newProgress(total time.Duration, w io.Writer) *progress {
	p := &progress{w: w, begun: time.Now(), last: time.Now(), total: total}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(total.Milliseconds(), progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionClearOnFinish())
	} else {
		fmt.Fprintf(w, "measuring; about %v\n", total.Round(time.Second))
	}
	return p
}

// left is the remaining time, reckoned from how long what was planned has taken so far.
func (p *progress) left() time.Duration {
	left := p.total - p.made
	if p.made > 10*time.Second {
		left = time.Duration(float64(left) * float64(time.Since(p.begun)) / float64(p.made))
	}
	return left.Round(time.Second)
}

func (p *progress) begin(name string) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%-58.58s %8v left", name, p.left()))
	} else if time.Since(p.last) >= time.Minute {
		p.last = time.Now()
		fmt.Fprintf(p.w, "%v left; now %s\n", p.left(), name)
	}
}

func (p *progress) done(planned time.Duration) {
	p.made += planned
	if p.bar != nil {
		_ = p.bar.Add64(planned.Milliseconds()) // a bar that cannot be drawn
	}
}

func (p *progress) note(text string) {
	if p.bar != nil {
		_ = p.bar.Clear() // a bar that cannot be drawn
	}
	fmt.Fprintln(p.w, text)
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish() // a bar that cannot be drawn
	}
}
