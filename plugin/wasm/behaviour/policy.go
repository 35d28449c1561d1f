package behaviour

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Policy returns the policy of Service with one activation a key.
func Policy(version string, activations ...*tfiv1.Activation) *tfiv1.Policy {
	return &tfiv1.Policy{
		Service:     Service,
		Version:     version,
		Peers:       []*tfiv1.Peer{{Service: Peer, Clusters: []string{PeerHTTP1, PeerHTTP2}}},
		ExemptPaths: []string{"/healthz"},
		Reporting:   &tfiv1.Reporting{Cluster: ReportCluster},
		Activations: activations,
	}
}

// Activation of a key for a lifetime; 0 means a minute.
func Activation(key tfi.Key, lifetime time.Duration, tfics ...*tfiv1.Tfic) *tfiv1.Activation {
	if lifetime == 0 {
		lifetime = time.Minute
	}
	return &tfiv1.Activation{
		Key: key[:], Tfics: tfics, Remaining: durationpb.New(lifetime), Services: []string{Service, Peer},
	}
}

// The targets and faults that cases are made of.

// outbound is Service's call of Peer, faulted at the caller's sidecar.
func outbound(api string, phase tfiv1.Phase) *tfiv1.StaticConfiguration {
	return &tfiv1.StaticConfiguration{Caller: Service, Callee: Peer, Api: api, Phase: phase}
}

// inbound is a call of Service from outside the mesh, faulted at its own sidecar.
func inbound(api string, phase tfiv1.Phase) *tfiv1.StaticConfiguration {
	return &tfiv1.StaticConfiguration{Callee: Service, Api: api, Phase: phase, Placement: tfiv1.Placement_PLACEMENT_CALLEE}
}

func tfic(id string, target *tfiv1.StaticConfiguration, f *tfiv1.Fault, kind tfiv1.AnswerKind) *tfiv1.Tfic {
	return &tfiv1.Tfic{Id: id, Target: target, Fault: f, AnswerKind: kind}
}

func delayed(d time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(d)}}}}
}

func failed(e *tfiv1.Error) *tfiv1.Fault { return &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: e}} }

func aborted() *tfiv1.Fault { return &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}} }

func dropped(limit time.Duration) *tfiv1.Fault {
	return &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{Drop: &tfiv1.Drop{Limit: durationpb.New(limit)}}}
}
