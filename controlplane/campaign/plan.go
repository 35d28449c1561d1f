package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/baseline"
)

// What the plugin adds to an Envoy, measured with Envoy 1.40 and two workers: memory while
// it is loaded, of which Envoy keeps about PluginKeptBytes, and the CPU time of compiling it
// once.
const (
	PluginBytes     = 94 << 20
	PluginKeptBytes = 67 << 20
	PluginLoadCPU   = 4 * time.Second
)

// Planned is what a campaign would do, as far as clean runs tell.
type Planned struct {
	// Services that it touches, with their sidecars.
	Services []PlannedService
	// Leaves are services it sees calls to, without a sidecar.
	Leaves []string
	// Candidates of the first rounds. Their results may ask for more: see Coverage.
	Candidates []*solverv1.Candidate
	// Nothing says why there is nothing to fault; empty: there are candidates.
	Nothing string
	// Coverage of the fault space; nothing of it is reached yet.
	Coverage *campaignv1.Coverage
	// Clean runs that were made, and Trials with faults that would be, together with the
	// Controls that go with them if there is one finding: each more has some of its own.
	CleanRuns, Trials, Controls int
	// OneRun is how long a run takes, its quiet period included; Duration how long
	// the campaign would take without loading the plugin, and Load how long that took.
	OneRun, Duration, Load time.Duration
	// Budget that would end it earlier; Duration is not cut by it.
	BudgetTrials   int
	BudgetDuration time.Duration
	// CleanAnswers are what the client gets when nothing is wrong.
	CleanAnswers []*campaignv1.Answer
}

// PlannedService is a service that a campaign touches.
type PlannedService struct {
	Name     string
	Sidecars []Sidecar
	// Calls that it receives in a clean run.
	Calls int
}

// Plan records clean runs, injects nothing, and says what a campaign would do. It loads the
// plugin into the sidecars and takes it away again.
//
// Errors: those of Run.
func Plan(ctx context.Context, config Config) (*Planned, error) {
	e, err := newEnv(config)
	if err != nil {
		return nil, err
	}
	if e.StartSolver == nil {
		e.StartSolver = Embedded
	}
	defer e.close()
	if err := e.awaitFleet(ctx); err != nil {
		return nil, err
	}
	loading := time.Now()
	if err := e.recordClean(ctx, cleanRuns(e.Spec)); err != nil {
		return nil, err
	}
	e.warnUnused()
	l := &loop{env: e}
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = l.solver.End(late) // it ends by itself otherwise
	}()
	candidates, err := l.solver.Next(ctx, 0)
	if err != nil {
		return nil, err
	}
	statistics, err := l.solver.Statistics(ctx)
	if err != nil {
		return nil, err
	}
	p := e.plan(candidates)
	p.Load = e.ready.Sub(loading)
	p.Coverage = statistics.GetCoverage()
	if len(candidates) == 0 {
		p.Nothing = e.whyNothing(p.Coverage)
	}
	return p, nil
}

// whyNothing says why clean runs leave nothing to fault.
func (e *env) whyNothing(c *campaignv1.Coverage) string {
	callees := make(map[string]bool)
	for _, a := range e.clean {
		for _, call := range a.recording.trial.Calls {
			if call.Caller != "" {
				callees[call.Callee] = true
			}
		}
	}
	wanted := e.Spec.GetFaults().GetCallees()
	switch {
	case len(callees) == 0:
		return "no call between services was seen in the clean runs; `sequencefi check` shows edge by edge why"
	case len(wanted) > 0 && !slices.ContainsFunc(wanted, func(name string) bool { return callees[name] }):
		return fmt.Sprintf("faults.callees allows only calls to %s, and the clean runs called %s",
			strings.Join(wanted, ", "), strings.Join(sortedKeys(callees), ", "))
	case len(c.GetUnreached()) > 0:
		var reasons []string
		for _, reason := range sortedKeys(c.GetUnreached()) {
			reasons = append(reasons, fmt.Sprintf("%d %s", c.GetUnreached()[reason], reason))
		}
		return fmt.Sprintf("of %d points of the fault space none can be tried: %s", c.GetSpace(), strings.Join(reasons, "; "))
	}
	return "the solver has no candidate: " + c.GetStatement()
}

// breaks is the largest number of kinds in which connections of one op are broken.
func breaks(candidates []*solverv1.Candidate) int {
	kinds := make(map[string]map[string]bool)
	most := 0
	for _, c := range candidates {
		way := breakOf(c.GetTfics())
		if way == "" {
			continue
		}
		op := c.GetTfics()[0].GetTarget().GetCallee() + " " + c.GetTfics()[0].GetTarget().GetApi()
		if kinds[op] == nil {
			kinds[op] = make(map[string]bool)
		}
		kinds[op][way] = true
		most = max(most, len(kinds[op]))
	}
	return most
}

func (e *env) plan(candidates []*solverv1.Candidate) *Planned {
	budget := e.Spec.GetBudget()
	p := &Planned{
		Candidates: candidates, CleanRuns: len(e.clean), Trials: len(candidates),
		BudgetTrials: orDefault(budget.GetTrials(), defaultTrials), BudgetDuration: defaultDuration,
		CleanAnswers: e.clean[0].trial.GetAnswers(),
	}
	if d := budget.GetDuration().AsDuration(); d > 0 {
		p.BudgetDuration = d
	}
	calls := make(map[string]int)
	for _, c := range e.clean[0].recording.trial.Calls {
		calls[c.Callee]++
	}
	sidecars := e.Fleet.Sidecars()
	for _, name := range e.reached() {
		service := PlannedService{Name: name, Calls: calls[name]}
		for _, s := range sidecars {
			if s.Service == name && s.Connected {
				service.Sidecars = append(service.Sidecars, s)
			}
		}
		p.Services = append(p.Services, service)
	}
	for _, leaf := range sortedKeys(e.leaves) {
		if calls[leaf] > 0 {
			p.Leaves = append(p.Leaves, leaf)
		}
	}
	// The last run is the one that had the quiet period of a trial.
	p.OneRun = e.clean[len(e.clean)-1].trial.GetDuration().AsDuration()
	// A control for each few trials; and one finding, with its confirmation, its contrast, and
	// a run of each kind of broken connection that leads to it.
	confirmations := orDefault(budget.GetConfirmations(), defaultConfirmations)
	p.Controls = 1 + len(candidates)/maxPending + 2 + confirmations + len(baseline.All) + breaks(candidates)
	p.Duration = time.Duration(p.CleanRuns+p.Trials+p.Controls) * p.OneRun
	for _, c := range candidates {
		p.Duration += waitOf(c.GetTfics())
	}
	return p
}
