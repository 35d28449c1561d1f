package service

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

// Remote is a search at a remote solver, with the methods of a
// [search.Session]. It is safe for concurrent use. Close frees the session.
type Remote struct {
	client solverv1.SolverServiceClient
	id     string
}

// Start opens a session over conn, which stays the caller's.
// Errors: gRPC statuses, wrapped.
func Start(ctx context.Context, conn grpc.ClientConnInterface, r *solverv1.StartSessionRequest) (*Remote, error) {
	c := solverv1.NewSolverServiceClient(conn)
	out, err := c.StartSession(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("start a solver session: %w", err)
	}
	return &Remote{c, out.GetSession()}, nil
}

// AddTraces adds clean runs and says what was odd in them.
func (r *Remote) AddTraces(ctx context.Context, runs []*solverv1.RecordedTrial) ([]string, error) {
	out, err := r.client.AddTraces(ctx, &solverv1.AddTracesRequest{Session: r.id, Trials: runs})
	if err != nil {
		return nil, fmt.Errorf("add traces: %w", err)
	}
	return out.GetWarnings(), nil
}

// AddResults feeds back judged trials.
func (r *Remote) AddResults(ctx context.Context, results []*solverv1.Result) error {
	if len(results) == 0 {
		return nil
	}
	if _, err := r.client.AddResults(ctx, &solverv1.AddResultsRequest{Session: r.id, Results: results}); err != nil {
		return fmt.Errorf("add results: %w", err)
	}
	return nil
}

// Next gives the candidates that can be tried now, at most limit; 0 means all.
func (r *Remote) Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error) {
	stream, err := r.client.NextCandidates(ctx, &solverv1.NextCandidatesRequest{Session: r.id, Limit: uint32(max(limit, 0))})
	if err != nil {
		return nil, fmt.Errorf("next candidates: %w", err)
	}
	var out []*solverv1.Candidate
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("next candidates: %w", err)
		}
		out = append(out, m.GetCandidate())
	}
}

// Statistics tells how far the search is.
func (r *Remote) Statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error) {
	out, err := r.client.GetStatistics(ctx, &solverv1.GetStatisticsRequest{Session: r.id})
	if err != nil {
		return nil, fmt.Errorf("solver statistics: %w", err)
	}
	return out, nil
}

// Close frees the session.
func (r *Remote) Close(ctx context.Context) error {
	if _, err := r.client.EndSession(ctx, &solverv1.EndSessionRequest{Session: r.id}); err != nil {
		return fmt.Errorf("end the solver session: %w", err)
	}
	return nil
}
