//go:build !wasm

package wasm

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
)

// The same calls by way of the SDK, for its emulator.

// resetStream asks the emulator to close a stream, which it only logs.
func resetStream() { _ = proxywasm.CloseDownstream() } // it always says OK

var processStart = time.Now()

func monotonic() time.Duration { return time.Since(processStart) + time.Hour }

func readHeaders(kind mapKind) headerMap {
	var pairs [][2]string
	var err error
	switch kind {
	case mapRequestHeaders:
		pairs, err = proxywasm.GetHttpRequestHeaders()
	case mapResponseHeaders:
		pairs, err = proxywasm.GetHttpResponseHeaders()
	case mapResponseTrailers:
		pairs, err = proxywasm.GetHttpResponseTrailers()
	}
	if err != nil {
		return headerMap{}
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(pairs)))
	for _, p := range pairs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[0])))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[1])))
	}
	for _, p := range pairs {
		b = append(append(append(append(b, p[0]...), 0), p[1]...), 0)
	}
	return headerMap{b: b}
}

func property(path propertyPath) []byte {
	b, err := proxywasm.GetProperty(strings.Split(string(path), "\x00"))
	if err != nil {
		return nil
	}
	return b
}
