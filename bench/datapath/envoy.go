package main

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	"github.com/sequencefi/sequencefi/deploy/process"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

type object = map[string]any

func (b *bed) startBareEnvoy(ctx context.Context) (*proxy, error) {
	return b.startEnvoy(ctx, envoyName, "")
}

// startPluginEnvoy starts the same Envoy with the gate and the plugin in it,
// pushed by the real control plane.
func (b *bed) startPluginEnvoy(ctx context.Context) (*proxy, error) {
	if _, err := envoy.Find(envoy.Version); err != nil {
		return nil, err
	}
	module, err := b.build(ctx, "plugin.wasm", ".", "./plugin/wasm/cmd/plugin", "GOOS=wasip1", "GOARCH=wasm")
	if err != nil {
		return nil, err
	}
	plane, err := ecds.New(ecds.Config{Module: gate.Module{Filename: module}, ConnectGrace: time.Minute})
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(ecds.ServerOptions()...)
	plane.Register(s)
	go func() { _ = s.Serve(l) }() // until Stop
	b.later(func() {
		plane.Close()
		s.Stop()
	})
	p, err := b.startEnvoy(ctx, pluginName, l.Addr().String())
	if err != nil {
		return nil, err
	}
	p.trials = true
	p.refresh = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // the first compiles
		defer cancel()
		version, err := plane.Apply(ctx, map[string]*tfiv1.Policy{service: policy(b.keys, "")})
		if err != nil {
			return err
		}
		return plane.Wait(ctx, version, []string{service})
	}
	return p, p.refresh(ctx)
}

// startEnvoy starts an Envoy with one worker; plane is the control plane's xDS
// address, empty for a bare one.
func (b *bed) startEnvoy(ctx context.Context, name, plane string) (*proxy, error) {
	p, err := newProxy(ctx, name)
	if err != nil {
		return nil, err
	}
	admin, err := process.FreeAddrs(ctx, 1)
	if err != nil {
		return nil, err
	}
	bootstrap, err := json.Marshal(bootstrapOf(b, p, admin[0], plane))
	if err != nil {
		return nil, err
	}
	e, err := envoy.Start(ctx, envoy.Options{Bootstrap: bootstrap, Admin: admin[0], Dir: b.work, Name: name})
	if err != nil {
		return nil, err
	}
	b.later(e.Stop)
	p.pid, p.version = e.Pid(), "Envoy "+envoy.Version
	return p, b.pinProcess(ctx, b.proxyCPU, p.pid)
}

func bootstrapOf(b *bed, p *proxy, admin, plane string) object {
	const types = "type.googleapis.com/envoy."
	at := func(address string) object {
		host, port, _ := net.SplitHostPort(address) // our own
		n, _ := strconv.Atoi(port)                  // a number
		return object{"socket_address": object{"address": host, "port_value": n}}
	}
	router := object{"name": "router", "typed_config": object{"@type": types + "extensions.filters.http.router.v3.Router"}}
	filters := []any{router}
	if plane != "" {
		filters = []any{object{"name": gate.Name, "config_discovery": object{
			"config_source": object{
				"resource_api_version": "V3", "initial_fetch_timeout": "0.001s",
				"api_config_source": object{
					"api_type": "DELTA_GRPC", "transport_api_version": "V3",
					"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds"}}},
				},
			},
			"type_urls":      gate.TypeURLs(),
			"default_config": object{"@type": types + "extensions.filters.http.header_mutation.v3.HeaderMutation"},

			"apply_default_config_without_warming": true,
		}}, router}
	}
	listener := func(address, cluster, codec string) object {
		return object{
			"address": at(address), "traffic_direction": "OUTBOUND",
			"filter_chains": []any{object{"filters": []any{object{"name": "http", "typed_config": object{
				"@type":       types + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": cluster, "codec_type": codec, "http_filters": filters,
				"route_config": object{"virtual_hosts": []any{object{"name": "all", "domains": []any{"*"}, "routes": []any{
					object{"match": object{"prefix": "/"}, "route": object{"cluster": cluster, "timeout": "0s"}},
				}}}},
			}}}}},
		}
	}
	cluster := func(name, address string, http2 bool) object {
		c := object{
			"name": name, "type": "STATIC", "connect_timeout": "5s",
			"load_assignment": object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": at(address)}}}}}},
		}
		if http2 {
			const options = "extensions.upstreams.http.v3.HttpProtocolOptions"
			c["typed_extension_protocol_options"] = object{"envoy." + options: object{
				"@type": types + options, "explicit_http_config": object{"http2_protocol_options": object{}},
			}}
		}
		return c
	}
	clusters := []any{cluster(clusterHTTP, b.http, false), cluster(clusterGRPC, b.grpc, true)}
	if plane != "" {
		clusters = append(clusters, cluster(clusterCollector, b.collector, false), cluster("xds", plane, true))
	}
	return object{
		"node":  object{"id": service + "-1", "cluster": service},
		"admin": object{"address": at(admin)},
		"static_resources": object{
			"listeners": []any{listener(p.http, clusterHTTP, "HTTP1"), listener(p.grpc, clusterGRPC, "HTTP2")},
			"clusters":  clusters,
		},
	}
}
