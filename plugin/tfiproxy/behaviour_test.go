package tfiproxy

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// nativeSidecar runs the table of behaviours on TFIProxy.
type nativeSidecar struct {
	*behaviour.Endpoints
	proxy *Proxy
}

var _ behaviour.Sidecar = (*nativeSidecar)(nil)

// Apply implements [behaviour.Sidecar].
func (s *nativeSidecar) Apply(_ context.Context, p *tfiv1.Policy) error {
	b, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	return s.proxy.Apply(b)
}

func newNativeSidecar(t *testing.T) *nativeSidecar {
	t.Helper()
	e, err := behaviour.NewEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	p := startProxy(t, &Config{
		Service: behaviour.Service,
		Listeners: []Listener{
			{Role: tfi.RoleServer, Listen: "127.0.0.1:0", Upstream: e.Callee()},
			{Role: tfi.RoleClient, Listen: "127.0.0.1:0", Upstream: e.Callee(), Cluster: behaviour.PeerHTTP1},
		},
		Clusters: map[string]string{behaviour.ReportCluster: e.Collector()},
	})
	e.Inbound, e.Outbound = p.Addr(0).String(), p.Addr(1).String()
	return &nativeSidecar{Endpoints: e, proxy: p}
}

// TestBehaviour is the table that the Envoy filter is tested by.
func TestBehaviour(t *testing.T) {
	s := newNativeSidecar(t)
	behaviour.Run(t, s, behaviour.Sockets, behaviour.Table())
	if err := s.Bad(); err != nil {
		t.Error("reports:", err)
	}
	if n := s.proxy.metrics.get(metricInternal); n != 0 {
		t.Errorf("%d internal errors", n)
	}
}
