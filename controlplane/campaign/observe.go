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
}

// watching says what a recording waits for.
type watching struct {
	key    workload.Key
	traces []workload.TraceID
	// required traces must have been reported.
	required []workload.TraceID
	// leaves have no sidecar; involved services have a policy.
	leaves   map[string]bool
	involved []string
	quiet    time.Duration
	patience time.Duration
}

// record collects the reports of a run that has just ended, until nothing is missing
// and nothing more has come for the quiet period, so that a retry in the background is
// seen. What is incomplete when patience ends is no error: the recording says so.
//
// Reports, not events, are timed: sidecars' clocks may be wrong, ours is not.
func record(ctx context.Context, source Source, w watching) (*recording, error) {
	ended := time.Now()
	deadline := ended.Add(w.patience)
	ids := make([][16]byte, len(w.traces))
	for i, id := range w.traces {
		ids[i] = id
	}
	r := &recording{trial: &trace.Trial{}}
	last, spans, size := ended, -1, -1
	var unreadable error
	for {
		data, err := source.Spans(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read spans: %w", err)
		}
		if n := traces.Count(data); n != spans {
			spans = n
			r.data = data
			if r.trial, unreadable = trace.Build(w.key.String(), data); unreadable != nil {
				r.trial = &trace.Trial{}
			}
			// Applications' own spans may come much later and say nothing here.
			if n := len(r.trial.Events) + len(r.trial.Problems); n != size {
				size, last = n, time.Now()
			}
		}
		r.incomplete, r.absent = w.missing(r.trial)
		if unreadable != nil {
			// Spans that are still missing may be what makes the others unreadable.
			r.incomplete = unreadable.Error()
		}
		now := time.Now()
		wake := deadline
		if r.incomplete == "" {
			wake = last.Add(w.quiet)
		}
		if !now.Before(wake) || now.After(deadline) {
			r.tail = last.Sub(ended)
			return r, nil
		}
		if err := await(ctx, source, ids, spans, wake); err != nil {
			return nil, err
		}
	}
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
	for _, id := range w.required {
		if !slices.Contains(t.TraceIDs, id.String()) {
			lacks = append(lacks, "no sidecar reported trace "+id.String())
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
