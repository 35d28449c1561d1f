package campaign

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/service"
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
				name, says = before+" forgotten", "the solver has lost this search: no session"
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

// TestSolverChild is not a test: it is the process of TestSolverStopped.
func TestSolverChild(t *testing.T) {
	if os.Getenv("CHILD_SOLVER") == "" {
		t.Skip("run by TestSolverStopped")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(l.Addr())
	if err := service.NewGRPC(service.New(service.Options{})).Serve(l); err != nil {
		t.Error(err)
	}
}

// TestSolverStopped: a solver whose process is stopped keeps its connections, and says nothing.
func TestSolverStopped(t *testing.T) {
	const soon = 25 * time.Second
	for _, before := range []string{"traces", "candidates", "results", "statistics"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel() // what waits can do so together
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSolverChild$")
			child.Env = append(os.Environ(), "CHILD_SOLVER=1")
			says, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = child.Process.Kill()
				_ = child.Wait()
			})
			address, err := bufio.NewReader(says).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			conn, err := service.NewClient(strings.TrimSpace(address))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			m := dispatchMesh(t)
			c := m.config(spec(fetch(http.MethodGet, m.url("front"))))
			var stopped time.Time
			c.StartSolver = func(ctx context.Context, r *solverv1.StartSessionRequest) (Solver, error) {
				solver, err := Remote(conn)(ctx, r)
				return leaving{solver, before, func() {
					stopped = time.Now()
					if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
						t.Error(err)
					}
				}}, err
			}
			report, err := Run(t.Context(), c)
			if took := time.Since(stopped); took > soon {
				t.Errorf("it took %v", took)
			}
			var gone *SolverGoneError
			text := fmt.Sprint(err)
			said := strings.Count(text, "the solver is gone") + strings.Count(text, "the solver did not answer in time") // whichever is noticed first
			if !errors.As(err, &gone) || said != 1 || strings.Contains(text, "\n") || report.GetInterrupted() != text {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// mute is a connection to a service that takes calls and never answers.
type mute struct{ grpc.ClientConnInterface }

func (mute) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func (m mute) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, m.Invoke(ctx, "", nil, nil)
}

// ending is a solver that knows how long it was given for its end.
type ending struct {
	Solver
	given time.Duration
}

func (e *ending) End(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		e.given = time.Until(deadline)
	}
	return e.Solver.End(ctx)
}

// A plan that was stopped does not wait for a solver that hangs.
func TestPlanEndsItsSearchSoon(t *testing.T) {
	m := dispatchMesh(t)
	c := m.config(spec(fetch(http.MethodGet, m.url("front"))))
	var solver *ending
	c.StartSolver = func(ctx context.Context, r *solverv1.StartSessionRequest) (Solver, error) {
		s, err := Embedded(ctx, r)
		solver = &ending{Solver: s}
		return solver, err
	}
	if _, err := Plan(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if solver.given <= 0 || solver.given > endTimeout {
		t.Errorf("the solver may take %v to end", solver.given)
	}
}

// TestSolverHangs: one that hangs, and whose machine answers for it, is not waited for for ever.
func TestSolverHangs(t *testing.T) {
	r := &remote{client: solverv1.NewSolverServiceClient(mute{})}
	for name, ask := range map[string]func(context.Context) error{
		"start":      func(ctx context.Context) error { _, err := Remote(mute{})(ctx, nil); return err },
		"traces":     func(ctx context.Context) error { _, err := r.AddTraces(ctx, nil); return err },
		"results":    func(ctx context.Context) error { return r.AddResults(ctx, nil) },
		"candidates": func(ctx context.Context) error { _, err := r.Next(ctx, 1); return err },
		"statistics": func(ctx context.Context) error { _, err := r.Statistics(ctx); return err },
		"end":        r.End,
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			err := ask(t.Context())
			if took := time.Since(begun); !isGone(err) || took != answerTimeout {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
			stopping, stop := context.WithCancel(t.Context())
			stop()
			if err := ask(stopping); err == nil || isGone(err) {
				t.Errorf("%s, stopped: %v", name, err)
			}
		})
	}
}

// strict is a service that takes its time, at a gRPC server as it comes.
type strict struct {
	solverv1.UnimplementedSolverServiceServer
}

func (strict) StartSession(ctx context.Context, _ *solverv1.StartSessionRequest) (*solverv1.StartSessionResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSolverTakesNoPings: a service whose server has not been told to take them breaks long calls
// off, and what to do about it is said.
func TestSolverTakesNoPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		server := grpc.NewServer()
		solverv1.RegisterSolverServiceServer(server, strict{})
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		conn, err := service.NewClient("passthrough:///strict", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err = Remote(conn)(t.Context(), &solverv1.StartSessionRequest{})
		if took := time.Since(begun); !isGone(err) || !strings.Contains(err.Error(), "let its gRPC server take a ping every 5 s") || took < 30*time.Second || took > time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		serving.Wait()
	})
}
