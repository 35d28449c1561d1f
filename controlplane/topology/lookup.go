package topology

import (
	"cmp"
	"slices"
	"strings"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Service returns the service with a sidecar of that name. It points into t.
func (t *Topology) Service(name string) (*Service, bool) {
	for i := range t.Services {
		if t.Services[i].Name == name {
			return &t.Services[i], true
		}
	}
	return nil, false
}

// Has tells whether any service has a sidecar of the kind.
func (t *Topology) Has(sidecar string) bool {
	return slices.ContainsFunc(t.Services, func(s Service) bool { return s.Kind() == sidecar })
}

// Kind is what the service's sidecar is.
func (s *Service) Kind() string { return cmp.Or(s.Sidecar, SidecarEnvoy) }

// IsLeaf tells whether name is a service without a sidecar.
func (t *Topology) IsLeaf(name string) bool { return slices.Contains(t.Leaves, name) }

// Names returns the names of the services with a sidecar, sorted. The caller owns
// the slice.
func (t *Topology) Names() []string {
	names := make([]string, 0, len(t.Services))
	for _, s := range t.Services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// Callers returns the names of the services that call name, sorted. The caller
// owns the slice.
func (t *Topology) Callers(name string) []string {
	var callers []string
	for _, s := range t.Services {
		if slices.ContainsFunc(s.Calls, func(c Call) bool { return c.Service == name }) {
			callers = append(callers, s.Name)
		}
	}
	slices.Sort(callers)
	return callers
}

// Entries returns the names of the services that no other service calls, sorted:
// where a client's request comes in. The caller owns the slice.
func (t *Topology) Entries() []string {
	var entries []string
	for _, name := range t.Names() {
		if !slices.ContainsFunc(t.Callers(name), func(caller string) bool { return caller != name }) {
			entries = append(entries, name)
		}
	}
	return entries
}

// Peers returns the callees of a service as its policy names them, sorted by
// name, each with the proxy's clusters that lead to it. The caller owns the slice.
func (t *Topology) Peers(service string) []*tfiv1.Peer {
	s, ok := t.Service(service)
	if !ok {
		return nil
	}
	byName := map[string]*tfiv1.Peer{}
	var peers []*tfiv1.Peer
	for _, c := range s.Calls {
		peer, ok := byName[c.Service]
		if !ok {
			peer = &tfiv1.Peer{Service: c.Service, Leaf: t.IsLeaf(c.Service)}
			byName[c.Service] = peer
			peers = append(peers, peer)
		}
		cluster := c.Cluster
		if cluster == "" {
			cluster = c.Service
		}
		peer.Clusters = append(peer.Clusters, cluster)
	}
	slices.SortFunc(peers, func(a, b *tfiv1.Peer) int { return strings.Compare(a.Service, b.Service) })
	return peers
}

// APITemplates returns the path templates as a policy names them. The caller owns
// the slice.
func (t *Topology) APITemplates() []*tfiv1.ApiTemplate {
	templates := make([]*tfiv1.ApiTemplate, 0, len(t.Templates))
	for _, path := range t.Templates {
		templates = append(templates, &tfiv1.ApiTemplate{Path: path})
	}
	return templates
}

// CalleeProtocol returns what the callee of c speaks.
func (t *Topology) CalleeProtocol(c Call) string {
	protocol := c.Protocol
	if s, ok := t.Service(c.Service); ok {
		protocol = s.Protocol
	}
	if protocol == "" {
		return ProtocolHTTP
	}
	return protocol
}

// CalleeAddress returns where the caller's sidecar sends calls of c; empty where
// the mesh knows.
func (t *Topology) CalleeAddress(c Call) string {
	if s, ok := t.Service(c.Service); ok {
		return s.Inbound
	}
	return c.Address
}
