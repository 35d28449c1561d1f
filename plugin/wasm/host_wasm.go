package wasm

import (
	"time"
	"unsafe"
)

// Host calls that the SDK has not, or not in the form needed. Memory that the
// host fills it asks of the SDK's proxy_on_memory_allocate; it is ours from then on.

//go:wasmimport env proxy_close_stream
func proxyCloseStream(streamType uint32) uint32

// The host calls back for memory during these, so that their out parameters must
// not lie on a stack, which may move meanwhile: they are not noescape.

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(mapType uint32, data, size unsafe.Pointer) uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(path unsafe.Pointer, pathLen uint32, data, size unsafe.Pointer) uint32

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

// readHeaders reads a whole header map; what cannot be read is empty.
func readHeaders(kind mapKind) headerMap {
	// 32-bit addresses and sizes, as the host writes them.
	var data *byte
	var size uint32
	if proxyGetHeaderMapPairs(uint32(kind), unsafe.Pointer(&data), unsafe.Pointer(&size)) != 0 || data == nil {
		return headerMap{}
	}
	return headerMap{b: unsafe.Slice(data, size)}
}

// property reads a property; nil: there is none.
func property(path propertyPath) []byte {
	var data *byte
	var size uint32
	if proxyGetProperty(unsafe.Pointer(unsafe.StringData(string(path))), uint32(len(path)), unsafe.Pointer(&data), unsafe.Pointer(&size)) != 0 || data == nil {
		return nil
	}
	return unsafe.Slice(data, size)
}
