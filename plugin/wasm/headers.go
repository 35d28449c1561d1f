package wasm

import (
	"strings"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// The messages' header maps as the engine reads them. Headers are read one by
// one: a whole map costs an allocation a header, and linear memory never shrinks.
type (
	requestHeaders   struct{}
	responseHeaders  struct{}
	responseTrailers struct{}
)

var (
	_ tfi.Headers = requestHeaders{}
	_ tfi.Headers = responseHeaders{}
	_ tfi.Headers = responseTrailers{}
)

// Header implements [tfi.Headers].
func (requestHeaders) Header(name string) (string, bool) {
	v, err := proxywasm.GetHttpRequestHeader(name)
	return v, err == nil
}

// Header implements [tfi.Headers].
func (responseHeaders) Header(name string) (string, bool) {
	v, err := proxywasm.GetHttpResponseHeader(name)
	return v, err == nil
}

// Header implements [tfi.Headers].
func (responseTrailers) Header(name string) (string, bool) {
	v, err := proxywasm.GetHttpResponseTrailer(name)
	return v, err == nil
}

// answerMap is a header map of an answer that can be changed.
type answerMap struct {
	tfi.Headers
	replace func(name, value string) error
	remove  func(name string) error
}

var (
	inHeaders  = answerMap{responseHeaders{}, proxywasm.ReplaceHttpResponseHeader, proxywasm.RemoveHttpResponseHeader}
	inTrailers = answerMap{responseTrailers{}, proxywasm.ReplaceHttpResponseTrailer, proxywasm.RemoveHttpResponseTrailer}
)

// isGRPC reports whether a content type says gRPC. gRPC-Web does not count: its
// trailers are part of the body, so to a sidecar it is plain HTTP.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == ' ')
}

// grpcStatusOf is the status that a gRPC client makes of an answer without one
// (gRPC's http-grpc-status-mapping).
func grpcStatusOf(httpStatus int) int {
	switch httpStatus {
	case 400:
		return 13 // INTERNAL
	case 401:
		return 16 // UNAUTHENTICATED
	case 403:
		return 7 // PERMISSION_DENIED
	case 404:
		return 12 // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return 14 // UNAVAILABLE
	}
	return 2 // UNKNOWN
}

const upperHex = "0123456789ABCDEF"

// percentEncode encodes a grpc-message as the gRPC protocol wants it.
func percentEncode(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && plainByte(s[i])
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plainByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

func plainByte(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
