package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

func startTestTap(t *testing.T, target, protocol string) *tap {
	t.Helper()
	tp, err := startTap(t.Context(), "inbound x", target, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tp.close)
	return tp
}

// TestTapSees shows that the taps would find a leak, in either protocol.
func TestTapSees(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Fic-Injected", "t1")
			fmt.Fprint(w, "x-fic-evidence is not a header here")
		}))
		defer srv.Close()
		tp := startTestTap(t, srv.Listener.Addr().String(), topology.ProtocolHTTP)
		for range 3 {
			got := get(t, "http://"+tp.addr(), http.Header{"X-Fic-Evidence": {"AQ"}})
			if len(got.body) != 35 {
				t.Errorf("body %q", got.body)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		tp.close()
		want := map[string]int{"x-fic-evidence": 3, "x-fic-injected": 3}
		if diff := cmp.Diff(want, tp.sightings); diff != "" || tp.heads != 6 {
			t.Errorf("%d heads, -want +got:\n%s", tp.heads, diff)
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			s.SetTrailer(metadata.Pairs("x-fic-evidence", "AQ"))
			var m wrapperspb.StringValue
			if err := s.RecvMsg(&m); err != nil {
				return err
			}
			return s.SendMsg(&m)
		}))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.Serve(l) }() // ends by Stop
		defer srv.Stop()
		tp := startTestTap(t, l.Addr().String(), topology.ProtocolGRPC)
		cc, err := grpc.NewClient("passthrough:///"+tp.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		ctx := metadata.AppendToOutgoingContext(context.WithoutCancel(t.Context()), "x-fic-evidence", "AQ")
		for range 3 {
			if err := cc.Invoke(ctx, "/a/B", wrapperspb.String("x"), &wrapperspb.StringValue{}); err != nil {
				t.Fatal(err)
			}
		}
		cc.Close()
		tp.close()
		if diff := cmp.Diff(map[string]int{"x-fic-evidence": 6}, tp.sightings); diff != "" || tp.heads != 9 {
			t.Errorf("%d heads, -want +got:\n%s", tp.heads, diff)
		}
	})
}

// TestHTTP1WatcherChunks gives a head in every possible pair of pieces.
func TestHTTP1WatcherChunks(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nhost: h\r\nX-FIC-Evidence: AQ\r\n\r\n"
	for i := range len(head) {
		tp := &tap{sightings: map[string]int{}}
		w := &http1Watcher{tap: tp}
		for _, part := range []string{head[:i], head[i:]} {
			if _, err := io.WriteString(w, part); err != nil {
				t.Fatal(err)
			}
		}
		if tp.heads != 1 || tp.sightings["x-fic-evidence"] != 1 {
			t.Fatalf("cut at %d: %d heads, %v", i, tp.heads, tp.sightings)
		}
	}
}

// TestOrdinaryTraffic runs without any campaign.
func TestOrdinaryTraffic(t *testing.T) {
	env := startEnv(t, Options{Tap: true})
	traffic, err := Ordinary{Requests: 200}.Run(t.Context(), env.Topology)
	if err != nil {
		t.Fatal(err)
	}
	if traffic.Failed > 0 || traffic.Total() != 200 {
		t.Errorf("%d of %d failed: %v", traffic.Failed, traffic.Total(), traffic.Failures)
	}
	t.Logf("%v %v", traffic.Requests, traffic.Latency)
	if s := env.Sightings(); len(s) > 0 {
		t.Errorf("seen by the applications: %v", s)
	}
	for where, heads := range env.Heads() {
		if heads == 0 {
			t.Errorf("the tap at %s saw nothing", where)
		}
	}
	if len(env.Heads()) != 7 {
		t.Errorf("taps: %v", env.Heads())
	}
}
