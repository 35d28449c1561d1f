package ecds

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltaserver "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// deltaCache is what one delta stream's server watches.
type deltaCache struct {
	*session
	asked bool // a request for the type has come before
}

var (
	_ cache.ConfigWatcher   = (*deltaCache)(nil)
	_ deltaserver.Callbacks = (*deltaCache)(nil)
)

// CreateDeltaWatch takes a request: an answer, a changed subscription, or both.
func (c *deltaCache) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	if req.GetTypeUrl() != resource.ExtensionConfigType {
		return nil, nil
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.introduce(req.GetNode(), req.GetInitialResourceVersions()[gate.Name])
	c.subscribe(sub)
	for _, name := range req.GetResourceNamesSubscribe() {
		if name == gate.Name && c.asked {
			c.fresh = true // asked for again: it wants all of it
		}
	}
	c.asked = true
	c.answered(req.GetResponseNonce(), refusalText(req.GetErrorDetail()))
	return c.arm(func(m message) {
		out <- &cache.DeltaPassthroughResponse{
			DeltaRequest: req, DeltaDiscoveryResponse: deltaResponse(m), NextVersionMap: returned(m),
		}
	}), nil
}

// CreateWatch is never called by a delta server.
func (c *deltaCache) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, nil
}

func deltaResponse(m message) *discoveryv3.DeltaDiscoveryResponse {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: resource.ExtensionConfigType, SystemVersionInfo: m.version}
	if m.kind == removal {
		r.RemovedResources = []string{gate.Name}
		return r
	}
	r.Resources = []*discoveryv3.Resource{wrapped(m)}
	return r
}

// wrapped is a resource with its name, version and TTL around it.
func wrapped(m message) *discoveryv3.Resource {
	r := &discoveryv3.Resource{Name: gate.Name, Version: m.version, Resource: m.resource}
	if m.ttl > 0 {
		r.Ttl = durationpb.New(m.ttl)
	}
	return r
}

// returned is what the stream's server believes the sidecar to hold.
func returned(m message) map[string]string {
	if m.kind == removal {
		return map[string]string{}
	}
	return map[string]string{gate.Name: m.version}
}

// OnDeltaStreamOpen does nothing: the session began before.
func (c *deltaCache) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed does nothing: the session ends after.
func (c *deltaCache) OnDeltaStreamClosed(int64, *corev3.Node) {}

// OnStreamDeltaRequest does nothing: CreateDeltaWatch gets the request as well.
func (c *deltaCache) OnStreamDeltaRequest(int64, *discoveryv3.DeltaDiscoveryRequest) error {
	return nil
}

// OnStreamDeltaResponse learns the nonce.
func (c *deltaCache) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.sent(resp.GetNonce())
}
