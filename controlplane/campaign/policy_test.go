package campaign_test

import (
	"testing"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Sidecars are told of every format that a topology can name, and of no other.
func TestPoliciesTellTheFormats(t *testing.T) {
	for _, formats := range [][]string{nil, {topology.FormatJaeger}, topology.Formats()} {
		top := &topology.Topology{Services: []topology.Service{{Name: "cart"}}, Propagation: formats}
		p := campaign.Policies(top, []string{"cart"}, nil)["cart"]
		if n := len(p.GetTraceFormats()); n != len(formats) {
			t.Errorf("%v: %d formats told", formats, n)
		}
		for _, problem := range valid.Policy(p) {
			t.Errorf("%v: %v", formats, problem)
		}
	}
}
