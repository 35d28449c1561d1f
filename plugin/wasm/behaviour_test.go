//go:build !wasm

package wasm_test

import (
	"os"
	"testing"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/proxytest"

	"github.com/sequencefi/sequencefi/plugin/wasm"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/testbed"
)

func TestBehaviourAsGo(t *testing.T) {
	behaviour.Run(t, newEmulator(t, wasm.NewVM(), ""), 0, behaviour.Table())
}

// built returns the filter as Envoy gets it, and with the callbacks that the
// emulator makes without asking.
func built(t *testing.T) []byte {
	t.Helper()
	path, err := testbed.Build(t.Context(), t.TempDir(), "emulator")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBehaviourAsWasm(t *testing.T) {
	vm, err := proxytest.NewWasmVMContext(built(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = vm.Close() }) // in memory
	behaviour.Run(t, newEmulator(t, vm, ""), 0, behaviour.Table())
}
