package service

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
)

// losing is a connection that loses what is written once it is told to.
type losing struct {
	net.Conn
	lose *atomic.Bool
}

func (l losing) Write(b []byte) (int, error) {
	if l.lose.Load() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// TestLongCall: a call may take as long as it needs, and ends soon after its service is lost.
func TestLongCall(t *testing.T) {
	const method = "/test.Slow/Call"
	for _, test := range []struct {
		name        string
		lost        bool
		code        codes.Code
		least, most time.Duration
	}{
		{name: "slow", code: codes.OK, least: 10 * time.Minute, most: 10*time.Minute + time.Second},
		{name: "lost", lost: true, code: codes.Unavailable, most: pingInterval + pingTimeout + time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lose atomic.Bool
				g := NewGRPC(New(Options{}))
				g.RegisterService(&grpc.ServiceDesc{
					ServiceName: "test.Slow", HandlerType: (*any)(nil),
					Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, ctx context.Context, _ func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
						lose.Store(test.lost)
						select {
						case <-time.After(10 * time.Minute):
						case <-ctx.Done():
						}
						return &emptypb.Empty{}, nil
					}}},
				}, nil)
				l := bufconn.Listen(1 << 20)
				var serving sync.WaitGroup
				serving.Go(func() { _ = g.Serve(l) })
				conn, err := NewClient("passthrough:///slow", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					c, err := l.DialContext(ctx)
					return losing{c, &lose}, err
				}))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				err = conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
				if took := time.Since(begun); status.Code(err) != test.code || took < test.least || took > test.most {
					t.Errorf("after %v: %v", took, err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				g.Stop()
				serving.Wait()
			})
		})
	}
}
