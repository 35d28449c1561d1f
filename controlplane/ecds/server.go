package ecds

import (
	"context"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltaserver "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	sotwserver "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Server is the plane. It is safe for concurrent use.
type Server struct {
	cfg    Config
	ctx    context.Context // ends the streams
	cancel context.CancelFunc

	mu       sync.Mutex
	policies policies
	told     bool // anything has been applied, removed or cleared
	sessions map[*session]struct{}
	pollers  map[identity]*poller // those of the sessions that poll
	gone     map[identity]Sidecar // sidecars that have left, as last seen
	changed  chan struct{}        // closed at the next change of any sidecar
	streams  sync.WaitGroup
	closed   bool
}

var (
	_ extensionv3.ExtensionConfigDiscoveryServiceServer = extensionServer{}
	_ discoveryv3.AggregatedDiscoveryServiceServer      = aggregatedServer{}
)

// New returns a plane that knows no policy yet.
//
// Errors: ErrConfig, once for each thing that is wrong.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		cfg: c, ctx: ctx, cancel: cancel,
		policies: policies{module: c.Module, entries: map[string]*entry{}, deadlines: map[string]time.Time{}},
		sessions: map[*session]struct{}{},
		pollers:  map[identity]*poller{},
		gone:     map[identity]Sidecar{},
		changed:  make(chan struct{}),
	}, nil
}

// ServerOptions are what a gRPC server for sidecars needs beside credentials:
// pings, so that a sidecar that vanished without a word is noticed. They are
// patient, for an Envoy answers none while it compiles the plugin, which takes
// tens of seconds on a starved machine, and more where several do so at once.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 3 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}

// Register adds the plane to a gRPC server: ECDS on streams of its own and on
// aggregated ones, both state of the world and delta.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	extensionv3.RegisterExtensionConfigDiscoveryServiceServer(g, extensionServer{s: s})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, aggregatedServer{s: s})
}

// Close ends all streams and polls, and returns when they have ended. Sidecars keep what
// they have until their TTL; call Drain first to take it away.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.streams.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.pollers {
		x.goAway()
	}
}

// Apply makes the policies current and pushes them to the sidecars of those
// services whose policy changed; other services keep theirs. It takes copies,
// sets every policy's version, and returns the version to wait for. Nothing is
// applied if any policy is invalid, or lets several of the connected instances of
// a service make the same fault at once.
//
// Versions grow as strings, also from one plane to the next. An activation's
// lifetime counts from the first Apply that names its key.
//
// Errors: ErrService, valid.ErrInvalid (all problems of all policies), ErrClosed,
// ctx's.
func (s *Server) Apply(ctx context.Context, set map[string]*tfiv1.Policy) (version string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	changed, version, err := s.policies.apply(set, s.instances, time.Now())
	if err != nil {
		return "", err
	}
	for x := range s.sessions {
		if set[x.node.service] != nil {
			x.forgive() // applied again, though unchanged: worth another try
		}
	}
	s.pushTo(changed)
	return version, nil
}

// instances returns how many instances of a service are connected.
func (s *Server) instances(service string) int {
	seen := map[string]bool{}
	for x := range s.sessions {
		if x.named && x.node.service == service {
			seen[x.node.instance] = true
		}
	}
	return len(seen)
}

// Remove takes the services' policies away, which frees the plugin in their
// sidecars. Unknown services are not an error.
func (s *Server) Remove(services ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushTo(s.policies.remove(services))
}

// Clear takes all policies away: the global stop.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.policies.entries)
	s.told = true
	for x := range s.sessions {
		x.step()
	}
	s.notify()
}

// pushTo moves the sessions of the services on; with it the plane has been told
// something, so what others still hold from before may go as well.
func (s *Server) pushTo(services []string) {
	first := !s.told
	s.told = true
	of := map[string]bool{}
	for _, service := range services {
		of[service] = true
	}
	for x := range s.sessions {
		if first || of[x.node.service] {
			x.step()
		}
	}
	s.notify()
}

// notify wakes all who wait for a change.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of any sidecar's
// state or of the policies.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// open registers a stream; the returned function ends it.
func (s *Server) open(x *session) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, status.Error(codes.Unavailable, ErrClosed.Error())
	}
	s.streams.Add(1)
	s.sessions[x] = struct{}{}
	return func() {
		s.mu.Lock()
		x.leave()
		delete(s.sessions, x)
		s.notify()
		s.mu.Unlock()
		s.streams.Done()
	}, nil
}

// A stream gets a server of go-control-plane of its own, whose cache and
// callbacks are the session: so what was sent and what was answered meet without
// a table of streams.

func (s *Server) delta(stream deltaStream, typeURL string, aggregated bool) error {
	x := newSession(s, Delta, aggregated)
	end, err := s.open(x)
	if err != nil {
		return err
	}
	defer end()
	cache := &deltaCache{session: x}
	return deltaserver.NewServer(s.ctx, cache, cache).DeltaStreamHandler(stream, typeURL)
}

func (s *Server) sotw(stream sotwStream, typeURL string, aggregated bool) error {
	x := newSession(s, StateOfTheWorld, aggregated)
	end, err := s.open(x)
	if err != nil {
		return err
	}
	defer end()
	cache := &sotwCache{session: x}
	return sotwserver.NewServer(s.ctx, cache, cache).StreamHandler(stream, typeURL)
}

type (
	deltaStream = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
	sotwStream  = grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
)

// extensionServer serves ECDS on streams of its own.
type extensionServer struct{ s *Server }

func (e extensionServer) StreamExtensionConfigs(stream extensionv3.ExtensionConfigDiscoveryService_StreamExtensionConfigsServer) error {
	return e.s.sotw(stream, resource.ExtensionConfigType, false)
}

func (e extensionServer) DeltaExtensionConfigs(stream extensionv3.ExtensionConfigDiscoveryService_DeltaExtensionConfigsServer) error {
	return e.s.delta(stream, resource.ExtensionConfigType, false)
}

// FetchExtensionConfigs is refused: a sidecar that polls acknowledges nothing and
// cannot be stopped at once.
func (e extensionServer) FetchExtensionConfigs(context.Context, *discoveryv3.DiscoveryRequest) (*discoveryv3.DiscoveryResponse, error) {
	return nil, status.Error(codes.Unimplemented, "polling is not served: use api_type DELTA_GRPC or GRPC")
}

// aggregatedServer serves ECDS on aggregated streams; other types get nothing.
type aggregatedServer struct{ s *Server }

func (a aggregatedServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return a.s.sotw(stream, resource.AnyType, true)
}

func (a aggregatedServer) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.s.delta(stream, resource.AnyType, true)
}
