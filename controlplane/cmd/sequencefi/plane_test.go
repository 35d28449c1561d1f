package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// TestClosingTakesPoliciesAway has a sidecar that is told to drop its policy before the
// control plane goes, as at the end of each command and after Ctrl-C.
func TestClosingTakesPoliciesAway(t *testing.T) {
	top, err := topology.Parse([]byte("{services: [{name: shop}]}"))
	if err != nil {
		t.Fatal(err)
	}
	plugin := write(t, filepath.Join(t.TempDir(), pluginName), "\x00asm")
	p, err := startPlane(t.Context(), planeFlags{plugin: plugin, xds: "127.0.0.1:0", otlp: "127.0.0.1:0", wait: time.Minute}, top, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	removed := make(chan bool, 1)
	go func() { removed <- follow(t, p.xds, nil) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	version, err := p.server.Apply(ctx, campaign.Policies(top, top.Names(), nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.server.Wait(ctx, version, top.Names()); err != nil {
		t.Fatal(err)
	}
	p.close()
	if !<-removed {
		t.Error("the policy was left to its TTL")
	}
}

// TestClosingWhilePluginLoads has a sidecar that confirms its first policy late, or never, as an
// Envoy that compiles the plugin when Ctrl-C comes, before the plane closes or while it does.
func TestClosingWhilePluginLoads(t *testing.T) {
	for name, test := range map[string]struct {
		patience patience
		loads    bool
		stop     string // when the command is stopped; empty: never
		says     string
	}{
		"late":            {patience{20 * time.Millisecond, time.Minute}, true, "", "waiting for shop/shop-1 to finish loading"},
		"late, stopped":   {patience{20 * time.Millisecond, time.Minute}, true, "before", "waiting for shop/shop-1 to finish loading"},
		"never":           {patience{20 * time.Millisecond, 20 * time.Millisecond}, false, "", "shop/shop-1 did not confirm"},
		"never, given up": {patience{20 * time.Millisecond, time.Minute}, false, "while", "shop/shop-1 did not confirm"},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := topology.Parse([]byte("{services: [{name: shop}]}"))
			if err != nil {
				t.Fatal(err)
			}
			plugin := write(t, filepath.Join(t.TempDir(), pluginName), "\x00asm")
			loaded := make(chan struct{})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			said := &waiter{text: "waiting for", then: func() {
				if test.stop == "while" {
					stop()
				}
				if test.loads {
					close(loaded)
				}
			}}
			p, err := startPlane(ctx, planeFlags{plugin: plugin, xds: "127.0.0.1:0", otlp: "127.0.0.1:0", wait: time.Minute}, top, said)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			p.patience = test.patience
			removed := make(chan bool, 1)
			go func() { removed <- follow(t, p.xds, loaded) }()
			if _, err := p.server.Apply(t.Context(), campaign.Policies(top, top.Names(), nil)); err != nil {
				t.Fatal(err)
			}
			for changed := p.server.Changed(); len(p.server.Sidecars()) == 0; changed = p.server.Changed() {
				<-changed
			}
			if test.stop == "before" {
				stop()
			}
			begun := time.Now()
			p.close()
			if !test.loads {
				close(loaded)
			}
			if took := time.Since(begun); took >= time.Minute {
				t.Errorf("closing took %v", took)
			}
			if got := <-removed; got != test.loads {
				t.Errorf("removed: %v", got)
			}
			if !strings.Contains(said.String(), test.says) {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}

// waiter calls then once when text is written to it.
type waiter struct {
	strings.Builder
	text string
	then func()
}

func (w *waiter) Write(b []byte) (int, error) {
	n, err := w.Builder.Write(b)
	if w.then != nil && strings.Contains(w.String(), w.text) {
		w.then()
		w.then = nil
	}
	return n, err
}

// follow is a sidecar that takes what it is told, until its stream ends. It says whether
// its policy was taken away. It confirms nothing before loaded is closed; nil: at once.
func follow(t *testing.T, address string, loaded <-chan struct{}) (removed bool) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return false
	}
	defer conn.Close()
	stream, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).DeltaExtensionConfigs(t.Context())
	if err != nil {
		t.Error(err)
		return false
	}
	request := &discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{
			Id: "shop-1", Cluster: "shop", UserAgentName: "envoy",
			UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.40.0"},
		},
		ResourceNamesSubscribe: []string{gate.Name},
	}
	for stream.Send(request) == nil {
		response, err := stream.Recv()
		if err != nil {
			break
		}
		if loaded != nil {
			<-loaded
		}
		removed = len(response.GetRemovedResources()) > 0
		request = &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: response.GetNonce()}
	}
	return removed
}
