package traces

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// ErrTarget says that an address names no trace source.
var ErrTarget = errors.New("not a trace source")

const (
	// jaegerParallel bounds the queries that one call of Spans makes at a time.
	jaegerParallel = 4
	// jaegerPoll is how often Wait asks again, since Jaeger tells nobody that a span
	// has come in. More often is not better: Jaeger's store in memory (v1.76.0)
	// panics when a trace is read at the moment at which a span is added to it.
	jaegerPoll = 75 * time.Millisecond
	// jaegerMaxMessage is more than the traces of a trial take.
	jaegerMaxMessage = 64 << 20
	// jaegerCheck bounds the first question.
	jaegerCheck = 5 * time.Second
	// A connection that breaks later is made again, for this long.
	jaegerRetry = 3 * time.Second

	methodV3GetTrace = "/jaeger.api_v3.QueryService/GetTrace"
)

// Jaeger reads traces from a Jaeger by its gRPC query service, api_v3 where
// there is one, else api_v2. It asks for traces as they were stored: Jaeger's
// clock-skew adjustment moves spans (jaegertracing/jaeger#1459).
type Jaeger struct {
	target string
	cc     *grpc.ClientConn
	v2     atomic.Bool // api_v3 is unimplemented there
	// answered: it is there, so that a broken connection is worth another try.
	answered atomic.Bool
}

// ParseJaegerTarget returns the host:port of jaeger://host:port.
//
// Errors: ErrTarget.
func ParseJaegerTarget(target string) (string, error) {
	u, err := url.Parse(target)
	if err == nil && u.Scheme == "jaeger" && u.Hostname() != "" && (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.User == nil {
		port := u.Port()
		if port == "" {
			port = "16685"
		}
		return net.JoinHostPort(u.Hostname(), port), nil
	}
	return "", fmt.Errorf("%w: %q: write jaeger://host:port with the port of Jaeger's gRPC query service (16685, not that of its web page)", ErrTarget, target)
}

// OpenJaeger opens the Jaeger at jaeger://host:port, and asks it for a trace to
// see that it answers.
//
// Errors: ErrTarget; what gRPC says of a Jaeger that does not answer.
func OpenJaeger(ctx context.Context, target string) (*Jaeger, error) {
	address, err := ParseJaegerTarget(target)
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: jaegerPoll, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: jaegerCheck,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(jaegerMaxMessage)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	j := &Jaeger{target: target, cc: cc}
	ctx, cancel := context.WithTimeout(ctx, jaegerCheck)
	defer cancel()
	// An id that no tracer makes: the answer is empty.
	if _, err := j.Spans(ctx, []TraceID{{15: 1}}); err != nil {
		return nil, errors.Join(err, cc.Close())
	}
	return j, nil
}

// Close closes the connection.
func (j *Jaeger) Close() error { return j.cc.Close() }

// Spans returns all spans that Jaeger has of the traces ids. A trace that it does
// not know has none. The caller owns what is returned.
//
// Errors: what gRPC says, with what to do about it.
func (j *Jaeger) Spans(ctx context.Context, ids []TraceID) (*tracev1.TracesData, error) {
	ids = distinct(ids)
	parts := make([]*tracev1.TracesData, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(jaegerParallel)
	for i, id := range ids {
		g.Go(func() error {
			var err error
			parts[i], err = j.traceRetrying(gctx, id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, j.explain(ctx, err)
	}
	all := &tracev1.TracesData{}
	for _, part := range parts {
		all.ResourceSpans = append(all.ResourceSpans, part.GetResourceSpans()...)
	}
	return all, nil
}

// Wait returns nil once Jaeger has more than seen spans of the traces ids.
//
// Errors: ctx's; those of Spans.
func (j *Jaeger) Wait(ctx context.Context, ids []TraceID, seen int) error {
	tick := time.NewTicker(jaegerPoll)
	defer tick.Stop()
	for {
		td, err := j.Spans(ctx, ids)
		if err != nil {
			return err
		}
		if Count(td) > seen {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// traceRetrying asks again while an otherwise living Jaeger cannot be reached.
func (j *Jaeger) traceRetrying(ctx context.Context, id TraceID) (*tracev1.TracesData, error) {
	var giveUp <-chan time.Time
	for {
		td, err := j.trace(ctx, id)
		if err == nil {
			j.answered.Store(true)
			return td, nil
		}
		if status.Code(err) != codes.Unavailable || !j.answered.Load() {
			return nil, err
		}
		if giveUp == nil {
			timer := time.NewTimer(jaegerRetry)
			defer timer.Stop()
			giveUp = timer.C
		}
		pause := time.NewTimer(jaegerPoll)
		select {
		case <-pause.C:
		case <-giveUp:
			pause.Stop()
			return nil, err
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

func (j *Jaeger) trace(ctx context.Context, id TraceID) (*tracev1.TracesData, error) {
	if !j.v2.Load() {
		td, err := j.traceV3(ctx, id)
		if status.Code(err) != codes.Unimplemented {
			return td, err
		}
		j.v2.Store(true)
	}
	return j.traceV2(ctx, id)
}

// traceV3 asks api_v3, whose answers are OTLP. There is no Go code for its
// request: field 1, the id in hex, is laid out like a StringValue's, and field 4,
// raw_traces, rides along as a field unknown to that.
func (j *Jaeger) traceV3(ctx context.Context, id TraceID) (*tracev1.TracesData, error) {
	req := wrapperspb.String(hexID(id))
	req.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := j.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methodV3GetTrace)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(req); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	all := &tracev1.TracesData{}
	for {
		var part tracev1.TracesData
		switch err := stream.RecvMsg(&part); {
		case errors.Is(err, io.EOF), status.Code(err) == codes.NotFound:
			return all, nil
		case err != nil:
			return nil, err
		}
		all.ResourceSpans = append(all.ResourceSpans, part.GetResourceSpans()...)
	}
}

// explain says what to do about err.
func (j *Jaeger) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", j.target, ctx.Err())
	}
	hint := ""
	switch status.Code(err) {
	case codes.DeadlineExceeded: // noticed before ctx itself
		return fmt.Errorf("%s: %w", j.target, context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", j.target, context.Canceled)
	case codes.Unavailable:
		hint = " (is Jaeger running, and is this its gRPC query port? 16685 by default)"
	case codes.Unimplemented:
		hint = " (that is a gRPC server, but not Jaeger's query service: 16685 by default)"
	}
	return fmt.Errorf("%s: %w%s", j.target, err, hint)
}

// spanIDBytes returns Jaeger's form of a span id as OTLP's; 0 is none.
func spanIDBytes(id uint64) []byte {
	if id == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, id)
}
