package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/search"
)

// Embedded starts a search in this process.
func Embedded(_ context.Context, request *solverv1.StartSessionRequest) (Solver, error) {
	session, err := search.New(request)
	if err != nil {
		return nil, err
	}
	return embedded{session}, nil
}

var _ StartSolver = Embedded

// embedded is a search that the garbage collector ends.
type embedded struct{ *search.Session }

var _ Solver = embedded{}

// End implements Solver.
func (embedded) End(context.Context) error { return nil }

// Remote starts searches at a solver's service.
func Remote(conn grpc.ClientConnInterface) StartSolver {
	client := solverv1.NewSolverServiceClient(conn)
	return func(ctx context.Context, request *solverv1.StartSessionRequest) (Solver, error) {
		response, err := client.StartSession(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("start a session at the solver service: %w", err)
		}
		return &remote{client, response.GetSession()}, nil
	}
}

// remote is a session of a solver's service.
type remote struct {
	client  solverv1.SolverServiceClient
	session string
}

var _ Solver = (*remote)(nil)

// AddTraces implements Search.
func (r *remote) AddTraces(ctx context.Context, trials []*solverv1.RecordedTrial) ([]string, error) {
	response, err := r.client.AddTraces(ctx, &solverv1.AddTracesRequest{Session: r.session, Trials: trials})
	return response.GetWarnings(), err
}

// AddResults implements Search.
func (r *remote) AddResults(ctx context.Context, results []*solverv1.Result) error {
	_, err := r.client.AddResults(ctx, &solverv1.AddResultsRequest{Session: r.session, Results: results})
	return err
}

// Next implements Search.
func (r *remote) Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.NextCandidates(ctx, &solverv1.NextCandidatesRequest{Session: r.session, Limit: uint32(max(0, limit))}) //nolint:gosec // a round is small
	if err != nil {
		return nil, err
	}
	var out []*solverv1.Candidate
	for {
		response, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, response.GetCandidate())
	}
}

// Statistics implements Solver.
func (r *remote) Statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error) {
	return r.client.GetStatistics(ctx, &solverv1.GetStatisticsRequest{Session: r.session})
}

// End implements Solver.
func (r *remote) End(ctx context.Context) error {
	_, err := r.client.EndSession(ctx, &solverv1.EndSessionRequest{Session: r.session})
	return err
}
