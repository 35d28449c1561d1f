package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// What a trial is for (proto: sequencefi.campaign.v1.Trial.purpose).
const (
	purposeClean     = "clean"
	purposeControl   = "control"
	purposeCandidate = "candidate"
	purposeContrast  = "contrast"
	purposeReplay    = "replay"
)

// env is where runs happen: the fleet with what it was told, the workload, and what
// clean runs look like. Campaign, replay, plan and check share it.
type env struct {
	Config
	workload *workload.Workload
	oracle   *oracle.Oracle
	act      *activations
	begun    time.Time
	// ready is when the first policy was in force.
	ready time.Time

	// leaves are services without a sidecar: the topology's, and those that turned out
	// to be outside it.
	leaves map[string]bool
	// unreported are the steps whose request no sidecar sees, by index.
	unreported map[int]bool
	quiet      time.Duration
	// lingers: a run went on when its reports had been complete.
	lingers  bool
	baseline *oracle.Baseline
	clean    []*attempt
	unused   unused
	// ops that runs called.
	ops     map[string]bool
	mending mending
	stage   Stage
}

func newEnv(config Config) (*env, error) {
	c, err := config.complete()
	if err != nil {
		return nil, err
	}
	w, o, err := compile(c.Spec, c.Topology)
	if err != nil {
		return nil, err
	}
	e := &env{
		Config: c, workload: w, oracle: o, begun: time.Now(), quiet: c.CleanQuiet,
		leaves: make(map[string]bool), unreported: make(map[int]bool), ops: make(map[string]bool),
		mending: newMending(),
		act: &activations{
			plane: c.Plane, fleet: c.Fleet, topology: c.Topology, random: c.Random,
			lifetime: c.Lifetime, longest: w.Timeout() + c.ReportTimeout, patience: c.PushTimeout, comeback: c.ReadyTimeout,
			pushed: make(map[string]bool),
		},
	}
	e.act.watch = e.showPush
	for _, leaf := range c.Topology.Leaves {
		e.leaves[leaf] = true
	}
	e.act.involve(firstInvolved(c.Spec.GetWorkload(), c.Topology)...)
	return e, nil
}

// close takes everything away from the sidecars, whatever became of the context.
func (e *env) close() { e.act.clear() }

func (e *env) update(u Update) {
	if u.Stage == "" {
		u.Stage = e.stage
	}
	e.stage = u.Stage
	u.Elapsed = time.Since(e.begun)
	e.Progress.Update(u)
}

func (e *env) warn(format string, args ...any) {
	e.update(Update{Text: fmt.Sprintf(format, args...), Warning: true})
}

// awaitFleet waits until all involved services have a sidecar.
func (e *env) awaitFleet(ctx context.Context) error {
	e.update(Update{Stage: StageFleet, Text: "waiting for sidecars of " + plural(len(e.act.involved), "service")})
	patience := e.ReadyTimeout
	if e.Nobody != nil && patience > nobodyAfter {
		patience -= nobodyAfter
		var missing *NotReadyError
		err := awaitFleet(ctx, e.Fleet, e.act.involved, nobodyAfter)
		if !errors.As(err, &missing) {
			return err
		}
		if len(e.Fleet.Sidecars()) == 0 {
			if missing.Vain = e.Nobody(ctx); missing.Vain != "" {
				return missing
			}
		}
	}
	return awaitFleet(ctx, e.Fleet, e.act.involved, patience)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// attempt is one run with what came of it.
type attempt struct {
	trial       *campaignv1.Trial
	observation oracle.Observation
	recording   *recording
	// requests of the workload's own.
	requests []request
	marks    marks
	// unmarked requests of each step that ran.
	unmarked []workload.Unmarked
	// invalid says why it says nothing; empty: it does.
	invalid string
	// absent services need a policy before it can say anything.
	absent []string
}

// recorded gives the run the form that a solver reads.
func (a *attempt) recorded() (*solverv1.RecordedTrial, error) {
	out := &solverv1.RecordedTrial{Id: a.trial.GetId()}
	if a.recording == nil {
		return out, nil
	}
	data, err := proto.Marshal(a.recording.data)
	if err != nil {
		return nil, fmt.Errorf("encode the spans of trial %s: %w", a.trial.GetId(), err)
	}
	out.TracesData = data
	return out, nil
}

// attempt runs the workload once under an activation, and listens until the quiet period is
// over. Errors are the context's and the source's: all else makes the attempt invalid. Several
// may run at once.
func (e *env) attempt(ctx context.Context, act *activation, purpose string) (*attempt, error) {
	r, err := e.begin(ctx, act, purpose)
	if err != nil {
		return nil, err
	}
	return r.end(ctx)
}

// whyInvalid says why a run says nothing, blind to what came of it; empty: it does.
func (e *env) whyInvalid(a *attempt, act *activation) string {
	built := a.recording.trial
	for i, answer := range a.observation.Answers {
		if answer.GetError() == workload.ErrorRefused && len(built.Events) == 0 {
			return fmt.Sprintf("step %s: %s refused the connection", answer.GetStep(), e.target(i))
		}
	}
	if len(a.absent) > 0 {
		return fmt.Sprintf("requests went to %v, whose sidecars had no policy", a.absent)
	}
	for _, p := range built.Problems {
		return fmt.Sprintf("the sidecar of %s reported %s", p.Service, p.What)
	}
	if a.recording.incomplete != "" {
		return "reports are incomplete: " + a.recording.incomplete
	}
	for i := range built.Events {
		if v := built.Events[i].PolicyVersion; !act.versions[v] {
			return fmt.Sprintf("the sidecar of %s judged by policy %q, which does not have this trial", built.Events[i].Op.Observer, v)
		}
	}
	return ""
}

// run runs the workload under activation, and again while it says nothing. A nil activation is
// made for tfics.
func (e *env) run(ctx context.Context, act *activation, tfics []*tfiv1.Tfic, purpose string) (*attempt, error) {
	a, err := e.once(ctx, act, tfics, purpose)
	if err != nil {
		return nil, err
	}
	return e.repeated(ctx, a, tfics, purpose)
}

// repeated returns an attempt that says something, or else the last of at most maxRepeats more
// with new keys.
func (e *env) repeated(ctx context.Context, a *attempt, tfics []*tfiv1.Tfic, purpose string) (*attempt, error) {
	grown := false
	for repeats := uint32(0); ; {
		a.trial.Repeats = repeats
		switch {
		case e.adopt(a) && !grown:
			// Not its own fault: the service was not known to belong to it.
			grown = true
		case a.invalid == "" || repeats >= maxRepeats:
			return a, nil
		default:
			repeats++
			e.warn("repeating a run: %s", a.invalid)
		}
		var err error
		if a, err = e.once(ctx, nil, tfics, purpose); err != nil {
			return nil, err
		}
	}
}

// once is one attempt; a policy that sidecars refuse makes it invalid, up to ErrPush.
func (e *env) once(ctx context.Context, act *activation, tfics []*tfiv1.Tfic, purpose string) (*attempt, error) {
	if act == nil || e.act.endangered(act) {
		made, err := e.act.pushNew(ctx, 0, tfics)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, ErrPush) {
			return nil, err
		}
		if err != nil {
			return &attempt{
				trial:   &campaignv1.Trial{Tfics: tfics, Purpose: purpose, Start: timestamppb.Now()},
				invalid: err.Error(),
			}, nil
		}
		act = made[0]
	}
	defer e.act.drop(act)
	return e.attempt(ctx, act, purpose)
}

// adopt takes in services that a run turned out to reach, and says whether there were
// any with a sidecar.
func (e *env) adopt(a *attempt) bool {
	grown := false
	for _, service := range a.absent {
		if _, ok := e.Topology.Service(service); ok {
			e.act.involve(service)
			grown = true
			continue
		}
		if !e.leaves[service] {
			e.leaves[service] = true
			grown = true
			e.warn("%s is not in the topology: taken for a service without sidecar", service)
		}
	}
	return grown
}

// classify gives an attempt its signature and its verdict.
func (e *env) classify(ctx context.Context, a *attempt) {
	t := a.trial
	if a.invalid != "" {
		t.Verdict, t.Reason = campaignv1.Verdict_VERDICT_INVALID, a.invalid
		return
	}
	t.Signature = e.baseline.Judge(ctx, a.observation)
	t.Verdict, t.Reason = verdictOf(a.recording.trial, t.GetTfics(), t.GetSignature())
}

// judge classifies an attempt, and remembers what it tells of callers that try again.
func (e *env) judge(ctx context.Context, a *attempt) {
	e.classify(ctx, a)
	if a.invalid != "" {
		return
	}
	e.unused.see(a.recording.trial)
	e.noteOps(a)
	t := a.trial
	again := e.calledAgain(a.recording.trial)
	if again == "" {
		return
	}
	e.mending.see(t)
	if t.GetVerdict() == campaignv1.Verdict_VERDICT_TOLERATED {
		t.Reason = "as in clean runs: " + again
	}
}

// isClean says whether a judged trial's outcome is that of clean runs.
func isClean(t *campaignv1.Trial) bool {
	return t.GetSignature().GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN
}
