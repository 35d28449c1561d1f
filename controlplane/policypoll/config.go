package policypoll

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// ErrTopology says that a topology has not what a native sidecar must know.
var ErrTopology = errors.New("topology is not enough for a native sidecar")

// SidecarConfig is what [NativeConfig] is made of, beside the topology.
type SidecarConfig struct {
	// Instance names the sidecar; empty: it names itself.
	Instance string
	// Plane is where polls are served (host:port).
	Plane string
	// TokenFile holds the token, as the sidecar reads it.
	TokenFile string
}

// NativeConfig returns the configuration file of TFIProxy for a service of a
// topology (JSON): the same listeners, upstreams and cluster names as a standalone Envoy
// of that topology has, and a policy polled from the plane.
//
// Errors: ErrTopology, once for each thing that is missing, with its field path.
func NativeConfig(t *topology.Topology, service string, c SidecarConfig) ([]byte, error) {
	s, ok := t.Service(service)
	if !ok {
		return nil, fmt.Errorf("%w: services: there is no %q", ErrTopology, service)
	}
	var errs []error
	need := func(path, address string) string {
		_, port, err := net.SplitHostPort(address)
		if _, numErr := strconv.ParseUint(port, 10, 16); err != nil || numErr != nil {
			errs = append(errs, fmt.Errorf("%w: %s: must be an address (host:port), is %q", ErrTopology, path, address))
		}
		return address
	}
	at := fmt.Sprintf("services[%s]", service)
	type listener struct {
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Cluster  string `json:"cluster,omitempty"`
	}
	type policy struct {
		Address   string `json:"address"`
		TokenFile string `json:"token_file,omitempty"`
	}
	otlp := t.OTLP
	if otlp == "" {
		otlp = topology.DefaultOTLP
	}
	file := struct {
		Service  string            `json:"service"`
		Instance string            `json:"instance,omitempty"`
		Admin    string            `json:"admin,omitempty"`
		Inbound  []listener        `json:"inbound"`
		Outbound []listener        `json:"outbound,omitempty"`
		Clusters map[string]string `json:"clusters"`
		Policy   policy            `json:"policy"`
	}{
		Service: service, Instance: c.Instance, Admin: s.Admin,
		Inbound:  []listener{{Listen: need(at+".inbound", s.Inbound), Upstream: need(at+".app", s.App)}},
		Clusters: map[string]string{bootstrap.ClusterOTLP: need("otlp", otlp)},
		Policy:   policy{Address: need("plane", c.Plane), TokenFile: c.TokenFile},
	}
	for i, call := range s.Calls {
		cluster := call.Cluster
		if cluster == "" {
			cluster = call.Service
		}
		path := fmt.Sprintf("%s.calls[%d]", at, i)
		file.Outbound = append(file.Outbound, listener{
			Listen:   need(path+".listen", call.Listen),
			Upstream: need(path+".address", t.CalleeAddress(call)),
			Cluster:  cluster,
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.MarshalIndent(file, "", "  ")
}
