package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

const grpcMethod = "/cart.Cart/Add"

// raw is a codec of messages that are bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (raw) Name() string                    { return "raw" }

// ended is how a client saw a call end.
type ended struct {
	code    codes.Code
	message string
}

// client makes one gRPC call; stream asks for a stream of answers.
type grpcClient func(t *testing.T, addr string, headers map[string]string, stream bool) ended

func goClient(t *testing.T, addr string, headers map[string]string, stream bool) ended {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.New(headers)), 10*time.Second)
	defer cancel()
	in, out := []byte("hello"), []byte(nil)
	if !stream {
		return endOf(conn.Invoke(ctx, grpcMethod, &in, &out))
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, grpcMethod)
	if err != nil {
		return endOf(err)
	}
	if err := s.SendMsg(&in); err != nil && !errors.Is(err, io.EOF) {
		return endOf(err)
	}
	_ = s.CloseSend() // what went wrong comes out below
	for {
		if err := s.RecvMsg(&out); errors.Is(err, io.EOF) {
			return ended{}
		} else if err != nil {
			return endOf(err)
		}
	}
}

func endOf(err error) ended {
	s := status.Convert(err)
	return ended{s.Code(), s.Message()}
}

// python returns an interpreter that has grpcio.
func python(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".tools", "grpcio", "bin", "python")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	const how = "no Python with grpcio: run `python3 -m venv .tools/grpcio && .tools/grpcio/bin/pip install grpcio`"
	if os.Getenv("CI") == "true" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}

func pythonClient(t *testing.T, addr string, headers map[string]string, stream bool) ended {
	shape := map[bool]string{false: "unary", true: "stream"}[stream]
	args := []string{filepath.Join("testdata", "call.py"), addr, grpcMethod, shape}
	for k, v := range headers {
		args = append(args, k+"="+v)
	}
	b, err := exec.CommandContext(t.Context(), python(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	fields := strings.Split(strings.TrimSpace(string(b)), "|")
	var code int
	if _, err := fmt.Sscan(fields[0], &code); err != nil || len(fields) != 3 {
		t.Fatalf("client says %q", b)
	}
	return ended{codes.Code(code), fields[1]}
}

func TestGRPCClientsSeeTheStatus(t *testing.T) {
	bed := share(t)
	frame := "\x00\x00\x00\x00\x05hello"
	whole := behaviour.Message{Chunks: []string{frame}, Trailers: []behaviour.Header{{Name: "grpc-status", Value: "0"}, {Name: "grpc-status-details-bin", Value: "EgRmaW5l"}}}
	three := whole
	three.Chunks = []string{frame, frame, frame}
	only := behaviour.Message{Headers: []behaviour.Header{{Name: "grpc-status", Value: "9"}, {Name: "grpc-message", Value: "no"}}}
	refused, proxys := only, behaviour.Message{Status: 502, Headers: []behaviour.Header{{Name: "content-type", Value: "text/html"}}}
	refused.Status = 503
	fail := &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{GrpcStatus: 8, GrpcMessage: "50% full, ümlaut"}}}
	abort := &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}
	const req, resp = tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP
	cases := []struct {
		name   string
		fault  *tfiv1.Fault
		phase  tfiv1.Phase
		answer behaviour.Message
		stream bool
		want   codes.Code // of a fault
	}{
		{"error req", fail, req, whole, false, codes.ResourceExhausted},
		{"error resp", fail, resp, whole, false, codes.ResourceExhausted},
		{"error resp trailers-only", fail, resp, only, false, codes.ResourceExhausted},
		{"error resp trailers-only of status 503", fail, resp, refused, false, codes.ResourceExhausted},
		{"error resp of a proxy's answer", fail, resp, proxys, false, codes.ResourceExhausted},
		{"error resp of a stream", fail, resp, three, true, codes.ResourceExhausted},
		{"abort req", abort, req, whole, false, codes.Internal},
		{"abort resp", abort, resp, whole, false, codes.Internal},
		{"abort resp of a stream", abort, resp, three, true, codes.Internal},
	}
	for name, client := range map[string]grpcClient{"grpc-go": goClient, "python": pythonClient} {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					key := behaviour.NewKey()
					f := &tfiv1.Tfic{Id: "g", Target: target(c.phase), Fault: c.fault, AnswerKind: tfiv1.AnswerKind_ANSWER_KIND_STREAMING}
					f.Target.Api = "cart.Cart/Add"
					apply(t, bed, behaviour.Policy("g-"+key.String(), behaviour.Activation(key, 0, f)))
					call := behaviour.Call{GRPC: true, Answer: c.answer}
					for i, want := range []ended{{c.want, "50% full, ümlaut"}, {codes.OK, ""}} {
						headers, forget := bed.Expect(&call, tfi.NewTraceID(key, 1))
						got := client(t, bed.Outbound, headers, c.stream)
						forget()
						switch {
						case i == 0 || c.answer.Trailers != nil:
						case c.answer.Status == 502:
							want = ended{code: codes.Unavailable} // what clients make of it
						default:
							want = ended{codes.FailedPrecondition, "no"} // the callee's own
						}
						if got.code != want.code {
							t.Errorf("call %d: %v %q, want %v", i, got.code, got.message, want.code)
						}
						if want.code == codes.ResourceExhausted && got.message != want.message {
							t.Errorf("call %d: message %q, want %q", i, got.message, want.message)
						}
					}
				})
			}
		})
	}
}
