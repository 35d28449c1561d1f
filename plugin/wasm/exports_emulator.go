//go:build wasm && emulator

package wasm

// The SDK's emulator calls these whether a module has them or not; Envoy does not.

//go:wasmexport proxy_on_log
func onLog(id uint32) { plugin.done(id) }

//go:wasmexport proxy_on_request_body
func onRequestBody(_, _, _ uint32) uint32 { return uint32(goOn) }
