package wasm

import (
	"time"
	"unsafe"
)

// The two host calls that the SDK has not, or not in the form needed.

//go:wasmimport env proxy_close_stream
func proxyCloseStream(streamType uint32) uint32

//go:wasmimport wasi_snapshot_preview1 clock_time_get
//go:noescape
func clockTimeGet(clock uint32, precision uint64, out unsafe.Pointer) uint32

// resetStream resets the HTTP stream of the effective context. The SDK offers
// the call for TCP streams only.
func resetStream() { proxyCloseStream(0) }

const clockMonotonic = 1

// monotonic reads the process's monotonic clock. Package time counts from the
// start of each VM, and trial states are shared between VMs.
func monotonic() time.Duration {
	var ns uint64
	if clockTimeGet(clockMonotonic, 0, unsafe.Pointer(&ns)) != 0 {
		return 0
	}
	return time.Duration(ns)
}
