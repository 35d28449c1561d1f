package service

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on a port of its own.
func serve(t *testing.T, o Options) (*Server, *grpc.ClientConn) {
	t.Helper()
	s := New(o)
	g := NewGRPC(s)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		wg.Wait()
	})
	return s, conn
}

func TestSearchOverGRPC(t *testing.T) {
	s, conn := serve(t, Options{})
	ctx := t.Context()
	r, err := start(ctx, conn, &solverv1.StartSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.next(ctx, 0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("candidates before traces: %v", err)
	}
	warnings, err := r.addTraces(ctx, []*solverv1.RecordedTrial{tracetest.Dispatch(1, nil).Recorded(), tracetest.Dispatch(2, nil).Recorded()})
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	first, err := r.next(ctx, 3)
	if err != nil || len(first) != 3 {
		t.Fatalf("%d candidates, %v; want 3", len(first), err)
	}
	rest, err := r.next(ctx, 0)
	if err != nil || len(rest) != 17 {
		t.Fatalf("%d candidates, %v; want 17", len(rest), err)
	}
	var results []*solverv1.Result
	for _, c := range append(first, rest...) {
		results = append(results, &solverv1.Result{
			Candidate: c.GetId(), Verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, Signature: "same", Fired: []string{c.GetId()},
		})
	}
	if err := r.addResults(ctx, results); err != nil {
		t.Fatal(err)
	}
	if again, err := r.next(ctx, 0); err != nil || len(again) != 0 {
		t.Errorf("%d candidates, %v; want the end", len(again), err)
	}
	st, err := r.statistics(ctx)
	if err != nil || !st.GetCoverage().GetExhausted() || st.GetCandidates() != 20 {
		t.Errorf("statistics %v, %v", st, err)
	}
	if err := r.end(ctx); err != nil || s.Sessions() != 0 {
		t.Errorf("%v, %d sessions left", err, s.Sessions())
	}
	if _, err := r.statistics(ctx); status.Code(err) != codes.NotFound {
		t.Errorf("after the end: %v", err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	_, conn := serve(t, Options{})
	ctx := t.Context()
	_, err := start(ctx, conn, &solverv1.StartSessionRequest{
		MaxFaults: 99, Faults: &campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{{Name: "bad name"}}},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	for _, path := range []string{"maxFaults", "faults.faults[0].name", "faults.faults[0].fault"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is not named: %v", path, err)
		}
	}
	r, err := start(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	nobody := &remote{client: r.client, id: "no/session"}
	for name, err := range map[string]error{
		"no traces": func() error { _, err := r.addTraces(ctx, nil); return err }(),
		"bytes": func() error {
			_, err := r.addTraces(ctx, []*solverv1.RecordedTrial{{TracesData: []byte("\xff\xff")}})
			return err
		}(),
		"candidate": r.addResults(ctx, []*solverv1.Result{{Candidate: "nobody", Verdict: campaignv1.Verdict_VERDICT_MISSED}}),
		"session, traces": func() error {
			_, err := nobody.addTraces(ctx, []*solverv1.RecordedTrial{{}})
			return err
		}(),
		"session, results":    nobody.addResults(ctx, []*solverv1.Result{{Candidate: "c", Verdict: campaignv1.Verdict_VERDICT_MISSED}}),
		"session, candidates": func() error { _, err := nobody.next(ctx, 0); return err }(),
		"session, statistics": func() error { _, err := nobody.statistics(ctx); return err }(),
		"session, end":        nobody.end(ctx),
		"verdict":             r.addResults(ctx, []*solverv1.Result{{Candidate: "nobody"}}),
	} {
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// brokenStream takes one candidate and no more.
type brokenStream struct {
	grpc.ServerStreamingServer[solverv1.NextCandidatesResponse]
	ctx  context.Context
	sent []*solverv1.Candidate
}

func (b *brokenStream) Context() context.Context { return b.ctx }

func (b *brokenStream) Send(r *solverv1.NextCandidatesResponse) error {
	if len(b.sent) == 1 {
		return io.ErrClosedPipe
	}
	b.sent = append(b.sent, r.GetCandidate())
	return nil
}

func TestCandidatesThatDidNotArriveAreGivenAgain(t *testing.T) {
	s, conn := serve(t, Options{})
	ctx := t.Context()
	r, err := start(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.addTraces(ctx, []*solverv1.RecordedTrial{tracetest.Dispatch(1, nil).Recorded()}); err != nil {
		t.Fatal(err)
	}
	broken := &brokenStream{ctx: ctx}
	if err := s.NextCandidates(&solverv1.NextCandidatesRequest{Session: r.id}, broken); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	if st, err := r.statistics(ctx); err != nil || st.GetCandidates() != 1 {
		t.Errorf("%d candidates count as given, %v; want 1", st.GetCandidates(), err)
	}
	rest, err := r.next(ctx, 0)
	if err != nil || len(broken.sent)+len(rest) != 20 {
		t.Errorf("%d and %d candidates, %v; want 20", len(broken.sent), len(rest), err)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	_, conn := serve(t, Options{Sessions: 2, Idle: time.Minute, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	ctx := context.Background()
	old, err := start(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	used, err := start(ctx, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(ctx, conn, nil); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("a third session: %v", err)
	}
	pass(50 * time.Second)
	if _, err := used.statistics(ctx); err != nil {
		t.Fatal(err)
	}
	pass(30 * time.Second)
	if _, err := start(ctx, conn, nil); err != nil {
		t.Errorf("room of an idle session: %v", err)
	}
	if _, err := old.statistics(ctx); status.Code(err) != codes.NotFound {
		t.Errorf("the idle session: %v", err)
	}
	if _, err := used.statistics(ctx); err != nil {
		t.Errorf("the used session: %v", err)
	}
}
