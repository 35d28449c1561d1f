// Package testbed puts the built filter into a real Envoy, for tests and
// measurements: one sidecar with an inbound and an outbound listener, a small
// control plane of its own that pushes the gate, and package behaviour's ends.
//
// It is no example of a deployment: see package bootstrap of the control plane.
package testbed

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	"github.com/sequencefi/sequencefi/plugin/wasm"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// object is a JSON object.
type object = map[string]any

const (
	typePrefix = "type.googleapis.com/envoy."
	filterName = gate.Name
)

// Form is how the filter gets into Envoy.
type Form int

// The forms.
const (
	// Pushed: the gate comes by ECDS; there is no VM before.
	Pushed Form = iota
	// PushedWrapped: the same in the form for Envoys before 1.40.
	PushedWrapped
	// PushedOverDefault: the same, and an inert gate is there from the start, for
	// Envoys whose V8 must start before the workers.
	PushedOverDefault
	// Static: the filter, with one policy and without a gate, stands in the bootstrap.
	Static
	// Bare: no filter.
	Bare
)

// String names the form.
func (f Form) String() string {
	return [...]string{"gate pushed", "gate pushed, matcher around it", "gate pushed over an inert gate", "static", "bare"}[f]
}

// pluginJSON is the wasm filter with a policy.
func pluginJSON(module, settings string, policy []byte) object {
	vmConfig := object{
		"vm_id":   filterName,
		"runtime": "envoy.wasm.runtime.v8",
		"code":    object{"local": object{"filename": module}},
	}
	if settings != "" {
		vmConfig["configuration"] = object{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": settings}
	}
	return object{
		"@type": typePrefix + "extensions.filters.http.wasm.v3.Wasm",
		"config": object{
			"name": filterName, "root_id": filterName, "vm_config": vmConfig,
			"configuration":                   object{"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": policy},
			"failure_policy":                  "FAIL_RELOAD",
			"allow_on_headers_stop_iteration": true,
		},
	}
}

// plugin is what the gate runs.
func (o *Options) plugin() gate.Plugin {
	return gate.Plugin{
		Module: gate.Module{Filename: o.Module}, VMConfiguration: o.Settings,
		Wrapped: o.Form == PushedWrapped || o.Form == PushedOverDefault,
	}
}

// gateOf is the ECDS resource with a policy of which the filter gets the bytes.
func (o *Options) gateOf(p *tfiv1.Policy, wire []byte) (*core.TypedExtensionConfig, error) {
	typed, err := gate.ExtensionOf(o.plugin(), p, wire)
	if err != nil {
		return nil, err
	}
	return &core.TypedExtensionConfig{Name: filterName, TypedConfig: typed}, nil
}

// addresses of a sidecar's surroundings (host:port).
type addresses struct {
	admin, inbound, outbound, callee, collector, xds string
}

func socketAddress(addr string) object {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port) // our own listeners'
	return object{"address": object{"socket_address": object{"address": host, "port_value": n}}}
}

func cluster(name, addr string, http2 bool) object {
	c := object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": socketAddress(addr)}}}}},
	}
	if http2 {
		const options = typePrefix + "extensions.upstreams.http.v3.HttpProtocolOptions"
		c["typed_extension_protocol_options"] = object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type": options, "explicit_http_config": object{"http2_protocol_options": object{}},
		}}
	}
	return c
}

func listener(name, addr, direction string, filters []any, http1, http2 string) object {
	route := func(cluster string, match object) object {
		return object{"match": match, "route": object{"cluster": cluster, "timeout": "0s"}}
	}
	return object{
		"name": name, "traffic_direction": direction, "address": socketAddress(addr)["address"],
		"filter_chains": []any{object{"filters": []any{object{"name": "http", "typed_config": object{
			"@type":       typePrefix + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"stat_prefix": name, "codec_type": "AUTO", "generate_request_id": false,
			// A reset shows at once, not after a second.
			"delayed_close_timeout": "0s",
			"proxy_100_continue":    true,
			"upgrade_configs":       []any{object{"upgrade_type": "websocket"}},
			"http_filters": append(filters, object{"name": "router", "typed_config": object{
				"@type": typePrefix + "extensions.filters.http.router.v3.Router",
			}}),
			"route_config": object{"virtual_hosts": []any{object{"name": "all", "domains": []any{"*"}, "routes": []any{
				route(http2, object{"prefix": "/", "headers": []any{object{"name": behaviour.UpstreamHeader, "string_match": object{"exact": "h2"}}}}),
				route(http2, object{"prefix": "/", "grpc": object{}}),
				route(http1, object{"prefix": "/"}),
			}}}},
		}}}}},
	}
}

// ecdsFilter is the place for the gate.
func ecdsFilter(idle *anypb.Any) (object, error) {
	b, err := protojson.Marshal(idle)
	if err != nil {
		return nil, err
	}
	return object{"name": filterName, "config_discovery": object{
		"config_source": object{
			"resource_api_version": "V3", "initial_fetch_timeout": "0.001s",
			"api_config_source": object{
				"api_type": "DELTA_GRPC", "transport_api_version": "V3",
				"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds"}}},
			},
		},
		"type_urls": gate.TypeURLs(), "default_config": json.RawMessage(b), "apply_default_config_without_warming": true,
	}}, nil
}

// bootstrap of the sidecar.
func bootstrap(a addresses, o Options) ([]byte, error) {
	var filters []any
	switch o.Form {
	case Pushed, PushedWrapped, PushedOverDefault:
		idle := gate.Inert()
		if o.Form == PushedOverDefault {
			var err error
			if idle, err = gate.Default(o.plugin(), behaviour.Service); err != nil {
				return nil, err
			}
		}
		filter, err := ecdsFilter(idle)
		if err != nil {
			return nil, err
		}
		filters = []any{filter}
	case Static:
		policy, err := proto.Marshal(o.Policy)
		if err != nil {
			return nil, err
		}
		filters = []any{object{"name": filterName, "typed_config": pluginJSON(o.Module, o.Settings, policy)}}
	}
	listeners := []any{
		listener("inbound", a.inbound, "INBOUND", filters, "app-h1", "app-h2"),
		listener("outbound", a.outbound, "OUTBOUND", filters, behaviour.PeerHTTP1, behaviour.PeerHTTP2),
	}
	if o.StreamIdle > 0 {
		for _, l := range listeners {
			chain := l.(object)["filter_chains"].([]any)[0].(object)
			manager := chain["filters"].([]any)[0].(object)["typed_config"].(object)
			manager["stream_idle_timeout"] = fmt.Sprintf("%.3fs", o.StreamIdle.Seconds())
		}
	}
	clusters := []any{
		cluster("app-h1", a.callee, false), cluster("app-h2", a.callee, true),
		cluster(behaviour.PeerHTTP1, a.callee, false), cluster(behaviour.PeerHTTP2, a.callee, true),
		cluster(behaviour.ReportCluster, a.collector, false), cluster("xds", a.xds, true),
	}
	if o.BufferBytes > 0 {
		for _, part := range append(slices.Clone(listeners), clusters[:4]...) {
			part.(object)["per_connection_buffer_limit_bytes"] = o.BufferBytes
		}
	}
	return json.MarshalIndent(object{
		"node":             object{"id": "test", "cluster": behaviour.Service},
		"admin":            socketAddress(a.admin),
		"stats_config":     object{"stats_tags": wasm.StatsTags()},
		"static_resources": object{"listeners": listeners, "clusters": clusters},
	}, "", " ")
}
