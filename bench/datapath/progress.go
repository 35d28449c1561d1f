package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// follow makes the steps of a plan one after the other. One that fails is noted,
// and the others go on.
func (s *summary) follow(ctx context.Context, plan []step, stderr io.Writer) error {
	var total, needed time.Duration // needed: what is not left out
	for _, x := range plan {
		total += x.takes
		if !x.further {
			needed += x.takes
		}
	}
	p := newProgress(total, s.end, stderr)
	defer p.end()
	problem := func(text string) {
		s.Problems = append(s.Problems, text)
		p.note("failed: " + text)
	}
	kept, left := time.Now(), 0
	ended := map[*proxy]bool{}
	for _, x := range plan {
		// Once there is no time, shorter steps are not squeezed in either: they would be of
		// some workloads only.
		if x.further && (left > 0 || p.late(x.takes+needed)) {
			p.leave(x.takes)
			left++
			continue
		}
		if !x.further {
			needed -= x.takes
		}
		name := x.name
		if x.proxy != nil {
			name = x.proxy.name + ": " + name
		}
		p.begin(name)
		if x.proxy.ended() {
			if !ended[x.proxy] {
				ended[x.proxy] = true
				problem(x.proxy.name + " has ended; work/" + x.proxy.name + ".log may say why")
			}
			p.leave(x.takes)
			continue
		}
		err := x.make(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			problem(name + ": " + oneLine(err))
		}
		p.done(x.takes)
		if s.dir != "" && time.Since(kept) >= s.every {
			kept = time.Now()
			if err := s.write(s.dir); err != nil {
				p.note("not kept: " + oneLine(err)) // the next time, perhaps
			}
		}
	}
	if left > 0 {
		s.LeftOut = append(s.LeftOut, fmt.Sprintf("%d measurements of later rounds, for which -within has no time", left))
	}
	return nil
}

// keepEvery is how often what has been measured is written, so that no more is lost
// however the run ends.
const keepEvery = 20 * time.Second

// slack is how much longer than planned a step may take, besides four times as long.
var slack = 2 * time.Minute

// make makes one measurement, which ends even where a process does not answer.
func (x *step) make(ctx context.Context) error {
	limit := 4*x.takes + slack
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	err := x.do(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// ended reports whether a proxy's process is no more.
func (p *proxy) ended() bool {
	return p != nil && p.pid != 0 && errors.Is(unix.Kill(p.pid, 0), unix.ESRCH)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// progress is a bar on a terminal, and else a line every minute.
type progress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	begun time.Time
	last  time.Time
	made  time.Duration // of total, as planned
	total time.Duration
	until time.Time // nothing that can be left out is begun later; zero: no bound
}

func newProgress(total time.Duration, until time.Time, w io.Writer) *progress {
	p := &progress{w: w, begun: time.Now(), last: time.Now(), total: total, until: until}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(total.Milliseconds(), progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionClearOnFinish())
	} else {
		fmt.Fprintf(w, "measuring; about %v\n", p.left())
	}
	return p
}

// reckon tells how long something will take, from how long what was planned has
// taken so far.
func (p *progress) reckon(planned time.Duration) time.Duration {
	if p.made > 10*time.Second {
		planned = time.Duration(float64(planned) * float64(time.Since(p.begun)) / float64(p.made))
	}
	return planned
}

// left is the remaining time.
func (p *progress) left() time.Duration {
	left := p.reckon(p.total - p.made)
	if !p.until.IsZero() {
		left = max(0, min(left, time.Until(p.until)))
	}
	return left.Round(time.Second)
}

// late reports whether something would take longer than there is time.
func (p *progress) late(planned time.Duration) bool {
	return !p.until.IsZero() && p.reckon(planned) > time.Until(p.until)
}

// leave takes something off the plan.
func (p *progress) leave(planned time.Duration) { p.done(0); p.total -= planned }

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
