package wasm_test

import (
	"testing"

	"github.com/sequencefi/sequencefi/plugin/wasm"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

func TestBehaviourAsGo(t *testing.T) {
	behaviour.Run(t, newEmulator(t, wasm.NewVM(), ""), 0, behaviour.Table())
}
