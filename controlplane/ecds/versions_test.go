package ecds_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// Before 1.39 the gate goes only to a listener that has held it from the start.
func TestEnvoyBefore139(t *testing.T) {
	for _, version := range []string{"1.36.4", "1.37.0"} {
		t.Run(version, func(t *testing.T) {
			path := envoytest.Binary(t, version)
			module := localModule(t)
			p := startPlane(t, "", ecds.Config{Module: module, FirstTTL: 2 * time.Minute}, nil)
			dflt, err := gate.Default(gate.Plugin{Module: module, VMConfiguration: gate.GCOff, Wrapped: true}, "cart")
			if err != nil {
				t.Fatal(err)
			}
			ready := startSidecar(t, sidecarOptions{
				name: "cart", xds: p.address, path: path, dflt: dflt,
				metadata: map[string]any{ecds.MetadataDefaultGate: true},
			})
			bare := startSidecar(t, sidecarOptions{name: "stock", xds: p.address, path: path})
			var v string
			for range 5 {
				v = apply(t, p.Server, policyOf("cart", time.Minute), policyOf("stock", time.Minute))
				wait(t, p.Server, v, "cart")
				a := ready.get(t, "/", "traceparent", trialParent)
				if got := a.policy.GetVersion(); got != v || a.header.Get("x-vm-configuration") != gate.GCOff {
					t.Fatalf("policy in force %q with VM configuration %q, acknowledged %q", got, a.header.Get("x-vm-configuration"), v)
				}
			}
			err = p.Wait(t.Context(), v, []string{"stock"})
			var refused *ecds.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(refused.Reason, version) || !strings.Contains(refused.Reason, "stock-1") || !strings.Contains(refused.Reason, "bootstrap") {
				t.Errorf("Wait for a stock listener: %v", err)
			}
			for range 20 {
				if got := bare.trial(t); got != "" {
					t.Fatalf("policy %q reached a listener that it crashes", got)
				}
			}
			p.Remove("cart")
			eventually(t, 10*time.Second, "the default is back", func() bool { return ready.trial(t) == gate.DefaultVersion })
		})
	}
}

func TestEnvoy139(t *testing.T) {
	path := envoytest.Binary(t, "1.39.0")
	p := startPlane(t, "", ecds.Config{Module: localModule(t)}, nil)
	e := startSidecar(t, sidecarOptions{name: "cart", xds: p.address, path: path})
	v := apply(t, p.Server, policyOf("cart", time.Minute))
	wait(t, p.Server, v, "cart")
	if got := e.trial(t); got != v {
		t.Fatalf("policy in force %q, acknowledged %q", got, v)
	}
}
