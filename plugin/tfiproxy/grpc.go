package tfiproxy

import (
	"strconv"
	"strings"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// isGRPC reports whether a content type is gRPC's. gRPC-Web's is not: its
// trailers are part of the body, so to a sidecar it is plain HTTP.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || strings.IndexByte("+; ", rest[0]) >= 0)
}

// grpcUnavailable is UNAVAILABLE.
const grpcUnavailable = 14

// grpcStatus reads the status of a gRPC answer's end.
func grpcStatus(h tfi.Headers, httpStatus int) int {
	if v, ok := h.Header("grpc-status"); ok {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return n
		}
	}
	return grpcStatusOf(httpStatus)
}

// grpcStatusOf is what a client makes of an answer that has no gRPC status
// (grpc/doc/http-grpc-status-mapping.md).
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
		return grpcUnavailable
	}
	return 2 // UNKNOWN
}

// appendGRPCMessage percent-encodes a status message (gRPC over HTTP/2, Responses).
func appendGRPCMessage(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; ' ' <= c && c <= '~' && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}
