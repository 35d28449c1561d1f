package wasm

import (
	"encoding/binary"
	"strings"

	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// Properties that are read.
const (
	propertyDirection   host.Path = "xds\x00listener_direction"
	propertyCluster     host.Path = "xds\x00cluster_name"
	propertyCodeDetails host.Path = "response\x00code_details"
	propertyFlags       host.Path = "response\x00flags"
)

// intProperty reads a number; 0 where there is none.
func intProperty(path host.Path) uint64 {
	b := host.Property(path)
	if len(b) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

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
