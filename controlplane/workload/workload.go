// Package workload runs what a trial consists of: HTTP requests and commands, each
// stamped with the trial's trace context, and the steps around them that reset and
// probe state.
//
// A [Workload] is compiled once and run many times, by several goroutines if need
// be. It knows nothing of faults, and judges no answer.
package workload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// ErrBefore says that a step which resets state failed: the run says nothing.
var ErrBefore = errors.New("reset before the run failed")

const (
	defaultHTTPTimeout    = 10 * time.Second
	defaultCommandTimeout = time.Minute
	// MaxBody is how much of an answer is kept in a report.
	MaxBody = 64 << 10
	// maxWhole is how much of an answer is read to be judged.
	maxWhole = 8 << 20
)

// Workload is a compiled sequencefi.campaign.v1.Workload.
type Workload struct {
	before, steps, after []step
	propagation          Propagation
	isolated             bool
	parallelism          int
}

// step is a named action.
type step struct {
	name    string
	timeout time.Duration
	action  action
}

// action is an HTTP request or a command.
type action interface {
	// run carries the action out. The answer says how it ended, whatever happened.
	run(ctx context.Context, r *run) Answer
}

// Answer is what a step came to.
type Answer struct {
	*campaignv1.Answer
	// Whole is the body, up to 8 MiB of it; the report's is cut much earlier.
	Whole []byte
	// Unsent says that the request was never sent: it needs a value that no answer
	// gave. Answer.Error names it.
	Unsent bool
}

// Trial says how the workload is run.
type Trial struct {
	Key Key
	// Continue says whether the run goes on after a step's answer; nil: always. A
	// client that was refused does not go on to pay, so a campaign goes on only
	// where clean runs would.
	Continue func(index int, a Answer) bool
	// Random gives span ids and the random part of trace ids; nil: crypto/rand.
	Random io.Reader
}

// Result is what one run came to.
type Result struct {
	// Answers of the steps that ran, in order.
	Answers []Answer
	// Probes are the answers of the steps after the run.
	Probes []Answer
	// Traces are the trace ids that the run used, those of a command's own
	// traces included. StepTraces has those of each step that ran.
	Traces     []TraceID
	StepTraces [][]TraceID
	// StepSpans has, of each step that ran, the span that its requests name as their parent,
	// in whichever format they are read; zero: it sent none. No two steps have the same one,
	// though they share trace ids.
	StepSpans []SpanID
	// Shared are further trace ids that calls of any step may be reported under.
	Shared []TraceID
	// Starts has when each step that ran began.
	Starts []time.Time
	// Unmarked counts the requests of each step that ran which could not be marked.
	Unmarked []Unmarked
	Start    time.Time
	// Duration from the first step's start to the last step's end, without the
	// steps around them.
	Duration time.Duration
}

// Unmarked counts a command's requests that could not be marked.
type Unmarked struct {
	// Tunnels of TLS.
	Tunnels int
	// Foreign requests belong to other traces in all formats that a trial's requests have.
	Foreign int
}

// Compile checks and compiles a workload whose requests are to be marked as p says.
// Errors: *valid.InvalidError with all problems, each with its path.
func Compile(spec *campaignv1.Workload, p Propagation) (*Workload, error) {
	problems := valid.Workload(spec)
	w := &Workload{propagation: p, isolated: spec.GetIsolated(), parallelism: max(1, int(spec.GetParallelism()))}
	index := 0
	for _, part := range []struct {
		path string
		from []*campaignv1.Step
		to   *[]step
		// stamped steps have SequenceFI set all trace headers.
		stamped bool
	}{
		{"before", spec.GetBefore(), &w.before, false},
		{"steps", spec.GetSteps(), &w.steps, true},
		{"after", spec.GetAfter(), &w.after, false},
	} {
		for i, s := range part.from {
			index++
			compiled, found := compileStep(s, index)
			if part.stamped {
				found = append(found, valid.Under("http", p.refuse(s.GetHttp()))...)
			}
			problems = append(problems, valid.Under(fmt.Sprintf("%s[%d]", part.path, i), found)...)
			*part.to = append(*part.to, compiled)
		}
	}
	if err := valid.Error(problems); err != nil {
		return nil, err
	}
	return w, nil
}

func compileStep(s *campaignv1.Step, index int) (step, []valid.Problem) {
	out := step{name: s.GetName()}
	if out.name == "" {
		out.name = strconv.Itoa(index)
	}
	switch a := s.GetAction().(type) {
	case *campaignv1.Step_Http:
		request, problems := compileRequest(a.Http)
		out.action, out.timeout = request, defaultHTTPTimeout
		if d := a.Http.GetTimeout().AsDuration(); d > 0 {
			out.timeout = d
		}
		return out, valid.Under("http", problems)
	case *campaignv1.Step_Command:
		out.action, out.timeout = command{a.Command}, defaultCommandTimeout
		if d := a.Command.GetTimeout().AsDuration(); d > 0 {
			out.timeout = d
		}
	}
	return out, nil
}

// MarkedBy returns the same workload, whose requests are marked as p says.
func (w *Workload) MarkedBy(p Propagation) *Workload {
	out := *w
	out.propagation = p
	return &out
}

// Steps returns the names of the steps.
func (w *Workload) Steps() []string { return names(w.steps) }

// Probes returns the names of the steps after the run.
func (w *Workload) Probes() []string { return names(w.after) }

// IsRequest says whether the i-th step is a request of the workload's own, which
// cannot but carry the trial's trace context; a command may ignore it.
func (w *Workload) IsRequest(i int) bool {
	_, ok := w.steps[i].action.(*request)
	return ok
}

// HasProbes says whether there are steps after the run.
func (w *Workload) HasProbes() bool { return len(w.after) > 0 }

// Parallelism returns how many runs the workload allows at once.
func (w *Workload) Parallelism() int {
	if !w.isolated {
		return 1
	}
	return w.parallelism
}

// Timeout returns how long the steps of a run may take together.
func (w *Workload) Timeout() time.Duration {
	var sum time.Duration
	for _, s := range w.steps {
		sum += s.timeout
	}
	return sum
}

func names(steps []step) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = s.name
	}
	return out
}

// run is the state of one run.
type run struct {
	key         Key
	random      io.Reader
	propagation Propagation
	// values of `${name}`.
	values map[string]string
	// stamped steps carry the trial's trace context.
	stamped bool
	// traces, span and unmarked of the step under way.
	traces   []TraceID
	span     SpanID
	unmarked Unmarked
}

// Run runs the workload once. Errors: ErrBefore, or the context's. An answer that
// did not come is no error: it is in the result.
func (w *Workload) Run(ctx context.Context, t Trial) (*Result, error) {
	r := newRun(t)
	r.propagation = w.propagation
	if err := w.reset(ctx, r); err != nil {
		return nil, err
	}
	result := &Result{Start: time.Now(), Shared: w.propagation.Shared(t.Key)}
	r.stamped = true
	for i, s := range w.steps {
		r.traces, r.span, r.unmarked = nil, SpanID{}, Unmarked{}
		result.Starts = append(result.Starts, time.Now())
		answer := s.run(ctx, r)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		result.Answers = append(result.Answers, answer)
		result.StepTraces = append(result.StepTraces, r.traces)
		result.StepSpans = append(result.StepSpans, r.span)
		result.Unmarked = append(result.Unmarked, r.unmarked)
		result.Traces = append(result.Traces, r.traces...)
		if t.Continue != nil && !t.Continue(i, answer) {
			break
		}
	}
	result.Duration = time.Since(result.Start)
	return result, nil
}

// Probe runs the steps after a run. They belong to the trial's outcome and not to
// its trace; call it once the trial has become quiet. captured is the result of the
// run they follow, whose values they may use; nil: none.
func (w *Workload) Probe(ctx context.Context, t Trial, captured *Result) ([]Answer, error) {
	r := newRun(t)
	if captured != nil {
		for i, answer := range captured.Answers {
			if request, ok := w.steps[i].action.(*request); ok {
				// What the run could not capture a probe will miss, and say so.
				_ = request.captureFrom(ctx, answer, r.values)
			}
		}
	}
	answers := make([]Answer, 0, len(w.after))
	for _, s := range w.after {
		answers = append(answers, s.run(ctx, r))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Idle resets state and probes it without running the steps in between: that is
// how the world looks when nothing was done.
func (w *Workload) Idle(ctx context.Context, t Trial) ([]Answer, error) {
	if err := w.reset(ctx, newRun(t)); err != nil {
		return nil, err
	}
	return w.Probe(ctx, t, nil)
}

func newRun(t Trial) *run {
	r := &run{key: t.Key, random: t.Random, values: map[string]string{"trial.id": t.Key.String()}}
	if r.random == nil {
		r.random = rand.Reader
	}
	return r
}

func (w *Workload) reset(ctx context.Context, r *run) error {
	for _, s := range w.before {
		answer := s.run(ctx, r)
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case answer.Error != "":
			return fmt.Errorf("%w: step %s: %s", ErrBefore, s.name, answer.Error)
		case answer.Status >= 400:
			return fmt.Errorf("%w: step %s: HTTP %d", ErrBefore, s.name, answer.Status)
		case answer.ExitCode != 0:
			return fmt.Errorf("%w: step %s: exit code %d", ErrBefore, s.name, answer.ExitCode)
		}
	}
	return nil
}

func (s step) run(ctx context.Context, r *run) Answer {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	answer := s.action.run(ctx, r)
	answer.Step = s.name
	return answer
}

// context returns a new trace of the trial.
func (r *run) context() (*traceContext, error) {
	id, err := NewTraceID(r.key, r.random)
	if err != nil {
		return nil, err
	}
	span, err := newSpanID(r.random)
	if err != nil {
		return nil, err
	}
	r.span = span
	return &traceContext{key: r.key, id: id, span: span, format: r.propagation}, nil
}

// variables that a capture expression sees.
func variables(a Answer) map[string]any {
	return map[string]any{"answer": expr.Answer(a.Answer, a.Whole)}
}
