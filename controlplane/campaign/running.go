package campaign

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// running is a run whose steps are done, and which is listened to.
type running struct {
	env     *env
	act     *activation
	purpose string
	start   time.Time
	trial   workload.Trial
	// broken says why the steps were not run; empty: they were.
	broken   string
	result   *workload.Result
	requests []request
	marks    marks
	listener *listener
	probes   []workload.Answer
}

// begin runs the steps, and listens until no report is missing, or patience ends. It changes
// nothing of the campaign's, so that others may go on beside it. Errors as of attempt.
func (e *env) begin(ctx context.Context, act *activation, purpose string) (*running, error) {
	r := &running{
		env: e, act: act, purpose: purpose, start: time.Now(),
		trial: workload.Trial{Key: act.key, Random: e.Random},
	}
	if e.baseline != nil {
		r.trial.Continue = e.baseline.Continue
	}
	var err error
	r.result, err = e.workload.Run(ctx, r.trial)
	if errors.Is(err, workload.ErrBefore) {
		r.broken = err.Error()
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.marks = marksOf(r.result)
	var required []request
	for i, ids := range r.result.StepTraces {
		if !e.workload.IsRequest(i) || len(ids) == 0 || r.result.Answers[i].GetError() == workload.ErrorRefused {
			continue
		}
		one := request{step: i, trace: ids[0].String()}
		if _, own := r.marks.of[one.trace]; !own {
			one.parent = one.trace + "/" + r.result.StepSpans[i].String()
		}
		r.requests = append(r.requests, one)
		if !e.unreported[i] {
			required = append(required, one)
		}
	}
	r.listener = listen(e.Source, watching{
		key: act.key, traces: slices.Concat(r.result.Traces, r.result.Shared), required: required,
		leaves: e.leaves, involved: e.act.involved,
		patience: e.ReportTimeout + e.quiet + waitOf(act.tfics),
	})
	return r, r.listener.until(ctx, 0)
}

// end listens until the quiet period is over, and probes what the run left behind.
func (r *running) end(ctx context.Context) (*attempt, error) {
	if r.broken != "" {
		return r.seen(), nil
	}
	if err := r.listener.until(ctx, r.env.quiet); err != nil {
		return nil, err
	}
	var err error
	if r.probes, err = r.env.workload.Probe(ctx, r.trial, r.result); err != nil {
		return nil, err
	}
	return r.seen(), nil
}

// seen is the run as far as it is known.
func (r *running) seen() *attempt {
	a := &attempt{trial: &campaignv1.Trial{
		Id: r.act.key.String(), Tfics: r.act.tfics, Purpose: r.purpose, Start: timestamppb.New(r.start),
	}}
	if r.broken != "" {
		a.invalid = r.broken
		return a
	}
	a.requests, a.marks, a.unmarked = r.requests, r.marks, r.result.Unmarked
	a.recording = r.listener.recording
	a.absent = a.recording.absent
	built := a.recording.trial
	a.trial.Events = eventsOf(built, r.act.tfics)
	a.trial.Fired = built.Fired()
	a.trial.Duration = durationpb.New(time.Since(r.start))
	a.observation.Answers, a.observation.Probes = r.result.Answers, r.probes
	a.observation.Events = a.trial.Events
	var unsure string
	a.observation.Calls, unsure = callsOf(built, r.marks)
	for _, answer := range slices.Concat(a.observation.Answers, a.observation.Probes) {
		a.trial.Answers = append(a.trial.Answers, answer.Answer)
	}
	for _, id := range r.result.Traces {
		a.trial.TraceIds = append(a.trial.TraceIds, id.String())
	}
	for _, id := range r.result.Shared {
		if text := id.String(); slices.Contains(built.TraceIDs, text) && !slices.Contains(a.trial.TraceIds, text) {
			a.trial.TraceIds = append(a.trial.TraceIds, text)
		}
	}
	a.invalid = orElse(r.env.whyInvalid(a, r.act), unsure)
	return a
}
