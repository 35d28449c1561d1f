package host

import (
	"time"
	"unsafe"
)

// out is what a call returns. The host calls back for memory before it writes
// here, and a stack may move meanwhile, so this is no local variable. Addresses and
// sizes are 32 bits wide; the rest of an address stays zero.
var out struct {
	data    *byte
	size    uint32
	version uint32
	id      uint32
	ns      uint64
}

// bytes returns what the host has left in out.
func bytes(s status) []byte {
	if s != 0 || out.data == nil {
		return nil
	}
	return unsafe.Slice(out.data, out.size)
}

// Headers returns a whole header map; what cannot be read is empty:
//
//	count        4 bytes, little-endian
//	lengths      count times 4 bytes name, 4 bytes value
//	name 0 value 0 …
//
// Names are in lower case.
func Headers(m HeaderMap) []byte {
	out.data, out.size = nil, 0
	return bytes(getHeaderMapPairs(m, unsafe.Pointer(&out.data), unsafe.Pointer(&out.size)))
}

// Replace sets a header.
func Replace(m HeaderMap, name, value string) error { return replaceHeader(m, name, value).err() }

// Remove removes a header.
func Remove(m HeaderMap, name string) error { return removeHeader(m, name).err() }

// Property reads a property; nil: there is none.
func Property(path Path) []byte {
	out.data, out.size = nil, 0
	return bytes(getProperty(string(path), unsafe.Pointer(&out.data), unsafe.Pointer(&out.size)))
}

// SharedData returns a value and its version. Errors: ErrNotFound.
func SharedData(name string) (value []byte, version uint32, err error) {
	out.data, out.size = nil, 0
	s := getSharedData(name, unsafe.Pointer(&out.data), unsafe.Pointer(&out.size), unsafe.Pointer(&out.version))
	return bytes(s), out.version, s.err()
}

// SetSharedData sets a value if its version is still the given one; 0: in any
// case. Errors: ErrSwapped.
func SetSharedData(name string, value []byte, version uint32) error {
	return setSharedData(name, text(value), version).err()
}

// Resume lets a direction of the effective stream go on.
func Resume(s Stream) error { return continueStream(s).err() }

// Reset resets the effective stream, once the callback is over.
func Reset() { closeStream(Request) }

// Reply answers the effective stream in the callee's place; grpcStatus -1: it is
// not gRPC, else Envoy makes a grpc-message of the body.
func Reply(httpStatus uint32, headers [][2]string, body []byte, grpcStatus int32) error {
	return sendLocalResponse(httpStatus, "", text(body), text(AppendPairs(nil, headers)), grpcStatus).err()
}

// Dispatch sends a request of the effective context's root to a cluster. The answer is
// a callback of its own, which does not come once the root is gone.
func Dispatch(cluster string, headers [][2]string, body []byte, timeout time.Duration) error {
	return httpCall(cluster, text(AppendPairs(nil, headers)), text(body), text(AppendPairs(nil, nil)),
		uint32(timeout.Milliseconds()), unsafe.Pointer(&out.id)).err()
}

// Define makes a statistic known; one that exists already is the same.
func Define(kind MetricKind, name string) Metric {
	out.id = 0
	defineMetric(kind, name, unsafe.Pointer(&out.id))
	return Metric(out.id)
}

// Add adds to a statistic.
func (m Metric) Add(n int64) { incrementMetric(m, n) }

// Set sets a statistic.
func (m Metric) Set(n uint64) { recordMetric(m, n) }

// SetTickPeriod makes the host call the effective context's root every so often; 0: no more.
func SetTickPeriod(d time.Duration) error { return setTickPeriod(uint32(d.Milliseconds())).err() }

// SetEffectiveContext says which stream or root the calls that follow are about.
// Errors: ErrBad, it is gone.
func SetEffectiveContext(id uint32) error { return setEffectiveContext(id).err() }

// VMConfiguration returns a copy of it.
func VMConfiguration() []byte { return buffer(6) }

// PluginConfiguration returns a copy of it; only while the plugin is configured.
func PluginConfiguration() []byte { return buffer(7) }

func buffer(kind uint32) []byte {
	out.data, out.size = nil, 0
	return append([]byte(nil), bytes(getBuffer(kind, 0, ^uint32(0)>>1, unsafe.Pointer(&out.data), unsafe.Pointer(&out.size)))...)
}

// Log writes a line.
func Log(l Level, message string) { proxyLog(l, message) }

const clockMonotonic = 1

// Monotonic reads the process's monotonic clock. Package time counts from the
// start of each VM, and trial states are shared between VMs.
func Monotonic() time.Duration {
	if clockTimeGet(clockMonotonic, 0, unsafe.Pointer(&out.ns)) != 0 {
		return 0
	}
	return time.Duration(out.ns)
}

// text passes bytes without a copy; the host keeps nothing.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
