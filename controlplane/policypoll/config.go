package policypoll

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// ErrTopology says that a topology has not what a native sidecar must know.
var ErrTopology = errors.New("the topology is not enough for a native sidecar")

// SidecarConfig is what [NativeConfig] is made of, beside the topology.
type SidecarConfig struct {
	// Instance names the sidecar; empty: it names itself.
	Instance string
	// TokenFile holds the token, on the sidecar's machine.
	TokenFile string
	// Workers bounds the threads that the sidecar runs at once; 0: the machine's CPUs.
	Workers int
}

// NativeConfig returns the configuration file of TFIProxy for a service of a
// topology (JSON): the same listeners, upstreams and cluster names as a standalone Envoy
// of that topology has, and a policy polled from the plane.
//
// Addresses of the control plane that the topology leaves out are the usual ones.
//
// Errors: ErrTopology, with the field path of each thing that is missing.
func NativeConfig(t *topology.Topology, service string, c SidecarConfig) ([]byte, error) {
	index := slices.IndexFunc(t.Services, func(s topology.Service) bool { return s.Name == service })
	if index < 0 {
		return nil, fmt.Errorf("%w: services: there is no %q, only %s", ErrTopology, service, strings.Join(t.Names(), ", "))
	}
	s, at := &t.Services[index], fmt.Sprintf("services[%d]", index)
	problems := t.Validate()
	need := func(path, address string) string {
		if address == "" { // others have been judged
			problems = append(problems, topology.Problem{Path: path, Want: "is missing: host:port, for a TFIProxy of one's own"})
		}
		return address
	}
	if s.Kind() != topology.SidecarTFIProxy {
		problems = append(problems, topology.Problem{Path: at + ".sidecar", Want: "must be " + topology.SidecarTFIProxy + ", so that the control plane serves its polls"})
	}
	file := configFile{
		Service: service, Instance: c.Instance, Admin: s.Admin, Workers: c.Workers,
		Inbound:  []configListener{{Listen: need(at+".inbound", s.Inbound), Upstream: need(at+".app", s.App)}},
		Clusters: map[string]string{bootstrap.ClusterOTLP: cmp.Or(t.OTLP, topology.DefaultOTLP)},
		Policy:   configPolicy{Address: cmp.Or(t.Policy, topology.DefaultPolicy), TokenFile: c.TokenFile},
	}
	for i, call := range s.Calls {
		if call.Listen == "" {
			continue // the application calls it directly, unseen
		}
		file.Outbound = append(file.Outbound, configListener{
			Listen:   call.Listen,
			Upstream: need(fmt.Sprintf("%s.calls[%d].address", at, i), t.CalleeAddress(call)),
			Cluster:  cmp.Or(call.Cluster, call.Service),
		})
	}
	if len(problems) > 0 {
		var list strings.Builder
		for _, p := range problems {
			list.WriteString("\n  " + p.String())
		}
		return nil, fmt.Errorf("%w of %q:%s", ErrTopology, service, list.String())
	}
	b, err := json.MarshalIndent(file, "", "  ")
	return append(b, '\n'), err
}

// configFile is the part of TFIProxy's configuration that a topology decides.
type configFile struct {
	Service  string            `json:"service"`
	Instance string            `json:"instance,omitempty"`
	Admin    string            `json:"admin,omitempty"`
	Workers  int               `json:"workers,omitempty"`
	Inbound  []configListener  `json:"inbound"`
	Outbound []configListener  `json:"outbound,omitempty"`
	Clusters map[string]string `json:"clusters"`
	Policy   configPolicy      `json:"policy"`
}

type configListener struct {
	Listen   string `json:"listen"`
	Upstream string `json:"upstream"`
	Cluster  string `json:"cluster,omitempty"`
}

type configPolicy struct {
	Address   string `json:"address"`
	TokenFile string `json:"token_file,omitempty"`
}
