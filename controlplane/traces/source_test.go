package traces

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sequencefi/sequencefi/deploy/jaeger/jaegertest"
)

// source is what every source of traces has.
type source interface {
	Spans(ctx context.Context, ids []TraceID) (*tracev1.TracesData, error)
	Wait(ctx context.Context, ids []TraceID, seen int) error
}

var (
	_ source = (*Store)(nil)
	_ source = (*Jaeger)(nil)
)

// TestSourceContract holds every source to the same promises; what is put in goes
// over OTLP/HTTP in each case.
func TestSourceContract(t *testing.T) {
	t.Run("store", func(t *testing.T) {
		s := NewStore(StoreOptions{})
		r, err := Listen(t.Context(), ReceiverOptions{HTTP: "127.0.0.1:0", Sink: s})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		sourceContract(t, s, "http://"+r.HTTPAddr())
	})
	t.Run("jaeger", func(t *testing.T) {
		server := jaegertest.Start(t)
		t.Run("api_v3", func(t *testing.T) {
			j := openJaeger(t, server.Query)
			sourceContract(t, j, "http://"+server.OTLPHTTP)
			if j.v2.Load() {
				t.Error("api_v3 was not used")
			}
		})
		t.Run("api_v2", func(t *testing.T) {
			j := openJaeger(t, withoutV3(t, server.Query))
			sourceContract(t, j, "http://"+server.OTLPHTTP)
			if !j.v2.Load() {
				t.Error("api_v2 was not used")
			}
		})
	})
}

func openJaeger(t *testing.T, query string) *Jaeger {
	t.Helper()
	j, err := OpenJaeger(t.Context(), "jaeger://"+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func sourceContract(t *testing.T, s source, otlp string) {
	f, err := NewForwarder(otlp)
	if err != nil {
		t.Fatal(err)
	}
	put := func(td *tracev1.TracesData) {
		t.Helper()
		sent := f.Stats().Sent
		f.Add(td)
		waitUntil(t, func() bool { return f.Stats().Sent > sent || f.Stats().Lost > 0 })
		if st := f.Stats(); st.Lost > 0 {
			t.Fatalf("spans lost: %v", st.LastError)
		}
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// Another one for each use of the same Jaeger.
	base := uint64(time.Now().UnixNano())
	one, two, none := traceID(base), traceID(base+1), traceID(base+2)

	full := span(one, 2)
	full.ParentSpanId = []byte("\x00\x00\x00\x00\x00\x00\x00\x01")
	full.Kind = tracev1.Span_SPAN_KIND_SERVER
	full.Attributes = append(full.Attributes, attribute("sequencefi.retry", true), attribute("ratio", 0.5))
	full.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: "gone"}
	full.Events = []*tracev1.Span_Event{{Name: "sent", TimeUnixNano: full.GetStartTimeUnixNano()}}
	full.TraceState = "a=b"
	put(data("cart", span(one, 1), full))
	put(data("web", span(one, 3)))
	put(data("web", span(two, 4)))

	if err := s.Wait(ctx, []TraceID{one, two}, 3); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		ids  []TraceID
		want []flat
	}{
		{name: "one trace", ids: []TraceID{one}, want: []flat{
			{"cart", "sequencefi", span(one, 1)}, {"cart", "sequencefi", full}, {"web", "sequencefi", span(one, 3)},
		}},
		{name: "two, each named twice, and an unknown one", ids: []TraceID{two, two, none, one, one}, want: []flat{
			{"cart", "sequencefi", span(one, 1)},
			{"cart", "sequencefi", full},
			{"web", "sequencefi", span(one, 3)},
			{"web", "sequencefi", span(two, 4)},
		}},
		{name: "an unknown one", ids: []TraceID{none}},
		{name: "none"},
	} {
		td, err := s.Spans(ctx, tc.ids)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, f := range tc.want { // sort attributes as flatten does
			flatten(data("", f.Span))
		}
		if diff := gocmp.Diff(tc.want, flatten(td), protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}

	waited := make(chan error, 1)
	go func() { waited <- s.Wait(ctx, []TraceID{one, none}, 3) }()
	put(data("web", span(none, 5)))
	if err := <-waited; err != nil {
		t.Errorf("Wait: %v", err)
	}
	short, stop := context.WithTimeout(ctx, 30*time.Millisecond)
	defer stop()
	if err := s.Wait(short, []TraceID{one}, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for what never comes: %v", err)
	}
	stop()
	if _, err := s.Spans(short, []TraceID{one}); err == nil {
		t.Error("Spans with an ended context succeeded")
	}
}

// rawCodec passes gRPC messages on as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (rawCodec) Name() string                    { return "proto" }

// withoutV3 is a Jaeger in front of another, that has only api_v2.
func withoutV3(t *testing.T, query string) (addr string) {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+query, insecureOption(), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(in)
		if !strings.HasPrefix(method, "/jaeger.api_v2.") {
			return unimplemented(method)
		}
		out, err := cc.NewStream(in.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
		if err != nil {
			return err
		}
		var m []byte
		if err := in.RecvMsg(&m); err != nil {
			return err
		}
		var request api_v2.GetTraceRequest
		if err := request.Unmarshal(m); err != nil || !request.RawTraces {
			t.Errorf("asked for adjusted traces, whose spans Jaeger moves: %v %v", &request, err)
		}
		if err := errors.Join(out.SendMsg(&m), out.CloseSend()); err != nil {
			return err
		}
		for {
			if err := out.RecvMsg(&m); err != nil {
				return ignoreEOF(err)
			}
			if err := in.SendMsg(&m); err != nil {
				return err
			}
		}
	}))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }() // ends by Stop
	t.Cleanup(func() { srv.Stop(); cc.Close() })
	return l.Addr().String()
}

// TestJaegerComesBack cuts the connection under a source that has answered.
func TestJaegerComesBack(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	empty := grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil })
	first := grpc.NewServer(empty)
	go func() { _ = first.Serve(l) }() // ends by Stop
	j := openJaeger(t, l.Addr().String())
	first.Stop()
	again := make(chan error, 1)
	go func() {
		_, err := j.Spans(t.Context(), []TraceID{traceID(1)})
		again <- err
	}()
	l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second := grpc.NewServer(empty)
	go func() { _ = second.Serve(l) }() // ends by Stop
	defer second.Stop()
	if err := <-again; err != nil {
		t.Error(err)
	}
}

// TestJaegerDeadline has a server that notices the deadline before the client.
func TestJaegerDeadline(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var code atomic.Uint32
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Code(code.Load()), "server")
	}))
	go func() { _ = srv.Serve(l) }() // ends by Stop
	defer srv.Stop()
	j := openJaeger(t, l.Addr().String())
	for c, want := range map[codes.Code]error{codes.DeadlineExceeded: context.DeadlineExceeded, codes.Canceled: context.Canceled} {
		code.Store(uint32(c))
		if err := j.Wait(t.Context(), []TraceID{traceID(1)}, 0); !errors.Is(err, want) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestJaegerErrors(t *testing.T) {
	for target, want := range map[string]string{
		"http://127.0.0.1:16686":    "write jaeger://host:port",
		"127.0.0.1:16685":           "write jaeger://host:port",
		"jaeger://":                 "write jaeger://host:port",
		"jaeger://user@h:1":         "write jaeger://host:port",
		"jaeger://h:1/jaeger/ui":    "write jaeger://host:port",
		"jaeger://127.0.0.1:1":      "is Jaeger running",
		"jaeger://" + silentGRPC(t): "not Jaeger's query service",
	} {
		_, err := OpenJaeger(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v", target, err)
		}
		if strings.HasPrefix(want, "write") != errors.Is(err, ErrTarget) {
			t.Errorf("%s: %v: ErrTarget is wrong", target, err)
		}
	}
	if got, err := ParseJaegerTarget("jaeger://[::1]"); err != nil || got != "[::1]:16685" {
		t.Errorf("default port: %q %v", got, err)
	}
}

// silentGRPC is a gRPC server without any service.
func silentGRPC(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	go func() { _ = srv.Serve(l) }() // ends by Stop
	t.Cleanup(srv.Stop)
	return l.Addr().String()
}
