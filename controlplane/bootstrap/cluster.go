package bootstrap

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

const (
	connectTimeout = 10 * time.Second
	// appIdle ends idle HTTP/1.1 connections to an application. Common servers close
	// theirs after two to five seconds, and a request that meets such a close is a
	// 503 that the application never made.
	appIdle = time.Second
	// unlimited as Istio writes it.
	unlimited = math.MaxUint32
)

// clusterSpec is what a cluster is made from.
type clusterSpec struct {
	name, address, protocol string
	app                     bool // the application beside the sidecar
	own                     bool // one of SequenceFI's own servers
}

func (c clusterSpec) build() (*clusterv3.Cluster, error) {
	options, err := c.protocolOptions()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(c.address)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	discovery := clusterv3.Cluster_STATIC
	if net.ParseIP(host) == nil {
		discovery = clusterv3.Cluster_STRICT_DNS
	}
	cluster := &clusterv3.Cluster{
		Name:                 c.name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: discovery},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: c.name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(c.address)}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
		},
	}
	if c.own {
		// A plane that vanished without a word must not look connected.
		cluster.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes: wrapperspb.UInt32(3), KeepaliveTime: wrapperspb.UInt32(10), KeepaliveInterval: wrapperspb.UInt32(5),
		}}
	} else {
		cluster.CircuitBreakers = noLimits()
	}
	return cluster, nil
}

// noLimits lifts Envoy's limit of 1024 connections and requests: it would answer
// 503 where an application alone would not.
func noLimits() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     wrapperspb.UInt32(unlimited),
		MaxPendingRequests: wrapperspb.UInt32(unlimited),
		MaxRequests:        wrapperspb.UInt32(unlimited),
		MaxRetries:         wrapperspb.UInt32(unlimited),
	}}}
}

func (c clusterSpec) protocolOptions() (*anypb.Any, error) {
	options := &upstreamhttpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			MaxHeadersCount:      wrapperspb.UInt32(maxHeaders),
			MaxResponseHeadersKb: wrapperspb.UInt32(maxHeadersKB),
		},
	}
	explicit := &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{}
	options.UpstreamProtocolOptions = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit}
	switch c.protocol {
	case topology.ProtocolHTTP2, topology.ProtocolGRPC:
		explicit.ProtocolConfig = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		}
	default:
		keepCase, err := preserveCase()
		if err != nil {
			return nil, err
		}
		explicit.ProtocolConfig = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{EnableTrailers: true, HeaderKeyFormat: keepCase},
		}
		if c.app {
			options.CommonHttpProtocolOptions.IdleTimeout = durationpb.New(appIdle)
		}
	}
	return pack(options)
}

// preserveCase keeps the case of HTTP/1 header names, which Envoy lowers otherwise.
func preserveCase() (*corev3.Http1ProtocolOptions_HeaderKeyFormat, error) {
	formatter, err := pack(&preservecasev3.PreserveCaseFormatterConfig{})
	if err != nil {
		return nil, err
	}
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{
			StatefulFormatter: &corev3.TypedExtensionConfig{
				Name:        "envoy.http.stateful_header_formatters.preserve_case",
				TypedConfig: formatter,
			},
		},
	}, nil
}

func address(hostPort string) *corev3.Address {
	host, port, _ := net.SplitHostPort(hostPort) // validated before
	n, _ := strconv.ParseUint(port, 10, 16)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       host,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}

func pack(m proto.Message) (*anypb.Any, error) {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return a, nil
}
