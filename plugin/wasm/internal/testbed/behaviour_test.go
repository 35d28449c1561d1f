package testbed_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

// module is the filter, built once; shared a bed with two workers, which most
// tests use: an Envoy compiles the module for seconds.
var (
	module string
	shared struct {
		once sync.Once
		bed  *testbed.Bed
		err  error
	}
)

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
	code := m.Run()
	if shared.bed != nil {
		if err := shared.bed.Bad(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		shared.bed.Close()
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// share returns the shared bed.
func share(t *testing.T) *testbed.Bed {
	t.Helper()
	binary := envoytest.Binary(t, envoy.Version)
	shared.once.Do(func() {
		shared.bed, shared.err = testbed.Start(context.Background(), testbed.Options{Envoy: binary, Module: module, Workers: 2})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if log, err := shared.bed.Process.Log(); err == nil && t.Failed() {
			t.Logf("%s", log[max(0, len(log)-8192):])
		}
	})
	return shared.bed
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
	behaviour.Run(t, share(t), behaviour.Sockets, behaviour.Table())
}

func TestBehaviourInEnvoyWithOneWorker(t *testing.T) {
	behaviour.Run(t, start(t, testbed.Options{}), behaviour.Sockets, behaviour.Table())
}
