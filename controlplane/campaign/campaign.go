// Package campaign runs campaigns: it asks the solver where and when a fault could
// change what a client sees, has sidecars inject it, judges what came of it, and goes on
// until there is nothing new.
//
// It works through small interfaces ([Plane], [Fleet], [Source], [Solver]), and holds
// no connection of its own. To read first: [Run], [Config], [Plane].
//
// A run says something only if everything in it is accounted for: each event number
// reported, each request received, each judgement made by a policy that has the trial. What
// is not is invalid, whatever the client saw, and is repeated. Nothing that a fault may have
// left behind is taken for an outcome: trials that came out wrong count only once a clean
// control run has followed.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/baseline"
	"github.com/sequencefi/sequencefi/solver/search"
)

// Run runs a campaign to its end, to the end of its budget, or until ctx ends, and takes
// everything away from the sidecars then. A campaign that was stopped is no error: the
// report says so and has what was found. With an error in mid-campaign the report has what
// was found until then; it is nil only if nothing was started.
//
// Errors: *valid.InvalidError for a spec that cannot be run; *NotReadyError; ErrClean; ErrPush;
// those of Plane, Source and Solver, as *SolverGoneError.
func Run(ctx context.Context, config Config) (*campaignv1.CampaignReport, error) {
	e, err := newEnv(config)
	if err != nil {
		return nil, err
	}
	if e.StartSolver == nil {
		return nil, fmt.Errorf("%w: StartSolver is nil", ErrConfig)
	}
	defer e.close()
	report := &campaignv1.CampaignReport{Spec: e.Spec, Start: timestamppb.New(e.begun), Version: e.Version}
	s := &loop{env: e}
	err = s.campaign(ctx, report)
	s.abandon()
	s.fill(report)
	if err != nil {
		report.Interrupted = err.Error()
		if ctx.Err() != nil {
			report.Interrupted = "stopped: " + context.Cause(ctx).Error()
			err = nil
		}
	}
	e.update(Update{Stage: StageDone, Text: report.GetInterrupted()})
	return report, err
}

func (s *loop) campaign(ctx context.Context, report *campaignv1.CampaignReport) (err error) {
	budget := s.Spec.GetBudget()
	s.budget = orDefault(budget.GetTrials(), defaultTrials)
	s.deadline = s.begun.Add(defaultDuration)
	if d := budget.GetDuration().AsDuration(); d > 0 {
		s.deadline = s.begun.Add(d)
	}
	s.parallel = s.workload.Parallelism()

	if err := s.awaitFleet(ctx); err != nil {
		return err
	}
	if err := s.recordClean(ctx, cleanRuns(s.Spec)); err != nil {
		return err
	}
	s.warnUnused()
	s.well = true
	if err := s.start(ctx); err != nil {
		return err
	}
	// Statistics are wanted of a search that was stopped too, with all that was
	// judged in the round that it did not finish.
	defer func() {
		if isGone(err) {
			return
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		err = errors.Join(err, s.endSolver(late, report))
	}()
	if err := s.rounds(ctx); err != nil {
		return err
	}
	for _, k := range s.findings.list {
		if k.isDegraded() {
			continue // which is the same whether it comes about each time or not
		}
		if err := s.steady(ctx, k); err != nil {
			return err
		}
	}
	found, _ := s.split()
	for i, finding := range found {
		s.update(Update{Stage: StageContrast, Done: i * len(baseline.All), Planned: len(found) * len(baseline.All)})
		if err := s.contrast(ctx, finding); err != nil {
			return err
		}
	}
	s.warnUnmatched()
	return nil
}

// start begins the search and gives it the clean runs.
func (s *loop) start(ctx context.Context) error {
	solver, err := s.StartSolver(ctx, &solverv1.StartSessionRequest{Faults: s.Spec.GetFaults(), MaxFaults: 1, Leaves: sortedKeys(s.leaves)})
	if err != nil {
		return fmt.Errorf("start the solver: %w", err)
	}
	s.solver = solver
	trials := make([]*solverv1.RecordedTrial, len(s.clean))
	for i, a := range s.clean {
		if trials[i], err = a.recorded(); err != nil {
			return err
		}
	}
	warnings, err := solver.AddTraces(ctx, trials)
	if err != nil {
		err = fmt.Errorf("give the solver clean runs: %w", err)
		if isGone(err) {
			return err
		}
		return errors.Join(err, solver.End(ctx))
	}
	for _, text := range warnings {
		s.warn("%s", text)
	}
	return nil
}

// endSolver tells the solver all that was judged, takes its statistics into the report, and
// frees it. One that is gone is asked no more.
func (s *loop) endSolver(ctx context.Context, report *campaignv1.CampaignReport) error {
	told := s.report(ctx)
	if isGone(told) {
		return told
	}
	statistics, err := s.solver.Statistics(ctx)
	if err != nil {
		err = fmt.Errorf("ask the solver for statistics: %w", err)
	}
	if isGone(err) {
		return errors.Join(told, err)
	}
	report.Coverage = statistics.GetCoverage()
	ended := s.solver.End(ctx)
	if isGone(ended) {
		ended = nil // so that nothing is left of the search
	}
	return errors.Join(told, err, ended)
}

// split returns the findings as they stand, and the outcomes that are merely degraded.
func (s *loop) split() (found, degraded []*campaignv1.Finding) {
	for _, k := range s.findings.list {
		if k.settled {
			continue // on its unsteady trials
		}
		s.weed(k)
		if !k.isDegraded() && !k.checked {
			s.setAside(k)
			unchecked(k)
		}
	}
	return s.findings.split()
}

// fill puts all that was found into the report.
func (s *loop) fill(report *campaignv1.CampaignReport) {
	report.Duration = durationpb.New(time.Since(s.begun))
	if !s.ready.IsZero() {
		report.SearchDuration = durationpb.New(time.Since(s.ready))
	}
	report.Findings, report.Degraded = s.split()
	for _, finding := range append(report.GetFindings(), report.GetDegraded()...) {
		if len(s.clean) > 0 {
			finding.CleanAnswers = s.clean[0].trial.GetAnswers()
		}
	}
	report.Trials = slices.Concat(s.trials, s.beside)
	slices.SortStableFunc(report.GetTrials(), func(a, b *campaignv1.Trial) int {
		return a.GetStart().AsTime().Compare(b.GetStart().AsTime())
	})
	for _, a := range s.clean {
		report.Clean = append(report.Clean, a.trial)
	}
	services := make(map[string]bool)
	for service := range s.act.pushed {
		services[service] = true
	}
	report.Sidecars = statusOf(s.Fleet.Sidecars(), services)
	s.limit(report.GetCoverage())
	s.caveat(report.GetCoverage())
}

// limit says in the coverage that it was the budget that kept points from being tried. The
// solver has counted them; the first of them had become candidates.
func (s *loop) limit(c *campaignv1.Coverage) {
	if c == nil || s.untried == 0 {
		return
	}
	if n := c.GetUnreached()[search.NotTried]; n > 0 {
		delete(c.Unreached, search.NotTried)
		c.Unreached[reasonBudget] += n
	}
	c.Statement = strings.ReplaceAll(c.GetStatement(), search.NotTried, reasonBudget)
	for _, row := range c.GetRows() {
		row.Unreached = strings.ReplaceAll(row.GetUnreached(), search.NotTried, reasonBudget)
	}
}

const reasonBudget = "not tried: the budget was spent"
