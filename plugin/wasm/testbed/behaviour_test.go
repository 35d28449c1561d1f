package testbed_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/testbed"
)

// module is the filter, built once.
var module string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sequencefi-wasm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if _, err := envoy.Find(envoy.Version); err == nil {
		if module, err = testbed.Build(context.Background(), dir, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// start starts a bed for a test; without an Envoy the test is skipped.
func start(t *testing.T, o testbed.Options) *testbed.Bed {
	t.Helper()
	if o.Envoy == "" {
		o.Envoy = envoytest.Binary(t, envoy.Version)
	}
	if o.Module == "" {
		o.Module = module
	}
	bed, err := testbed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if log, err := bed.Process.Log(); err == nil && t.Failed() {
			t.Logf("%s", log[max(0, len(log)-8192):])
		}
		if err := bed.Bad(); err != nil {
			t.Error(err)
		}
		bed.Close()
	})
	return bed
}

func TestBehaviourInEnvoy(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			bed := start(t, testbed.Options{Workers: workers})
			behaviour.Run(t, bed, behaviour.Sockets, behaviour.Table())
		})
	}
}
