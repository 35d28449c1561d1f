package wasm

// plugin is the VM that this module is.
var plugin = newVM()

// What the host calls. It takes a module by the name of one of these for one of
// proxy-wasm 0.2.

//go:wasmexport proxy_abi_version_0_2_0
func abiVersion() {}

//go:wasmexport proxy_on_vm_start
func onVMStart(_, _ uint32) uint32 {
	plugin.start()
	return 1
}

//go:wasmexport proxy_on_context_create
func onContextCreate(id, parent uint32) { plugin.contextCreate(id, parent) }

//go:wasmexport proxy_on_configure
func onConfigure(id, _ uint32) uint32 {
	plugin.configure(id)
	return 1
}

//go:wasmexport proxy_on_done
func onDone(id uint32) uint32 {
	plugin.done(id)
	return 1
}

//go:wasmexport proxy_on_tick
func onTick(id uint32) { plugin.tick(id) }

//go:wasmexport proxy_on_http_call_response
func onHTTPCallResponse(id, _, numHeaders, _, _ uint32) { plugin.callAnswered(id, int(numHeaders)) }

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(id, _, _ uint32) uint32 { return uint32(plugin.requestHeaders(id)) }

//go:wasmexport proxy_on_request_trailers
func onRequestTrailers(_, _ uint32) uint32 { return uint32(plugin.requestTrailers()) }

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(id, _, end uint32) uint32 {
	return uint32(plugin.responseHeaders(id, end != 0))
}

//go:wasmexport proxy_on_response_body
func onResponseBody(id, size, end uint32) uint32 {
	return uint32(plugin.responseBody(id, int(size), end != 0))
}

//go:wasmexport proxy_on_response_trailers
func onResponseTrailers(id, _ uint32) uint32 { return uint32(plugin.responseTrailers(id)) }
