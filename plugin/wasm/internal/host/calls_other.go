//go:build !wasm

package host

import (
	"errors"
	"strings"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// The same calls by way of the SDK, for its emulator.

func hostError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, types.ErrorStatusNotFound):
		return ErrNotFound
	case errors.Is(err, types.ErrorStatusBadArgument):
		return ErrBad
	case errors.Is(err, types.ErrorStatusCasMismatch):
		return ErrSwapped
	}
	return errors.Join(ErrHost, err)
}

// Release does nothing: here the memory is the collector's.
func Release() {}

// Headers returns a whole header map.
func Headers(m HeaderMap) []byte {
	var pairs [][2]string
	var err error
	switch m {
	case RequestHeaders:
		pairs, err = proxywasm.GetHttpRequestHeaders()
	case ResponseHeaders:
		pairs, err = proxywasm.GetHttpResponseHeaders()
	case ResponseTrailers:
		pairs, err = proxywasm.GetHttpResponseTrailers()
	case CallHeaders:
		pairs, err = proxywasm.GetHttpCallResponseHeaders()
	}
	if err != nil {
		return nil
	}
	return AppendPairs(nil, pairs)
}

// Replace sets a header.
func Replace(m HeaderMap, name, value string) error {
	switch m {
	case RequestHeaders:
		return hostError(proxywasm.ReplaceHttpRequestHeader(name, value))
	case ResponseHeaders:
		return hostError(proxywasm.ReplaceHttpResponseHeader(name, value))
	case ResponseTrailers:
		return hostError(proxywasm.ReplaceHttpResponseTrailer(name, value))
	}
	return ErrBad
}

// Remove removes a header.
func Remove(m HeaderMap, name string) error {
	switch m {
	case RequestHeaders:
		return hostError(proxywasm.RemoveHttpRequestHeader(name))
	case RequestTrailers:
		return hostError(proxywasm.RemoveHttpRequestTrailer(name))
	case ResponseHeaders:
		return hostError(proxywasm.RemoveHttpResponseHeader(name))
	case ResponseTrailers:
		return hostError(proxywasm.RemoveHttpResponseTrailer(name))
	}
	return ErrBad
}

// Property reads a property; nil: there is none.
func Property(path Path) []byte {
	b, err := proxywasm.GetProperty(strings.Split(string(path), "\x00"))
	if err != nil {
		return nil
	}
	return b
}

// SharedData returns a value and its version.
func SharedData(name string) (value []byte, version uint32, err error) {
	value, version, err = proxywasm.GetSharedData(name)
	return value, version, hostError(err)
}

// SetSharedData sets a value if its version is still the given one.
func SetSharedData(name string, value []byte, version uint32) error {
	return hostError(proxywasm.SetSharedData(name, value, version))
}

// Resume lets a direction of the effective stream go on.
func Resume(s Stream) error {
	if s == Request {
		return hostError(proxywasm.ResumeHttpRequest())
	}
	return hostError(proxywasm.ResumeHttpResponse())
}

// Reset asks the emulator to close a stream, which it only logs.
func Reset() { _ = proxywasm.CloseDownstream() } // it always says OK

// Reply answers the effective stream in the callee's place.
func Reply(httpStatus uint32, headers [][2]string, body []byte, grpcStatus int32) error {
	return hostError(proxywasm.SendHttpResponse(httpStatus, headers, body, grpcStatus))
}

// Answered is told how many headers an answer to a call has. To wasm that is a callback.
var Answered func(numHeaders int)

// Dispatch sends a request to a cluster.
func Dispatch(cluster string, headers [][2]string, body []byte, timeout time.Duration) error {
	_, err := proxywasm.DispatchHttpCall(cluster, headers, body, nil, uint32(timeout.Milliseconds()),
		func(numHeaders, _, _ int) { Answered(numHeaders) })
	return hostError(err)
}

// Define makes a statistic known. The SDK's metrics of all kinds are a number.
func Define(kind MetricKind, name string) Metric {
	if kind == Counter {
		return Metric(proxywasm.DefineCounterMetric(name))
	}
	return Metric(proxywasm.DefineGaugeMetric(name))
}

// Add adds to a statistic.
func (m Metric) Add(n int64) { proxywasm.MetricGauge(m).Add(n) }

// Set sets a statistic: the call behind Record is the one that sets, whatever the kind.
func (m Metric) Set(n uint64) { proxywasm.MetricHistogram(m).Record(n) }

// SetTickPeriod makes the host call the effective context's root every so often.
func SetTickPeriod(d time.Duration) error {
	return hostError(proxywasm.SetTickPeriodMilliSeconds(uint32(d.Milliseconds())))
}

// SetEffectiveContext says which stream or root the calls that follow are about.
func SetEffectiveContext(id uint32) error { return hostError(proxywasm.SetEffectiveContext(id)) }

// VMConfiguration returns a copy of it.
func VMConfiguration() []byte {
	b, err := proxywasm.GetVMConfiguration()
	if err != nil {
		return nil
	}
	return b
}

// PluginConfiguration returns a copy of it.
func PluginConfiguration() []byte {
	b, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		return nil
	}
	return b
}

// Log writes a line.
func Log(l Level, message string) {
	if l == Error {
		proxywasm.LogError(message)
		return
	}
	proxywasm.LogWarn(message)
}

var processStart = time.Now()

// Monotonic reads the process's monotonic clock.
func Monotonic() time.Duration { return time.Since(processStart) + time.Hour }
