package ecds_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Many streams over gRPC, and polls, while policies come and go and everyone looks: for the
// race detector, and for whoever forgets to end.
func TestManyStreamsAtOnce(t *testing.T) {
	s, err := ecds.New(ecds.Config{Module: gate.Module{Filename: "/plugin.wasm"}, PushInterval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(ecds.ServerOptions()...)
	s.Register(g)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) }) // ends with Stop
	conn, err := grpc.NewClient("passthrough:///plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}

	services := []string{"a", "b", "c"}
	ctx, cancel := context.WithCancel(t.Context())
	var sidecars sync.WaitGroup
	for i := range 12 {
		node := &corev3.Node{Id: string(rune('0' + i)), Cluster: services[i%3], UserAgentName: "tfiproxy"}
		switch i / 4 {
		case 0:
			sidecars.Go(func() { deltaClient(ctx, conn, node) })
		case 1:
			sidecars.Go(func() { sotwClient(ctx, conn, node) })
		default:
			sidecars.Go(func() { pollClient(ctx, s, node) })
		}
	}
	eventually(t, 10*time.Second, "all sidecars connected", func() bool { return len(s.Sidecars()) == 12 })
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for range 50 {
				set := map[string]*tfiv1.Policy{services[w%3]: policyOf(services[w%3], time.Minute)}
				if _, err := s.Apply(ctx, set); err != nil {
					t.Error(err)
				}
				_ = s.Sidecars()
				if w == 3 {
					s.Remove("a")
				}
			}
		})
	}
	all.Wait()
	set := map[string]*tfiv1.Policy{}
	for _, service := range services {
		set[service] = policyOf(service, time.Minute)
	}
	version, err := s.Apply(ctx, set)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, s, version, services...)
	if rows := s.Sidecars(); len(rows) != 12 {
		t.Errorf("%d sidecars", len(rows))
	}
	if err := s.Drain(ctx); err != nil {
		t.Error(err)
	}

	if _, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).FetchExtensionConfigs(ctx, &discoveryv3.DiscoveryRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("polling: %v", err)
	}
	s.Close()
	if _, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).DeltaExtensionConfigs(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	sidecars.Wait()
	_ = conn.Close()
	g.Stop()
	serving.Wait()
}

func deltaClient(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node) {
	stream, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).DeltaExtensionConfigs(ctx)
	if err != nil {
		return
	}
	req := &discoveryv3.DeltaDiscoveryRequest{Node: node, ResourceNamesSubscribe: []string{gate.Name}}
	for stream.Send(req) == nil {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		req = &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: resp.GetNonce()}
	}
}

func sotwClient(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node) {
	stream, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).StreamExtensionConfigs(ctx)
	if err != nil {
		return
	}
	req := &discoveryv3.DiscoveryRequest{Node: node, ResourceNames: []string{gate.Name}}
	for stream.Send(req) == nil {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		req = &discoveryv3.DiscoveryRequest{ResourceNames: []string{gate.Name}, VersionInfo: resp.GetVersionInfo(), ResponseNonce: resp.GetNonce()}
	}
}

func pollClient(ctx context.Context, s *ecds.Server, node *corev3.Node) {
	p := ecds.Poll{Service: node.GetCluster(), Instance: node.GetId(), Proxy: "tfiproxy"}
	for {
		told, err := s.Poll(ctx, p)
		switch {
		case err != nil:
			return
		case told.Drop:
			p.Holds = ""
		case told.Version != "":
			p.Holds = told.Version
		}
	}
}
