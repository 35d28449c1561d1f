// Command plugin is the Envoy filter. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags "-s -w" -o bin/sequencefi.wasm ./plugin/wasm/cmd/plugin
package main

import "github.com/sequencefi/sequencefi/plugin/wasm"

func init() { wasm.Register() }

// main is never called: the host calls the exported functions of the SDK.
func main() {}
