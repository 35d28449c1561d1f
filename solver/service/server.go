// Package service offers searches over gRPC (proto: sequencefi.solver.v1).
//
// A [Server] keeps many sessions, bounded in number and in idle time. A call does
// to a [search.Session] what its name says.
package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/search"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Options of a [Server]. The zero value of a field stands for its default.
type Options struct {
	// Sessions that may be open at once; 64. One more is refused with
	// RESOURCE_EXHAUSTED.
	Sessions int
	// Idle is how long a session may go unused before it is ended; 1 hour.
	Idle time.Duration
	// Now is a monotonic clock; [time.Now].
	Now func() time.Time
}

// MaxMessageBytes bounds a request; traces of a large mesh are big.
const MaxMessageBytes = valid.MaxTracesData + 1<<20

// Server implements SolverService. Make it with [New].
type Server struct {
	solverv1.UnimplementedSolverServiceServer

	options  Options
	mu       sync.Mutex
	sessions map[string]*session
}

var _ solverv1.SolverServiceServer = (*Server)(nil)

type session struct {
	*search.Session
	used time.Time
	// busy calls keep a session from being ended as idle.
	busy int
}

// New returns a server without sessions.
func New(o Options) *Server {
	if o.Sessions <= 0 {
		o.Sessions = 64
	}
	if o.Idle <= 0 {
		o.Idle = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{options: o, sessions: map[string]*session{}}
}

// NewGRPC returns a gRPC server that serves s, takes requests as large as they may be, and
// has its clients ask as often as they do whether it is still there.
func NewGRPC(s *Server) *grpc.Server {
	g := grpc.NewServer(grpc.MaxRecvMsgSize(MaxMessageBytes), tolerant())
	solverv1.RegisterSolverServiceServer(g, s)
	return g
}

// Sessions is the number of open sessions, idle ones that are due included.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// StartSession implements SolverServiceServer.
func (s *Server) StartSession(_ context.Context, r *solverv1.StartSessionRequest) (*solverv1.StartSessionResponse, error) {
	made, err := search.New(r)
	if err != nil {
		return nil, toStatus(err)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, status.Errorf(codes.Internal, "no random numbers for a session id: %v", err)
	}
	name := hex.EncodeToString(id[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	if len(s.sessions) >= s.options.Sessions {
		return nil, status.Errorf(codes.ResourceExhausted, "%d sessions are open, the most there may be: end one, or wait until one has been idle for %v",
			len(s.sessions), s.options.Idle)
	}
	s.sessions[name] = &session{Session: made, used: s.options.Now()}
	return &solverv1.StartSessionResponse{Session: name}, nil
}

// sweep ends sessions that have been idle for too long; the caller holds mu.
func (s *Server) sweep() {
	now := s.options.Now()
	for id, x := range s.sessions {
		if x.busy == 0 && now.Sub(x.used) >= s.options.Idle {
			delete(s.sessions, id)
		}
	}
}

// open returns the session of a request with these problems, and what to call
// when done with it.
func (s *Server) open(id string, problems []valid.Problem) (*search.Session, func(), error) {
	if err := valid.Error(problems); err != nil {
		return nil, nil, toStatus(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	x := s.sessions[id]
	if x == nil {
		return nil, nil, status.Errorf(codes.NotFound, "no session %.64q: it has ended, or was idle for %v", id, s.options.Idle)
	}
	x.busy++
	return x.Session, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.busy--
		x.used = s.options.Now()
	}, nil
}

// AddTraces implements SolverServiceServer.
func (s *Server) AddTraces(ctx context.Context, r *solverv1.AddTracesRequest) (*solverv1.AddTracesResponse, error) {
	x, done, err := s.open(r.GetSession(), valid.AddTracesRequest(r))
	if err != nil {
		return nil, err
	}
	defer done()
	warnings, err := x.AddTraces(ctx, r.GetTrials())
	if err != nil {
		return nil, toStatus(err)
	}
	return &solverv1.AddTracesResponse{Warnings: warnings}, nil
}

// AddResults implements SolverServiceServer.
func (s *Server) AddResults(ctx context.Context, r *solverv1.AddResultsRequest) (*solverv1.AddResultsResponse, error) {
	x, done, err := s.open(r.GetSession(), valid.AddResultsRequest(r))
	if err != nil {
		return nil, err
	}
	defer done()
	if err := x.AddResults(ctx, r.GetResults()); err != nil {
		return nil, toStatus(err)
	}
	return &solverv1.AddResultsResponse{}, nil
}

// NextCandidates implements SolverServiceServer. Candidates that could not be
// sent are given again.
func (s *Server) NextCandidates(r *solverv1.NextCandidatesRequest, out grpc.ServerStreamingServer[solverv1.NextCandidatesResponse]) error {
	x, done, err := s.open(r.GetSession(), valid.NextCandidatesRequest(r))
	if err != nil {
		return err
	}
	defer done()
	list, err := x.Next(out.Context(), int(min(r.GetLimit(), 1<<20)))
	if err != nil {
		return toStatus(err)
	}
	for i, c := range list {
		if err := out.Send(&solverv1.NextCandidatesResponse{Candidate: c}); err != nil {
			x.Withdraw(list[i:])
			return err
		}
	}
	return nil
}

// GetStatistics implements SolverServiceServer.
func (s *Server) GetStatistics(ctx context.Context, r *solverv1.GetStatisticsRequest) (*solverv1.GetStatisticsResponse, error) {
	x, done, err := s.open(r.GetSession(), valid.GetStatisticsRequest(r))
	if err != nil {
		return nil, err
	}
	defer done()
	st, err := x.Statistics(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return st, nil
}

// EndSession implements SolverServiceServer. Ending a session twice is no error.
func (s *Server) EndSession(_ context.Context, r *solverv1.EndSessionRequest) (*solverv1.EndSessionResponse, error) {
	if err := valid.Error(valid.EndSessionRequest(r)); err != nil {
		return nil, toStatus(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, r.GetSession())
	return &solverv1.EndSessionResponse{}, nil
}

// toStatus says whose mistake an error was.
func toStatus(err error) error {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	switch {
	case is(valid.ErrInvalid, trace.ErrFormat, trace.ErrSpan, trace.ErrCausality, trace.ErrNoEvents, search.ErrUnknownCandidate, search.ErrTooLarge):
		return status.Error(codes.InvalidArgument, err.Error())
	case is(search.ErrNoTraces):
		return status.Error(codes.FailedPrecondition, err.Error())
	case is(context.Canceled, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, err.Error())
}
