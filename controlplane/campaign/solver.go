package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// answerTimeout bounds how long a solver's service may take for one answer. Searches are bounded
// in steps, and seldom take seconds; one that hangs is lost.
const answerTimeout = 5 * time.Minute

// endTimeout bounds what is asked of a solver when a search has ended or was stopped.
const endTimeout = 10 * time.Second

// Remote starts searches at a solver's service. Their errors are those of the service, and
// [*SolverGoneError].
func Remote(conn grpc.ClientConnInterface) StartSolver {
	client := solverv1.NewSolverServiceClient(conn)
	return func(ctx context.Context, request *solverv1.StartSessionRequest) (Solver, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		response, err := client.StartSession(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("start a session at the solver service: %w", gone(err))
		}
		return &remote{client, response.GetSession()}, nil
	}
}

// SolverGoneError says that a solver's service has nothing of a search any more.
type SolverGoneError struct {
	// What has become of it, in the words that follow its name: it "is gone", or "has lost
	// this search", as where it has started anew.
	What string
}

func (e *SolverGoneError) Error() string {
	return "the solver " + e.What
}

// gone returns a [SolverGoneError] where err tells of one, else err.
func gone(err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable:
		if strings.Contains(s.Message(), "too_many_pings") {
			return &SolverGoneError{What: "broke a call off because it was asked every 10 s whether it was still there (too_many_pings); " +
				"let its gRPC server take a ping every 5 s, or answer within 30 s"}
		}
		return &SolverGoneError{What: "is gone"}
	case codes.DeadlineExceeded:
		return &SolverGoneError{What: "did not answer in time"}
	case codes.NotFound:
		return &SolverGoneError{What: "has lost this search: " + s.Message()}
	}
	return err
}

// isGone says whether err is, or has in it, a [SolverGoneError].
func isGone(err error) bool {
	var e *SolverGoneError
	return errors.As(err, &e)
}

// remote is a session of a solver's service.
type remote struct {
	client  solverv1.SolverServiceClient
	session string
}

var _ Solver = (*remote)(nil)

// AddTraces implements Search.
func (r *remote) AddTraces(ctx context.Context, trials []*solverv1.RecordedTrial) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	response, err := r.client.AddTraces(ctx, &solverv1.AddTracesRequest{Session: r.session, Trials: trials})
	return response.GetWarnings(), gone(err)
}

// AddResults implements Search.
func (r *remote) AddResults(ctx context.Context, results []*solverv1.Result) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := r.client.AddResults(ctx, &solverv1.AddResultsRequest{Session: r.session, Results: results})
	return gone(err)
}

// Next implements Search.
func (r *remote) Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := r.client.NextCandidates(ctx, &solverv1.NextCandidatesRequest{Session: r.session, Limit: uint32(max(0, limit))}) //nolint:gosec // a round is small
	if err != nil {
		return nil, gone(err)
	}
	var out []*solverv1.Candidate
	for {
		response, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, gone(err)
		}
		out = append(out, response.GetCandidate())
	}
}

// Statistics implements Solver.
func (r *remote) Statistics(ctx context.Context) (*solverv1.GetStatisticsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	response, err := r.client.GetStatistics(ctx, &solverv1.GetStatisticsRequest{Session: r.session})
	return response, gone(err)
}

// End implements Solver.
func (r *remote) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := r.client.EndSession(ctx, &solverv1.EndSessionRequest{Session: r.session})
	return gone(err)
}
