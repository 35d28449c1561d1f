// Command plugin is the Envoy filter. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags "-s -w" -o bin/sequencefi.wasm ./plugin/wasm/cmd/plugin
package main

import _ "github.com/sequencefi/sequencefi/plugin/wasm" // exports what the host calls

// main is never called.
func main() {}
