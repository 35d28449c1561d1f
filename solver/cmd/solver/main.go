// Command solver serves SolverService: traces and results in, candidates out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/sequencefi/sequencefi/solver/service"
)

func main() {
	stopping := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stopping = append(stopping, syscall.SIGHUP) // a closed terminal; nohup is to outlast it
	}
	ctx, stop := signal.NotifyContext(context.Background(), stopping...)
	code := doMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitOK    = 0
	exitFail  = 1
	exitUsage = 2
)

const usage = `Solver works out where and when a fault is worth making, for campaigns that do
not solve in their own process. It keeps its sessions in memory only.

Usage:
  solver [flags]

Example:
  solver --listen 127.0.0.1:18080
  sequencefi run campaign.yaml --solver 127.0.0.1:18080

It serves without authentication: listen on loopback, or behind a mesh.

Flags:
`

// drain is how long calls under way may take when the program is told to stop.
const drain = 5 * time.Second

// doMain runs the program until ctx is done and returns its exit code.
func doMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("solver", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "127.0.0.1:18080", "`address` to serve gRPC on; port 0 picks a free one")
	sessions := flags.Int("sessions", 64, "sessions that may be open at once")
	idle := flags.Duration("idle", time.Hour, "`time` after which an unused session is ended")
	help := func(w io.Writer) {
		fmt.Fprint(w, usage)
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "solver: %v\nsolver --help lists the flags\n", err)
		return exitUsage
	case flags.NArg() > 0 || *sessions < 1 || *idle <= 0:
		fmt.Fprintf(stderr, "solver: want no arguments, --sessions of at least 1 and --idle above 0\nsolver --help lists the flags\n")
		return exitUsage
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		fmt.Fprintf(stderr, "solver: %v\nchoose another address by --listen\n", err)
		return exitFail
	}
	server := service.NewGRPC(service.New(service.Options{Sessions: *sessions, Idle: *idle}))
	fmt.Fprintf(stdout, "solver: listening on %s\n", l.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		fmt.Fprintf(stderr, "solver: %v\n", err)
		return exitFail
	case <-ctx.Done():
	}
	shutDown(server)
	if err := <-served; err != nil {
		fmt.Fprintf(stderr, "solver: %v\n", err)
		return exitFail
	}
	return exitOK
}

// shutDown lets calls under way finish, but not for ever.
func shutDown(server *grpc.Server) {
	timer := time.AfterFunc(drain, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}
