// Package host is what a proxy-wasm host offers its filter (ABI 0.2), as far as
// this filter asks for it, and the memory in which it answers.
//
// It is there twice: for wasm as bare imports, and for the SDK's emulator by way of
// the SDK. See "Why not the SDK?" in the README of the filter.
//
// # Memory
//
// A host answers in memory that it asks of the filter. Header maps, properties
// and shared data therefore lie in one buffer that is used again: they are the caller's
// until the next [Release], which every callback that reads begins with.
package host

import "errors"

// HeaderMap names a header map (proxy_map_type_t).
type HeaderMap uint32

// The header maps.
const (
	RequestHeaders   HeaderMap = 0
	RequestTrailers  HeaderMap = 1
	ResponseHeaders  HeaderMap = 2
	ResponseTrailers HeaderMap = 3
	// CallHeaders are those of an answer to [Call], while it is handled.
	CallHeaders HeaderMap = 6
)

// Path is a property's path with zero bytes between its parts, as the host wants it.
type Path string

// Stream names a direction of an HTTP stream (proxy_stream_type_t).
type Stream uint32

// The directions.
const (
	Request  Stream = 0
	Response Stream = 1
)

// Metric is a statistic of the host.
type Metric uint32

// MetricKind is its kind (proxy_metric_type_t).
type MetricKind uint32

// The kinds.
const (
	Counter MetricKind = 0
	Gauge   MetricKind = 1
)

// Level of a log line (proxy_log_level_t).
type Level uint32

// The levels.
const (
	Warn  Level = 3
	Error Level = 4
)

// What a host may say of a call. Anything else that is not OK is ErrHost.
var (
	ErrNotFound = errors.New("host: not found")
	ErrBad      = errors.New("host: bad argument")
	ErrSwapped  = errors.New("host: changed meanwhile")
	ErrHost     = errors.New("host: failed")
)
