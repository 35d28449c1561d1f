// Package oracle judges what came of a trial. It learns from clean runs how answers,
// effects and probes look when nothing is wrong, and reduces a trial to an outcome
// signature: two trials with one signature went wrong in the same way.
//
// It judges shape, not values: JSON types, members, null, emptiness, and the
// number of items where clean runs never vary. For other bodies it is media
// type and emptiness. What varies between clean runs says nothing. Values are compared
// only in probes, and there only those that never varied. A value that must hold in
// an answer is for an invariant to say.
//
// Everything here is pure and deterministic: the same clean runs and the same
// trial give the same signature.
package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Errors of Learn: clean runs that nothing can be compared with.
var (
	ErrNoCleanRuns = errors.New("no clean runs")
	ErrDisagree    = errors.New("clean runs disagree")
	ErrInvariant   = errors.New("an invariant does not hold in a clean run")
)

// itself is what to make of clean runs that go wrong.
const itself = "nothing was injected, the system itself answered so: see its logs, try again, or raise its time-outs"

// Answer classes.
const (
	Success = "success"
	Refusal = "refusal"
	Timeout = "timeout"
	Crash   = "crash"
	// Unsent: the step needed a value that no answer gave.
	Unsent = "unsent"
)

// Oracle is a compiled sequencefi.campaign.v1.Oracle. It is immutable.
type Oracle struct {
	invariants  []invariant
	changing    map[string]bool
	harmless    map[string]bool
	maxDuration time.Duration
	ignore      []path
}

// Observation is all of a run that is judged.
type Observation struct {
	Answers []workload.Answer
	Probes  []workload.Answer
	// Calls in causal order.
	Calls []Call
	// Events in causal order, for invariants.
	Events []*campaignv1.Event
}

// Compile checks and compiles an oracle. Errors: *valid.InvalidError with all
// problems, each with its path.
func Compile(spec *campaignv1.Oracle) (*Oracle, error) {
	problems := valid.Oracle(spec)
	o := &Oracle{
		changing:    set(spec.GetStateChanging()),
		harmless:    set(spec.GetHarmless()),
		maxDuration: spec.GetMaxDuration().AsDuration(),
	}
	for i, inv := range spec.GetInvariants() {
		if strings.TrimSpace(inv.GetCel()) == "" {
			continue // valid.Oracle has said so
		}
		prg, err := expr.CompileBool(inv.GetCel(), "answer", "answers", "probes", "trace")
		if err != nil {
			problems = append(problems, valid.Problem{
				Path: fmt.Sprintf("invariants[%d].cel", i),
				Want: fmt.Sprintf("must be a CEL expression that gives a bool: %v", err),
			})
			continue
		}
		o.invariants = append(o.invariants, invariant{inv.GetName(), prg})
	}
	for _, text := range spec.GetIgnore() {
		o.ignore = append(o.ignore, parsePath(text))
	}
	if err := valid.Error(problems); err != nil {
		return nil, err
	}
	return o, nil
}

// Unknown returns the steps and probes that invariants name and that a workload has not: a
// slip of the pen, which would make every trial a suspicion, or of the invariant nothing.
func (o *Oracle) Unknown(steps, probes []string) (problems []valid.Problem) {
	for i, inv := range o.invariants {
		for _, of := range []struct {
			variable, what string
			names          []string
		}{{"answers", "step", steps}, {"probes", "probe", probes}} {
			for _, key := range inv.prg.Keys(of.variable) {
				if slices.Contains(of.names, key) {
					continue
				}
				known := "there is none"
				if len(of.names) > 0 {
					known = "known: " + strings.Join(of.names, ", ")
				}
				problems = append(problems, valid.Problem{
					Path: fmt.Sprintf("invariants[%d].cel", i),
					Want: fmt.Sprintf("%s[%q]: must be the name of a %s (%s)", of.variable, key, of.what, known),
				})
			}
		}
	}
	return problems
}

func set(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// Class returns the class of an answer.
func (o *Oracle) Class(a workload.Answer) string {
	switch {
	case a.Unsent:
		return Unsent
	case a.Error == workload.ErrorTimeout:
		return Timeout
	case a.Error != "":
		return Crash
	case o.maxDuration > 0 && a.GetDuration().AsDuration() > o.maxDuration:
		return Timeout
	case a.GetStatus() >= 400 || a.GetExitCode() != 0:
		return Refusal
	}
	return Success
}

// Baseline is what clean runs have in common. It is immutable.
type Baseline struct {
	oracle  *Oracle
	steps   []clean
	probes  []body
	idle    []body
	hasIdle bool
}

// clean is what the clean runs of one step have in common.
type clean struct {
	name    string
	class   string
	status  uint32
	body    body
	effects map[effect]bounds
}

// Learn takes what clean runs have in common. idle are probes of a world in which
// nothing was done (see workload.Idle); nil: not known.
//
// Errors: ErrNoCleanRuns; ErrDisagree where a step's answers are of several classes, or
// one is a crash or a time-out; ErrInvariant.
func (o *Oracle) Learn(ctx context.Context, runs []Observation, idle []workload.Answer) (*Baseline, error) {
	if len(runs) == 0 {
		return nil, ErrNoCleanRuns
	}
	b := &Baseline{oracle: o, hasIdle: len(idle) > 0}
	for n, run := range runs {
		if err := b.learn(n, run); err != nil {
			return nil, err
		}
		if i, ok := b.odd(run); ok {
			return nil, fmt.Errorf("%w: step %s: %s; %s", ErrDisagree, run.Answers[i].GetStep(), o.answers(runs, i), itself)
		}
		for _, inv := range o.invariants {
			if ok, err := inv.holds(ctx, run); !ok {
				return nil, fmt.Errorf("%w: %q in run %d%s", ErrInvariant, inv.name, n+1, because(err))
			}
		}
	}
	b.idle = make([]body, len(idle))
	for i, a := range idle {
		b.idle[i].class = o.Class(a)
		b.idle[i].learn(a)
	}
	return b, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func (b *Baseline) learn(n int, run Observation) error {
	if n == 0 {
		b.steps = make([]clean, len(run.Answers))
		b.probes = make([]body, len(run.Probes))
	}
	if len(run.Answers) != len(b.steps) {
		return fmt.Errorf("%w: run %d has %d answers, run 1 has %d", ErrDisagree, n+1, len(run.Answers), len(b.steps))
	}
	for i, a := range run.Answers {
		step := &b.steps[i]
		class := b.oracle.classOf(run, i)
		if n == 0 {
			step.name, step.class, step.status = a.GetStep(), class, a.GetStatus()
		}
		step.body.learn(a)
		step.learnEffects(n, b.oracle.effectsOf(run.Calls, i))
	}
	for i, a := range run.Probes[:min(len(run.Probes), len(b.probes))] {
		b.probes[i].class = b.oracle.Class(a)
		b.probes[i].learn(a)
	}
	return nil
}

// odd returns the first step whose answer in a clean run is not of the class of the others,
// or shows that something is wrong.
func (b *Baseline) odd(run Observation) (int, bool) {
	for i := range run.Answers {
		if class := b.oracle.classOf(run, i); class != b.steps[i].class || class != Success && class != Refusal {
			return i, true
		}
	}
	return 0, false
}

// answers says how runs answered the i-th step: `HTTP 200 in run 1, 3; refused with HTTP
// 503 in run 2`.
func (o *Oracle) answers(runs []Observation, i int) string {
	var order []string
	by := make(map[string][]string)
	for n, run := range runs {
		if i >= len(run.Answers) {
			continue
		}
		said := sentence(run.Answers[i], o.classOf(run, i))
		if by[said] == nil {
			order = append(order, said)
		}
		by[said] = append(by[said], fmt.Sprint(n+1))
	}
	for at, said := range order {
		order[at] = said + " in run " + strings.Join(by[said], ", ")
	}
	return strings.Join(order, "; ")
}

func (c *clean) learnEffects(n int, counts map[effect]int) {
	if n == 0 {
		c.effects = make(map[effect]bounds, len(counts))
	}
	for e, count := range counts {
		if _, known := c.effects[e]; !known {
			b := bounds{min: count, max: count}
			if n > 0 {
				b.min = 0
			}
			c.effects[e] = b
		}
	}
	for e, b := range c.effects {
		count := counts[e]
		c.effects[e] = bounds{min(b.min, count), max(b.max, count)}
	}
}

// classOf returns the class of the run's i-th answer. A refusal that the entry's proxy
// had to make, because the application gave none, is a crash.
func (o *Oracle) classOf(run Observation, i int) string {
	class := o.Class(run.Answers[i])
	if class == Refusal && run.Answers[i].GetStatus() >= 500 {
		if slices.ContainsFunc(run.Calls, func(c Call) bool { return c.Step == i && c.Entry && c.Broken }) {
			return Crash
		}
	}
	return class
}

// Continue says whether a client would go on after the i-th answer: it does where
// clean runs end in the same way.
func (b *Baseline) Continue(i int, a workload.Answer) bool {
	return i < len(b.steps) && b.oracle.Class(a) == b.steps[i].class
}

// traceValue gives events the form that invariants see.
func traceValue(events []*campaignv1.Event) []any {
	out := make([]any, len(events))
	for i, e := range events {
		op := e.GetOp()
		out[i] = map[string]any{
			"observer": op.GetObserver(), "role": enumText(op.GetRole().String()), "peer": op.GetPeer(),
			"api": op.GetApi(), "phase": enumText(op.GetPhase().String()), "k": int64(e.GetK()),
			"status": int64(e.GetStatus()), "outcome": enumText(e.GetOutcome().String()),
			"delivered": e.GetDelivered(), "fired": e.GetFired(), "position": int64(e.GetPosition()),
			"call": e.GetCall(),
		}
	}
	return out
}

// enumText turns `ROLE_CLIENT` into `client`.
func enumText(name string) string {
	return strings.ToLower(name[strings.IndexByte(name, '_')+1:])
}

func duration(d *durationpb.Duration) string {
	return d.AsDuration().Round(time.Millisecond).String()
}
