package tfiproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// goCallee is the callee in Go.
func goCallee(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		kind, total := strings.Join(md.Get("x-kind"), ""), 0
		for {
			var m []byte
			err := stream.RecvMsg(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			total += len(m)
			again := map[string]int{"server": 20, "client": 0, "unary": 1, "bidi": 1}[kind]
			for range again {
				if err := stream.SendMsg(&m); err != nil {
					return err
				}
			}
		}
		if kind == "client" {
			m := []byte(strconv.Itoa(total))
			if err := stream.SendMsg(&m); err != nil {
				return err
			}
		}
		if method == "/s/Fail" {
			return status.Error(codes.NotFound, "nothing — here")
		}
		return nil
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// goCaller is the client in Go. wantEvidence: the callee must have seen evidence.
func goCaller(t *testing.T, addr string, trace tfi.TraceID, wantEvidence bool) (said []byte) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, call := range peerCalls() {
		f := strings.Split(call, ":")
		sent, _ := strconv.Atoi(f[2])
		size, _ := strconv.Atoi(f[3])
		begun := time.Now()
		got, total, trailers, err := goCall(traced(trace), conn, f[0], f[1], sent, size)
		var fic []string
		for k, v := range trailers {
			if strings.HasPrefix(k, "x-fic-") {
				fic = append(fic, k+"="+strings.Join(v, ","))
			}
		}
		if err == nil && (len(trailers.Get("saw-evidence")) > 0) != wantEvidence {
			t.Errorf("%s: the callee saw evidence: %v", call, trailers)
		}
		if fic == nil {
			fic = []string{"-"}
		}
		s := status.Convert(err)
		said = fmt.Appendf(said, "%s|%s|%s|%d|%d|%d|%s|%s\n", f[0], f[1], codeName(s.Code()), got, total,
			time.Since(begun).Milliseconds(), strings.Join(fic, ","), s.Message())
	}
	return said
}

func goCall(ctx context.Context, conn *grpc.ClientConn, kind, method string, sent, size int) (got, total int, trailers metadata.MD, err error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "x-kind", kind), 20*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return 0, 0, nil, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range sent {
			m := append([]byte(strconv.Itoa(i)+" "), bytes.Repeat([]byte("x"), size)...)
			if stream.SendMsg(&m) != nil {
				return // the receiver sees why
			}
		}
		_ = stream.CloseSend() // as above
	}()
	for {
		var m []byte
		if err = stream.RecvMsg(&m); err != nil {
			break
		}
		got++
		total += len(m)
	}
	cancel()
	<-written
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return got, total, stream.Trailer(), err
}
