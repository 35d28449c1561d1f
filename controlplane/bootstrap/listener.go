package bootstrap

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

type httpFilter = hcmv3.HttpFilter

const (
	// streamIdle ends streams on which nothing moves. Envoy's five minutes would cut
	// quiet event streams; no limit would keep what a fault left hanging for ever.
	streamIdle = time.Hour
	// Envoy refuses more than 100 headers or 60 KiB of them; applications' own
	// limits are as large as these.
	maxHeaders   = 1000
	maxHeadersKB = 256
	// fetchTimeout lets listeners start on their default at once.
	fetchTimeout = time.Millisecond
	// A plane that comes back is found within a second.
	reconnectBase = 100 * time.Millisecond
	reconnectMax  = time.Second
)

// ecdsFilter is the place in a listener where the control plane puts the gate.
func ecdsFilter(service, plugin string, form form) (*httpFilter, error) {
	idle := gate.Inert()
	if form == formDefaultGate {
		var err error
		idle, err = gate.Default(gate.Plugin{Module: gate.Module{Filename: plugin}, VMConfiguration: gate.GCOff, Wrapped: true}, service)
		if err != nil {
			return nil, err
		}
	}
	return &httpFilter{
		Name: gate.Name,
		ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
			ConfigSource: &corev3.ConfigSource{
				ResourceApiVersion:  corev3.ApiVersion_V3,
				InitialFetchTimeout: durationpb.New(fetchTimeout),
				ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
					// Only delta lets Envoy drop a resource whose TTL has passed.
					ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
					TransportApiVersion: corev3.ApiVersion_V3,
					GrpcServices: []*corev3.GrpcService{{
						TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
							ClusterName: ClusterXDS,
							RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
								BaseInterval: durationpb.New(reconnectBase),
								MaxInterval:  durationpb.New(reconnectMax),
							}},
						}},
					}},
				}},
			},
			DefaultConfig:                    idle,
			ApplyDefaultConfigWithoutWarming: true,
			TypeUrls:                         gate.TypeURLs(),
		}},
	}, nil
}

func (b *builder) listener(name, at string, direction corev3.TrafficDirection, cluster string) (*listenerv3.Listener, error) {
	manager, err := b.connectionManager(name, cluster)
	if err != nil {
		return nil, err
	}
	typed, err := pack(manager)
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{
		Name:             name,
		Address:          address(at),
		TrafficDirection: direction,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: typed},
		}}}},
	}, nil
}

func (b *builder) connectionManager(name, cluster string) (*hcmv3.HttpConnectionManager, error) {
	router, err := pack(&routerv3.Router{SuppressEnvoyHeaders: true})
	if err != nil {
		return nil, err
	}
	keepCase, err := preserveCase()
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		CodecType:  hcmv3.HttpConnectionManager_AUTO,
		HttpFilters: []*httpFilter{b.filter, {
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes(name, cluster)},

		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			MaxHeadersCount:              wrapperspb.UInt32(maxHeaders),
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_ALLOW,
		},
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{
			AcceptHttp_10:   true,
			EnableTrailers:  true,
			HeaderKeyFormat: keepCase,
			// Needed by HTTP/1.0, which may have no Host; Envoy's own answer would be 400.
			DefaultHostForHttp_10: b.s.Name,
		},
		MaxRequestHeadersKb: wrapperspb.UInt32(maxHeadersKB),
		StreamIdleTimeout:   durationpb.New(streamIdle),
		// An aborted HTTP/1.1 answer is to end at once, not after a second.
		DelayedCloseTimeout: durationpb.New(0),
		// The application decides whether it wants the body.
		Proxy_100Continue: true,
		UpgradeConfigs:    []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},

		// Headers stay as they are.
		UseRemoteAddress:             wrapperspb.Bool(false),
		SkipXffAppend:                true,
		GenerateRequestId:            wrapperspb.Bool(false),
		PreserveExternalRequestId:    true,
		ServerHeaderTransformation:   hcmv3.HttpConnectionManager_PASS_THROUGH,
		NormalizePath:                wrapperspb.Bool(false),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
	}, nil
}

// routes sends everything to one cluster, without time-outs or retries.
func routes(name, cluster string) *routev3.RouteConfiguration {
	action := &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          durationpb.New(0),
	}}
	everything := &routev3.RouteMatch_Prefix{Prefix: "/"}
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    name,
			Domains: []string{"*"},
			Routes: []*routev3.Route{
				{
					// Envoy adds this header, with this value, to requests that have none, and
					// has no switch for it. Where a client sent it itself it says what is so anyway.
					Name: "without_forwarded_proto",
					Match: &routev3.RouteMatch{PathSpecifier: everything, Headers: []*routev3.HeaderMatcher{{
						Name: headerForwardedProto,
						HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
							MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "http"},
						}},
					}}},
					Action:                 action,
					RequestHeadersToRemove: []string{headerForwardedProto},
				},
				{Name: "all", Match: &routev3.RouteMatch{PathSpecifier: everything}, Action: action},
			},
		}},
		ValidateClusters: wrapperspb.Bool(true),
	}
}

const headerForwardedProto = "x-forwarded-proto"
