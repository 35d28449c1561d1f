package policypoll

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
)

// native is the configuration that a service's sidecar reads of what is written for it.
func native(t *testing.T, top *topology.Topology, service string, c SidecarConfig) *config.Config {
	t.Helper()
	b, err := NativeConfig(top, service, c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestNativeConfig says that the sidecar reads what is written for it.
func TestNativeConfig(t *testing.T) {
	top := &topology.Topology{
		Services: []topology.Service{
			{Name: "front", Sidecar: "tfiproxy", App: "127.0.0.1:1", Inbound: "127.0.0.1:2", Admin: "127.0.0.1:3", Calls: []topology.Call{
				{Service: "cart", Listen: "127.0.0.1:4"},
				{Service: "bank", Listen: "127.0.0.1:5", Cluster: "bank-eu", Address: "127.0.0.1:6"},
				{Service: "bank", Cluster: "unseen"},
			}},
			{Name: "cart", App: "127.0.0.1:7", Inbound: "127.0.0.1:8"},
		},
		Leaves: []string{"bank"},
		OTLP:   topology.DefaultOTLP,
		Policy: "127.0.0.1:9",
	}
	got := native(t, top, "front", SidecarConfig{Instance: "front-1", TokenFile: "/run/token"})
	want := []config.Listener{
		{Role: tfi.RoleServer, Listen: "127.0.0.1:2", Upstream: "127.0.0.1:1"},
		{Role: tfi.RoleClient, Listen: "127.0.0.1:4", Upstream: "127.0.0.1:8", Cluster: "cart"},
		{Role: tfi.RoleClient, Listen: "127.0.0.1:5", Upstream: "127.0.0.1:6", Cluster: "bank-eu"},
	}
	if d := cmp.Diff(want, got.Listeners); d != "" {
		t.Error(d)
	}
	if got.Service != "front" || got.Instance != "front-1" || got.Admin != "127.0.0.1:3" ||
		got.Clusters[bootstrap.ClusterOTLP] != topology.DefaultOTLP ||
		got.Policy.Address != "127.0.0.1:9" || got.Policy.TokenFile != "/run/token" {
		t.Errorf("%+v", got)
	}
	_, err := NativeConfig(&topology.Topology{Services: []topology.Service{{Name: "a", Calls: []topology.Call{{Service: "b"}}}}}, "a", SidecarConfig{})
	if !errors.Is(err, ErrTopology) {
		t.Fatal(err)
	}
	for _, path := range []string{"services[0].calls[0].service", "services[0].sidecar", "services[0].inbound", "services[0].app"} {
		if !strings.Contains(err.Error(), path+":") {
			t.Errorf("%v\nsays nothing of %s", err, path)
		}
	}
	if text := err.Error(); strings.Count(text, ErrTopology.Error()) != 1 || strings.Contains(text, "otlp:") || strings.Contains(text, "policy:") {
		t.Errorf("it asks for what has a default, or repeats itself:\n%v", err)
	}
	if _, err := NativeConfig(top, "nobody", SidecarConfig{}); !errors.Is(err, ErrTopology) {
		t.Error(err)
	}
}
