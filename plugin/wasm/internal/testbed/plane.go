package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// ErrNACK says that Envoy refused what was pushed.
var ErrNACK = errors.New("refused by Envoy")

// plane is a control plane with one resource. One that is asked again and again
// skips versions; what counts is that the last one is answered.
type plane struct {
	cache  *cache.LinearCache
	server *grpc.Server
	stop   context.CancelFunc
	addr   string

	mu      sync.Mutex
	pushed  int
	sent    map[string]int // nonce to pushed
	settled int            // the latest push that was answered
	refused map[int]string
	changed chan struct{}
}

func newPlane() (*plane, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, at once
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &plane{
		cache: cache.NewLinearCache(resource.ExtensionConfigType), server: grpc.NewServer(), stop: cancel,
		addr: l.Addr().String(), sent: map[string]int{}, refused: map[int]string{}, changed: make(chan struct{}),
	}
	s := server.NewServer(ctx, p.cache, server.CallbackFuncs{
		StreamDeltaResponseFunc: func(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sent[r.GetNonce()] = p.pushed
		},
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error {
			p.answered(r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
			return nil
		},
	})
	extension.RegisterExtensionConfigDiscoveryServiceServer(p.server, s)
	go func() { _ = p.server.Serve(l) }() // ends with close
	return p, nil
}

func (p *plane) answered(nonce, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.sent[nonce]
	if !ok {
		return
	}
	delete(p.sent, nonce)
	p.settled = max(p.settled, n)
	if problem != "" {
		p.refused[n] = problem
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// push sends a resource; nil removes it. It returns the push's number.
func (p *plane) push(r *core.TypedExtensionConfig) (int, error) {
	p.mu.Lock()
	p.pushed++
	n := p.pushed
	p.mu.Unlock()
	if r == nil {
		return n, p.cache.DeleteResource(filterName)
	}
	return n, p.cache.UpdateResources(map[string]types.Resource{filterName: r}, nil)
}

// settle waits until Envoy has answered a push, which it does once its workers
// have switched. Errors: ErrNACK.
func (p *plane) settle(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		done, problem, changed := p.settled >= n, p.refused[n], p.changed
		p.mu.Unlock()
		if problem != "" {
			return fmt.Errorf("%w: %s", ErrNACK, problem)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("push %d: no answer: %w", n, ctx.Err())
		case <-changed:
		}
	}
}

func (p *plane) close() {
	p.stop()
	p.server.Stop()
}
