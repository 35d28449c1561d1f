package tfiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// rawCodec passes bytes, so that no service need be generated.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error    { *v.(*[]byte) = bytes.Clone(b); return nil }
func (rawCodec) Name() string                       { return "raw" }
func (rawCodec) String() string                     { return "raw" }
func trialOf(key tfi.Key, n uint64) context.Context { return traced(tfi.NewTraceID(key, n)) }

func traced(trace tfi.TraceID) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), "traceparent", "00-"+trace.String()+"-00f067aa0ba902b7-01")
}

// echoGRPC sends every message back; method /s/Fail fails, and /s/Slow sends one and
// waits for the client to give up.
func echoGRPC(t *testing.T, canceled chan<- struct{}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get(tfi.EvidenceHeader)) == 0 && len(md.Get("want-evidence")) > 0 {
			return status.Error(codes.Internal, "no evidence")
		}
		if method == "/s/Slow" {
			if err := stream.SendMsg(new([]byte)); err != nil {
				return err
			}
			<-stream.Context().Done()
			canceled <- struct{}{}
			return nil
		}
		for {
			var m []byte
			switch err := stream.RecvMsg(&m); {
			case errors.Is(err, io.EOF):
				if method == "/s/Fail" {
					return status.Error(codes.NotFound, "nothing — here")
				}
				return nil
			case err != nil:
				return err
			}
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
		}
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestGRPCPeers puts grpc-go on both ends: all kinds of calls, messages larger than
// any window, failures, cancellation; ordinary ones and a trial's.
func TestGRPCPeers(t *testing.T) {
	canceled := make(chan struct{}, 10)
	cfg := outboundTo(echoGRPC(t, canceled))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, &tfiv1.Tfic{
		Id: "g1", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{GrpcStatus: 8, GrpcMessage: "full — up"}}},
		Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: "s/Faulted", Phase: tfiv1.Phase_PHASE_RESP},
	})))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+p.Addr(0).String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	var wg sync.WaitGroup
	for n, ctx := range []context.Context{
		traced(behaviour.OrdinaryTrace),
		metadata.AppendToOutgoingContext(trialOf(key, 1), "want-evidence", "1"),
	} {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Second)
		defer cancel()
		for i, size := range []int{0, 5, 100_000, 3 << 20} {
			wg.Go(func() {
				want := bytes.Repeat([]byte{byte(i + 1)}, size)
				var got []byte
				if err := conn.Invoke(ctx, "/s/Echo", &want, &got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("unary of %d bytes: %d back, %v", size, len(got), err)
				}
				if err := conn.Invoke(ctx, "/s/Fail", &want, &got); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "nothing — here" {
					t.Errorf("failing call: %v", err)
				}
				if err := bidi(ctx, conn, want, 20); err != nil {
					t.Errorf("stream of %d bytes a message: %v", size, err)
				}
			})
		}
		wg.Go(func() {
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/s/Slow")
			if err != nil {
				t.Errorf("call %d that is given up: %v", n, err)
				return
			}
			var got []byte
			if err := stream.RecvMsg(&got); err != nil {
				t.Errorf("call %d that is given up: %v", n, err)
			}
			leave()
			if err := stream.RecvMsg(&got); status.Code(err) != codes.Canceled {
				t.Errorf("call %d has been given up: %v", n, err)
			}
			select {
			case <-canceled:
			case <-time.After(10 * time.Second):
				t.Error("the callee works on for nobody")
			}
		})
	}
	wg.Wait()

	m, got := []byte("x"), []byte(nil)
	var trailer metadata.MD
	err = conn.Invoke(trialOf(key, 2), "/s/Faulted", &m, &got, grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "full — up" || fmt.Sprint(trailer.Get(tfi.InjectedHeader)) != "[g1]" {
		t.Errorf("faulted: %v, trailers %v", err, trailer)
	}
	if err := conn.Invoke(trialOf(key, 3), "/s/Faulted", &m, &got); err != nil {
		t.Errorf("it fired twice: %v", err)
	}
}

// bidi sends a message when the one before has come back.
func bidi(ctx context.Context, conn *grpc.ClientConn, message []byte, n int) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/s/Bidi")
	if err != nil {
		return err
	}
	for range n {
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		var got []byte
		if err := stream.RecvMsg(&got); err != nil {
			return err
		}
		if !bytes.Equal(got, message) {
			return fmt.Errorf("%d bytes back of %d", len(got), len(message))
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var got []byte
	if err := stream.RecvMsg(&got); !errors.Is(err, io.EOF) {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

// TestGRPCOverHTTP1 says that what a gRPC message rides in decides: over HTTP/1.1,
// which gRPC does not know, a call is an HTTP request with that content type.
func TestGRPCOverHTTP1(t *testing.T) {
	cfg := outboundTo(httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(make([]byte, 5)) // what is missing is seen
		w.Header().Set("Grpc-Status", "0")
	}))
	cfg.Listeners[0].Cluster = behaviour.PeerHTTP2
	p := startProxy(t, cfg)
	key := behaviour.NewKey()
	fault := func(id, api string) *tfiv1.Tfic {
		return &tfiv1.Tfic{
			Id: id, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_UNARY, Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: 418, GrpcStatus: 8}}},
			Target: &tfiv1.StaticConfiguration{Caller: behaviour.Service, Callee: behaviour.Peer, Api: api, Phase: tfiv1.Phase_PHASE_RESP},
		}
	}
	policy, err := proto.Marshal(behaviour.Policy("v1", behaviour.Activation(key, 0, fault("grpc", "s/One"), fault("http", "POST /s/Two"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(policy); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/s/One": "200 0 ", "/s/Two": "418  http"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr(0).String()+path, bytes.NewReader(make([]byte, 5)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Traceparent", "00-"+tfi.NewTraceID(key, 1).String()+"-00f067aa0ba902b7-01")
		resp, err := protocolClient(t, false, nil).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Trailer.Get("Grpc-Status"), resp.Header.Get(tfi.InjectedHeader)); got != want || err != nil {
			t.Errorf("%s: %q, want %q; %v", path, got, want, err)
		}
	}
}
