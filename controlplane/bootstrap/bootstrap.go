// Package bootstrap writes the configuration of a standalone Envoy that stands
// beside one service: an inbound listener in front of the application, an
// outbound listener for each service that it calls, and in each of them the
// place where the control plane puts its gate.
//
// A sidecar must not change what it observes. What Envoy does by default to be
// helpful at a network's edge (time-outs, retries, limits, headers of its own) is
// therefore switched off; [Build] lists what remains.
//
// The package is pure: a topology in, a bootstrap out.
package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// Names of the clusters that are ours.
const (
	// ClusterApp is the application that the sidecar stands beside.
	ClusterApp = topology.ReservedPrefix + "app"
	// ClusterXDS is the control plane's xDS server.
	ClusterXDS = topology.ReservedPrefix + "xds"
	// ClusterOTLP is where the plugin reports to.
	ClusterOTLP = topology.ReservedPrefix + "otlp"
	// ClusterModule is where the plugin is fetched from.
	ClusterModule = gate.DefaultModuleCluster
)

// Options of [Build]; the zero value is right for Envoy 1.39 or later.
type Options struct {
	// EnvoyVersion is the version that will run, as "1.40.0"; empty: 1.39 or later.
	EnvoyVersion string
	// Instance names this sidecar among those of its service; empty: the service's
	// name with "-1".
	Instance string
	// Plugin is the path of the wasm module on the sidecar's machine. Only Envoy
	// before 1.39 needs it here, since its V8 must start before its workers.
	Plugin string
}

// Build returns the bootstrap of the Envoy beside service.
//
// What a sidecar made by it still does to HTTP, because Envoy has no switch for
// it: HTTP/1 hop-by-hop headers are rewritten; an answer without a date gets one;
// HTTP/1.0 becomes 1.1 towards the application; a connection that breaks or cannot be
// made becomes a 503, for gRPC UNAVAILABLE.
//
// Errors: an [*Error] that lists what the topology or the options lack for this.
func Build(t *topology.Topology, service string, o Options) (*bootstrapv3.Bootstrap, error) {
	s, form, err := check(t, service, o)
	if err != nil {
		return nil, err
	}
	b := builder{t: t, s: s}
	if b.filter, err = ecdsFilter(s.Name, o.Plugin, form); err != nil {
		return nil, err
	}
	listeners, err := b.listeners()
	if err != nil {
		return nil, err
	}
	clusters, err := b.clusters()
	if err != nil {
		return nil, err
	}
	boot := &bootstrapv3.Bootstrap{
		Node: node(s.Name, o.Instance, form),
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: listeners,
			Clusters:  clusters,
		},
		StatsConfig: statsConfig(),
	}
	if s.Admin != "" {
		boot.Admin = &bootstrapv3.Admin{Address: address(s.Admin)}
	}
	return boot, nil
}

func node(service, instance string, form form) *corev3.Node {
	if instance == "" {
		instance = service + "-1"
	}
	metadata := map[string]*structpb.Value{ecds.MetadataService: structpb.NewStringValue(service)}
	if form == formDefaultGate {
		metadata[ecds.MetadataDefaultGate] = structpb.NewBoolValue(true)
	}
	return &corev3.Node{Id: instance, Cluster: service, Metadata: &structpb.Struct{Fields: metadata}}
}

// builder holds what listeners and clusters are made from.
type builder struct {
	t      *topology.Topology
	s      *topology.Service
	filter *httpFilter
}

func (b *builder) listeners() ([]*listenerv3.Listener, error) {
	in, err := b.listener("inbound", b.s.Inbound, corev3.TrafficDirection_INBOUND, ClusterApp)
	if err != nil {
		return nil, err
	}
	listeners := []*listenerv3.Listener{in}
	for _, c := range b.s.Calls {
		if c.Listen == "" {
			continue // the application calls it directly, unseen
		}
		out, err := b.listener("outbound_"+c.Service, c.Listen, corev3.TrafficDirection_OUTBOUND, clusterName(c))
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, out)
	}
	return listeners, nil
}

func (b *builder) clusters() ([]*clusterv3.Cluster, error) {
	specs := []clusterSpec{{name: ClusterApp, address: b.s.App, protocol: b.s.Protocol, app: true}}
	for _, c := range b.s.Calls {
		if c.Listen == "" {
			continue
		}
		specs = append(specs, clusterSpec{name: clusterName(c), address: b.t.CalleeAddress(c), protocol: b.t.CalleeProtocol(c)})
	}
	specs = append(specs,
		clusterSpec{name: ClusterXDS, address: b.t.XDS, protocol: topology.ProtocolGRPC, own: true},
		clusterSpec{name: ClusterOTLP, address: b.t.OTLP, protocol: topology.ProtocolHTTP, own: true})
	if b.t.Module != "" {
		specs = append(specs, clusterSpec{name: ClusterModule, address: b.t.Module, protocol: topology.ProtocolHTTP, own: true})
	}
	clusters := make([]*clusterv3.Cluster, 0, len(specs))
	for _, spec := range specs {
		c, err := spec.build()
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, c)
	}
	return clusters, nil
}

func clusterName(c topology.Call) string {
	if c.Cluster == "" {
		return c.Service
	}
	return c.Cluster
}

// JSON writes a bootstrap as Envoy reads it, indented, and the same for the same
// bootstrap.
func JSON(b *bootstrapv3.Bootstrap) ([]byte, error) {
	// Names as in Envoy's documentation.
	j, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	// protojson varies its white space on purpose.
	var out bytes.Buffer
	if err := json.Indent(&out, j, "", "  "); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// YAML writes a bootstrap as Envoy reads it.
func YAML(b *bootstrapv3.Bootstrap) ([]byte, error) {
	j, err := JSON(b)
	if err != nil {
		return nil, err
	}
	y, err := yaml.JSONToYAML(j)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return y, nil
}
