package host

import "unsafe"

// status is proxy_result_t.
type status uint32

func (s status) err() error {
	switch s {
	case 0:
		return nil
	case 1:
		return ErrNotFound
	case 2:
		return ErrBad
	case 8:
		return ErrSwapped
	}
	return ErrHost
}

// The imports. A string is two parameters, address and length. None keeps what it
// is given, and those that call back for memory have read it by then.

//go:wasmimport env proxy_log
//go:noescape
func proxyLog(l Level, message string) status

//go:wasmimport env proxy_get_header_map_pairs
//go:noescape
func getHeaderMapPairs(m HeaderMap, data, size unsafe.Pointer) status

//go:wasmimport env proxy_replace_header_map_value
//go:noescape
func replaceHeader(m HeaderMap, name, value string) status

//go:wasmimport env proxy_remove_header_map_value
//go:noescape
func removeHeader(m HeaderMap, name string) status

//go:wasmimport env proxy_get_property
//go:noescape
func getProperty(path string, data, size unsafe.Pointer) status

//go:wasmimport env proxy_get_shared_data
//go:noescape
func getSharedData(name string, data, size, version unsafe.Pointer) status

//go:wasmimport env proxy_set_shared_data
//go:noescape
func setSharedData(name, value string, version uint32) status

//go:wasmimport env proxy_continue_stream
//go:noescape
func continueStream(s Stream) status

//go:wasmimport env proxy_close_stream
//go:noescape
func closeStream(s Stream) status

//go:wasmimport env proxy_send_local_response
//go:noescape
func sendLocalResponse(httpStatus uint32, details, body, headers string, grpcStatus int32) status

//go:wasmimport env proxy_http_call
//go:noescape
func httpCall(cluster, headers, body, trailers string, timeoutMillis uint32, id unsafe.Pointer) status

//go:wasmimport env proxy_define_metric
//go:noescape
func defineMetric(kind MetricKind, name string, id unsafe.Pointer) status

//go:wasmimport env proxy_increment_metric
//go:noescape
func incrementMetric(m Metric, n int64) status

//go:wasmimport env proxy_record_metric
//go:noescape
func recordMetric(m Metric, n uint64) status

//go:wasmimport env proxy_set_tick_period_milliseconds
//go:noescape
func setTickPeriod(millis uint32) status

//go:wasmimport env proxy_set_effective_context
//go:noescape
func setEffectiveContext(id uint32) status

//go:wasmimport env proxy_get_buffer_bytes
//go:noescape
func getBuffer(kind, start, size uint32, data, dataSize unsafe.Pointer) status

//go:wasmimport wasi_snapshot_preview1 clock_time_get
//go:noescape
func clockTimeGet(clock uint32, precision uint64, ns unsafe.Pointer) uint32
