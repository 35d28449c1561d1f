package campaign

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

// leaving is a solver that is lost before one of its answers.
type leaving struct {
	Solver
	before string
	lose   func()
}

func (l leaving) about(method string) {
	if method == l.before {
		l.lose()
	}
}

func (l leaving) AddTraces(ctx context.Context, trials []*solverv1.RecordedTrial) ([]string, error) {
	l.about("traces")
	return l.Solver.AddTraces(ctx, trials)
}

func (l leaving) AddResults(ctx context.Context, results []*solverv1.Result) error {
	l.about("results")
	return l.Solver.AddResults(ctx, results)
}

func (l leaving) Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error) {
	l.about("candidates")
	return l.Solver.Next(ctx, limit)
}

func (l leaving) Statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error) {
	l.about("statistics")
	return l.Solver.Statistics(ctx)
}

func (l leaving) End(ctx context.Context) error {
	l.about("end")
	return l.Solver.End(ctx)
}

// TestSolverGoneAtTheEnd: nothing is missing then.
func TestSolverGoneAtTheEnd(t *testing.T) {
	_, start, stop := mortalSolver(t)
	m := dispatchMesh(t)
	c := m.config(spec(fetch(http.MethodGet, m.url("front"))))
	c.StartSolver = func(ctx context.Context, r *solverv1.StartSessionRequest) (Solver, error) {
		solver, err := start(ctx, r)
		return leaving{solver, "end", stop}, err
	}
	if report := runCampaign(t, c); report.GetInterrupted() != "" || !report.GetCoverage().GetExhausted() {
		t.Errorf("stopped: %q, coverage %s", report.GetInterrupted(), report.GetCoverage().GetStatement())
	}
}

// TestSolverGone: that it is gone is said once and in a line, whenever that is.
func TestSolverGone(t *testing.T) {
	for _, before := range []string{"traces", "candidates", "results", "statistics"} {
		for _, forgets := range []bool{false, true} {
			name, says := before+" ended", "the solver is gone"
			if forgets {
				name, says = before+" forgotten", "the solver is gone: no session"
			}
			t.Run(name, func(t *testing.T) {
				_, start, stop := mortalSolver(t)
				m := dispatchMesh(t)
				c := m.config(spec(fetch(http.MethodGet, m.url("front"))))
				c.StartSolver = func(ctx context.Context, r *solverv1.StartSessionRequest) (Solver, error) {
					solver, err := start(ctx, r)
					if err != nil {
						return nil, err
					}
					lose := stop
					if forgets {
						lose = func() { _ = solver.End(context.WithoutCancel(ctx)) } // a second time it has ended already
					}
					return leaving{solver, before, lose}, nil
				}
				report, err := Run(t.Context(), c)
				var gone *SolverGoneError
				if !errors.As(err, &gone) {
					t.Fatalf("it says %v", err)
				}
				text := err.Error()
				if strings.Count(text, says) != 1 || strings.Contains(text, "\n") || strings.Contains(text, "rpc error") || report.GetInterrupted() != text {
					t.Errorf("it says %s", text)
				}
			})
		}
	}
}
