package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// ErrClean says that clean runs did not work out: there is nothing that a trial
// could be compared with.
var ErrClean = errors.New("clean runs failed")

// ErrSilent says, beside ErrClean, that no sidecar reported anything of a clean run.
var ErrSilent = errors.New("no sidecar reported anything of the run")

// recordClean puts the first policy in force and records n clean runs. It learns from
// them who is involved, how long the tail is, and what a clean outcome is.
func (e *env) recordClean(ctx context.Context, n int) error {
	e.update(Update{Stage: StageLoad, Text: e.loadingText()})
	const spares = 4
	acts, err := e.act.pushNew(ctx, spares, make([][]*tfiv1.Tfic, n)...)
	if err != nil {
		return err
	}
	e.ready = time.Now()
	idle, err := e.idle(ctx)
	if err != nil {
		return err
	}
	e.update(Update{Stage: StageClean, Planned: n})
	var tail time.Duration
	for i := range n {
		a, err := e.cleanRun(ctx, acts[i])
		if err != nil {
			return err
		}
		e.clean = append(e.clean, a)
		tail = max(tail, a.recording.tail)
		e.lingers = e.lingers || a.recording.late
		if i > 0 || n == 1 {
			e.quiet = max(e.MinQuiet, 2*tail)
		}
		e.update(Update{Done: i + 1, Planned: n, Trial: a.trial})
	}
	e.update(Update{Done: n, Planned: n, Text: fmt.Sprintf(
		"reports were in %d ms after the answer at the latest, so runs are judged after %d ms without any",
		tail.Milliseconds(), e.quiet.Milliseconds())})
	for _, text := range slices.Concat(e.passedBy(e.clean[n-1]), e.clean[n-1].astray()) {
		e.warn("%s", text)
	}
	observations := make([]oracle.Observation, len(e.clean))
	for i, a := range e.clean {
		observations[i] = a.observation
		e.noteOps(a)
	}
	if e.baseline, err = e.oracle.Learn(ctx, observations, idle); err != nil {
		return fmt.Errorf("%w: %w", ErrClean, err)
	}
	for _, a := range e.clean {
		a.trial.Signature = e.baseline.Judge(ctx, a.observation)
		a.trial.Verdict = campaignv1.Verdict_VERDICT_TOLERATED
		a.trial.Reason = "nothing was injected"
		if err := e.keep(ctx, a); err != nil {
			return err
		}
	}
	e.unused = e.unusedByClean()
	e.act.retain(e.reached())
	return nil
}

// idle probes a world in which nothing was done.
func (e *env) idle(ctx context.Context) ([]workload.Answer, error) {
	if !e.workload.HasProbes() {
		return nil, nil
	}
	key, err := workload.NewKey(e.Random)
	if err != nil {
		return nil, err
	}
	answers, err := e.workload.Idle(ctx, workload.Trial{Key: key})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClean, err)
	}
	return answers, nil
}

// cleanRun is one clean run, which must be a valid one.
func (e *env) cleanRun(ctx context.Context, act *activation) (*attempt, error) {
	a, err := e.run(ctx, act, nil, purposeClean)
	if err != nil {
		return nil, err
	}
	if a.invalid == "" {
		return a, nil
	}
	if e.forgive(a) {
		return e.cleanRun(ctx, nil)
	}
	if a.recording == nil {
		return nil, fmt.Errorf("%w: %s", ErrClean, a.invalid)
	}
	if len(a.recording.trial.Events) == 0 {
		return nil, fmt.Errorf("%w: %s\n%w: the workload must send its requests to a sidecar's address%s, and sidecars must reach the OTLP address %s",
			ErrClean, a.invalid, ErrSilent, e.inbounds(), orElse(e.Topology.OTLP, "of the topology"))
	}
	return nil, fmt.Errorf("%w: %s\n`sequencefi check` shows edge by edge where trace context is lost", ErrClean, a.invalid)
}

// forgive says whether a clean run failed only because no sidecar sees some of its
// requests while others are seen. Those steps are part of the workload and of no trace.
func (e *env) forgive(a *attempt) bool {
	if a.recording == nil || len(a.recording.trial.Events) == 0 {
		return false
	}
	forgiven := false
	for _, r := range a.requests {
		if !r.reported(a.recording.trial) && !e.unreported[r.step] {
			e.unreported[r.step] = true
			forgiven = true
			e.warn("no sidecar sees the request of step %s", a.observation.Answers[r.step].GetStep())
		}
	}
	return forgiven
}

// reached returns the services that clean runs went through and that have a sidecar.
func (e *env) reached() []string {
	var names []string
	for _, a := range e.clean {
		for _, service := range a.recording.trial.Services() {
			if _, ok := e.Topology.Service(service); ok && !slices.Contains(names, service) {
				names = append(names, service)
			}
		}
	}
	slices.Sort(names)
	return names
}

// control is a clean run beside a trial; it says whether the world is as it was.
func (e *env) control(ctx context.Context) (bool, *attempt, error) {
	act, err := e.act.clean(ctx)
	if ctx.Err() != nil {
		return false, nil, ctx.Err()
	}
	if errors.Is(err, ErrPush) {
		return false, nil, err
	}
	if err != nil {
		// The run makes one of its own, and is invalid if that is refused as well.
		e.warn("%v", err)
	}
	a, err := e.run(ctx, act, nil, purposeControl)
	if err != nil {
		return false, nil, err
	}
	e.judge(ctx, a)
	switch a.trial.GetVerdict() {
	case campaignv1.Verdict_VERDICT_TOLERATED:
		a.trial.Reason = "nothing was injected"
	case campaignv1.Verdict_VERDICT_EFFECTIVE:
		a.trial.Verdict = campaignv1.Verdict_VERDICT_CONTAMINATED
		a.trial.Reason = "nothing was injected, and yet the outcome is not a clean one"
	}
	e.update(Update{Trial: a.trial})
	if err := e.keep(ctx, a); err != nil {
		return false, nil, err
	}
	return a.invalid == "" && isClean(a.trial), a, nil
}

// keep hands a trial to the recorder.
func (e *env) keep(ctx context.Context, a *attempt) error {
	if e.Recorder == nil {
		return nil
	}
	recorded, err := a.recorded()
	if err != nil {
		return err
	}
	if err := e.Recorder.RecordTrial(ctx, a.trial, recorded.GetTracesData()); err != nil {
		return fmt.Errorf("record trial %s: %w", a.trial.GetId(), err)
	}
	return nil
}
