package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelpAndMistakes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		args        []string
		code        int
		out, errOut string
	}{
		{"help", []string{"--help"}, exitOK, "Example:", ""},
		{"unknown flag", []string{"--nope"}, exitUsage, "", "solver --help"},
		{"argument", []string{"x"}, exitUsage, "", "want no arguments"},
		{"no sessions", []string{"--sessions", "0"}, exitUsage, "", "at least 1"},
		{"address", []string{"--listen", "127.0.0.1:-1"}, exitFail, "", "--listen"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if code := doMain(t.Context(), tt.args, &out, &errOut); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(out.String(), tt.out) || !strings.Contains(errOut.String(), tt.errOut) {
				t.Errorf("out %q, err %q", out.String(), errOut.String())
			}
		})
	}
}

func TestServesUntilStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	var errOut bytes.Buffer
	done := make(chan int, 1)
	go func() {
		code := doMain(ctx, []string{"--listen", "127.0.0.1:0"}, w, &errOut)
		w.Close()
		done <- code
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("it says %q", line)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := solverv1.NewSolverServiceClient(conn).StartSession(t.Context(), &solverv1.StartSessionRequest{}); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if code := <-done; code != exitOK {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}
