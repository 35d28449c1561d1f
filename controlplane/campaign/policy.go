package campaign

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// ReportingCluster is the proxy's cluster that sidecars send their reports to.
const ReportingCluster = "sequencefi_otlp"

// Policies returns what the sidecars of the involved services are told: the peers
// that the topology gives them, and the activations. A peer that is not involved has
// no plugin to take evidence off again, and counts as a leaf until it is.
func Policies(t *topology.Topology, involved []string, activations []*tfiv1.Activation) map[string]*tfiv1.Policy {
	policies := make(map[string]*tfiv1.Policy, len(involved))
	for _, service := range involved {
		peers := t.Peers(service)
		for _, peer := range peers {
			peer.Leaf = peer.Leaf || !slices.Contains(involved, peer.GetService())
		}
		policy := &tfiv1.Policy{
			Service:      service,
			Peers:        peers,
			Templates:    t.APITemplates(),
			TraceHeader:  t.TraceHeader,
			TraceFormats: traceFormats(t),
			ExemptPaths:  slices.Clone(t.ExemptPaths),
			Reporting:    &tfiv1.Reporting{Cluster: ReportingCluster},
			Activations:  make([]*tfiv1.Activation, len(activations)),
		}
		for i, a := range activations {
			policy.Activations[i] = proto.CloneOf(a)
		}
		policies[service] = policy
	}
	return policies
}

// traceFormats returns the topology's propagation; nil: all.
func traceFormats(t *topology.Topology) []tfiv1.TraceFormat {
	var formats []tfiv1.TraceFormat
	for _, name := range t.Propagation {
		switch name {
		case topology.FormatW3C:
			formats = append(formats, tfiv1.TraceFormat_TRACE_FORMAT_W3C)
		case topology.FormatB3:
			formats = append(formats, tfiv1.TraceFormat_TRACE_FORMAT_B3)
		case topology.FormatB3Multi:
			formats = append(formats, tfiv1.TraceFormat_TRACE_FORMAT_B3_MULTI)
		case topology.FormatJaeger:
			formats = append(formats, tfiv1.TraceFormat_TRACE_FORMAT_JAEGER)
		}
	}
	return formats
}
