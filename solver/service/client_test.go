package service

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

// remote is a session as a campaign uses it.
type remote struct {
	client solverv1.SolverServiceClient
	id     string
}

func start(ctx context.Context, conn grpc.ClientConnInterface, r *solverv1.StartSessionRequest) (*remote, error) {
	c := solverv1.NewSolverServiceClient(conn)
	out, err := c.StartSession(ctx, r)
	return &remote{c, out.GetSession()}, err
}

func (r *remote) addTraces(ctx context.Context, runs []*solverv1.RecordedTrial) ([]string, error) {
	out, err := r.client.AddTraces(ctx, &solverv1.AddTracesRequest{Session: r.id, Trials: runs})
	return out.GetWarnings(), err
}

func (r *remote) addResults(ctx context.Context, results []*solverv1.Result) error {
	_, err := r.client.AddResults(ctx, &solverv1.AddResultsRequest{Session: r.id, Results: results})
	return err
}

func (r *remote) next(ctx context.Context, limit uint32) ([]*solverv1.Candidate, error) {
	stream, err := r.client.NextCandidates(ctx, &solverv1.NextCandidatesRequest{Session: r.id, Limit: limit})
	if err != nil {
		return nil, err
	}
	var out []*solverv1.Candidate
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, m.GetCandidate())
	}
}

func (r *remote) statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error) {
	return r.client.GetStatistics(ctx, &solverv1.GetStatisticsRequest{Session: r.id})
}

func (r *remote) end(ctx context.Context) error {
	_, err := r.client.EndSession(ctx, &solverv1.EndSessionRequest{Session: r.id})
	return err
}
