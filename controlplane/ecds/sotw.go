package ecds

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	sotwserver "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// nothingVersion is the version of what replaces the gate on a stream from which
// it cannot be taken away.
const nothingVersion = "none"

// sotwCache is what one state-of-the-world stream's server watches.
type sotwCache struct {
	*session
}

var (
	_ cache.ConfigWatcher  = (*sotwCache)(nil)
	_ sotwserver.Callbacks = (*sotwCache)(nil)
)

// CreateWatch takes a request: an answer, a changed subscription, or both.
func (c *sotwCache) CreateWatch(req *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	if req.GetTypeUrl() != resource.ExtensionConfigType {
		return nil, nil
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	holds := req.GetVersionInfo()
	if holds == nothingVersion {
		holds = ""
	}
	c.introduce(req.GetNode(), holds)
	c.subscribe(sub)
	c.answered(req.GetResponseNonce(), refusalText(req.GetErrorDetail()))
	return c.arm(func(m message) {
		resp, err := sotwResponse(m)
		if err != nil {
			c.refusal(m.version, err.Error(), c.refreshed)
			c.inFlight = nil
			return
		}
		out <- &cache.PassthroughResponse{Request: req, DiscoveryResponse: resp, ReturnedResources: returned(m)}
	}), nil
}

// CreateDeltaWatch is never called by a state-of-the-world server.
func (c *sotwCache) CreateDeltaWatch(*cache.DeltaRequest, cache.Subscription, chan cache.DeltaResponse) (func(), error) {
	return nil, nil
}

func sotwResponse(m message) (*discoveryv3.DiscoveryResponse, error) {
	if m.kind == removal {
		m.version = nothingVersion
	}
	// The wrapper is what carries a TTL in this protocol.
	r, err := anypb.New(wrapped(m))
	if err != nil {
		return nil, err
	}
	return &discoveryv3.DiscoveryResponse{
		VersionInfo: m.version, TypeUrl: resource.ExtensionConfigType, Resources: []*anypb.Any{r},
	}, nil
}

// OnStreamOpen does nothing: the session began before.
func (c *sotwCache) OnStreamOpen(context.Context, int64, string) error { return nil }

// OnStreamClosed does nothing: the session ends after.
func (c *sotwCache) OnStreamClosed(int64, *corev3.Node) {}

// OnStreamRequest does nothing: CreateWatch gets the request as well.
func (c *sotwCache) OnStreamRequest(int64, *discoveryv3.DiscoveryRequest) error { return nil }

// OnStreamResponse learns the nonce.
func (c *sotwCache) OnStreamResponse(_ context.Context, _ int64, _ *discoveryv3.DiscoveryRequest, resp *discoveryv3.DiscoveryResponse) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.sent(resp.GetNonce())
}
