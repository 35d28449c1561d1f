//go:build !wasm

package wasm

import (
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
)

// resetStream is for the SDK's emulator, which only logs that a stream was
// closed, whatever the kind of stream.
func resetStream() { _ = proxywasm.CloseDownstream() } // it always says OK

var processStart = time.Now()

func monotonic() time.Duration { return time.Since(processStart) + time.Hour }
