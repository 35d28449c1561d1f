package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sequencefi/sequencefi/controlplane/traces"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// recording is what sidecars reported of one run.
type recording struct {
	data  *tracev1.TracesData
	trial *trace.Trial
	// incomplete says what was still missing; empty: nothing.
	incomplete string
	// absent services were sent requests, have no policy, and did not report.
	absent []string
	// tail is the time from the last answer to the last report.
	tail time.Duration
	// late: more came when nothing had been missing any more.
	late bool
}

// watching says what a recording waits for.
type watching struct {
	key    workload.Key
	traces []workload.TraceID
	// required requests must have been reported.
	required []request
	// leaves have no sidecar; involved services have a policy.
	leaves   map[string]bool
	involved []string
	patience time.Duration
}

// listener collects the reports of a run that has just ended.
//
// Reports, not events, are timed: sidecars' clocks may be wrong, ours is not.
type listener struct {
	source Source
	watching
	ids             [][16]byte
	ended, deadline time.Time
	// last is when something new was reported, and spans and size are how much there is; -1:
	// nothing has been read yet.
	last        time.Time
	spans, size int
	unreadable  error
	recording   *recording
}

// listen begins to collect. What is incomplete when patience ends is no error: the recording
// says so.
func listen(source Source, w watching) *listener {
	ended := time.Now()
	l := &listener{
		source: source, watching: w, ids: make([][16]byte, len(w.traces)),
		ended: ended, last: ended, deadline: ended.Add(w.patience), spans: -1, size: -1,
		recording: &recording{trial: &trace.Trial{}, incomplete: "nothing was read"},
	}
	for i, id := range w.traces {
		l.ids[i] = id
	}
	return l
}

// until collects reports until nothing is missing and nothing more has come for a quiet period,
// so that a retry in the background is seen. It may be called again, with a longer one.
func (l *listener) until(ctx context.Context, quiet time.Duration) error {
	for {
		if err := l.read(ctx); err != nil {
			return err
		}
		now := time.Now()
		wake := l.deadline
		if l.recording.incomplete == "" {
			wake = l.last.Add(quiet)
		}
		if !now.Before(wake) || now.After(l.deadline) {
			return nil
		}
		if err := await(ctx, l.source, l.ids, l.spans, wake); err != nil {
			return err
		}
	}
}

// read brings the recording up to date.
func (l *listener) read(ctx context.Context) error {
	data, err := l.source.Spans(ctx, l.ids)
	if err != nil {
		return fmt.Errorf("read spans: %w", err)
	}
	r := l.recording
	if n := traces.Count(data); n != l.spans {
		l.spans = n
		r.data = data
		if r.trial, l.unreadable = trace.Build(l.key.String(), data); l.unreadable != nil {
			r.trial = &trace.Trial{}
		}
		// Applications' own spans may come much later and say nothing here.
		if n := len(r.trial.Events) + len(r.trial.Problems); n != l.size {
			l.size, l.last = n, time.Now()
			r.tail = l.last.Sub(l.ended)
			r.late = r.late || r.incomplete == ""
		}
	}
	r.incomplete, r.absent = l.missing(r.trial)
	if l.unreadable != nil {
		// Spans that are still missing may be what makes the others unreadable.
		r.incomplete = l.unreadable.Error()
	}
	return nil
}

// await waits for more spans, at most until wake.
func await(ctx context.Context, source Source, ids [][16]byte, seen int, wake time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, wake)
	defer cancel()
	err := source.Wait(waiting, ids, seen)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, waiting.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return fmt.Errorf("wait for spans: %w", err)
}

// missing says what a trial's reports lack, for people; services that are not
// involved yet are told apart, since no waiting would bring their reports.
func (w *watching) missing(t *trace.Trial) (string, []string) {
	var lacks, absent []string
	for _, r := range w.required {
		if !r.reported(t) {
			lacks = append(lacks, "no sidecar reported "+r.String())
		}
	}
	for _, gap := range t.Gaps {
		lacks = append(lacks, fmt.Sprintf("%s has not reported its events %d to %d", orElse(gap.Service, gap.Instance), gap.First, gap.Last))
	}
	for _, receive := range t.UnmatchedReceives {
		e := &t.Events[receive.Event]
		lacks = append(lacks, fmt.Sprintf("%s received a message whose sender did not report it", e.Op.Observer))
	}
	for _, service := range t.Missing(w.leaves) {
		if !slices.Contains(w.involved, service) {
			absent = append(absent, service)
			continue
		}
		lacks = append(lacks, fmt.Sprintf("%s did not report a request that was sent to it", service))
	}
	const most = 3
	if n := len(lacks) - most; n > 0 {
		lacks = append(lacks[:most], fmt.Sprintf("%d more", n))
	}
	return strings.Join(lacks, "; "), absent
}

func orElse(text, or string) string {
	if text == "" {
		return or
	}
	return text
}
