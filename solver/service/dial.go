package service

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// pingInterval is how often a client asks whether the service is still there, while a call is
// under way, and pingTimeout how long it waits for the answer. A busy machine takes its time.
const (
	pingInterval = 10 * time.Second // gRPC asks no more often
	pingTimeout  = 10 * time.Second
)

// NewClient returns a connection to the service at a gRPC target. It takes messages as large as
// they may be, and calls end with UNAVAILABLE soon after the service has gone without a word:
// its process was stopped, or packets are lost. They also do at a service that breaks
// connections which ping as often (too_many_pings); solver.proto tells those who write one.
func NewClient(target string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(MaxMessageBytes), grpc.MaxCallRecvMsgSize(MaxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
	}
	return grpc.NewClient(target, append(options, more...)...)
}

// tolerant lets clients ping as often as those of [NewClient] do. By default gRPC's servers break
// connections that ping more than every five minutes.
func tolerant() grpc.ServerOption {
	return grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval / 2})
}
