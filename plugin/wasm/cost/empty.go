package main

import "slices"

// emptyFilter returns a wasm module that exports what the filter does, and does
// nothing: what it costs is what Envoy takes for any filter in wasm.
func emptyFilter() []byte {
	const none = -1
	functions := []struct {
		name   string
		params int
		result int // returned; none: no result
	}{
		{"proxy_abi_version_0_2_0", 0, none},
		{"_initialize", 0, none},
		{"malloc", 1, 0},
		{"proxy_on_vm_start", 2, 1},
		{"proxy_on_context_create", 2, none},
		{"proxy_on_configure", 2, 1},
		{"proxy_on_request_headers", 3, 0},
		{"proxy_on_response_headers", 3, 0},
		{"proxy_on_response_body", 3, 0},
		{"proxy_on_response_trailers", 2, 0},
		{"proxy_on_done", 1, 1},
	}
	const i32, functype, constI32, end = 0x7f, 0x60, 0x41, 0x0b
	var types, indexes, exports, bodies [][]byte
	for i, f := range functions {
		signature := append([]byte{functype, byte(f.params)}, slices.Repeat([]byte{i32}, f.params)...)
		body := []byte{0} // no locals
		if f.result == none {
			signature = append(signature, 0)
		} else {
			signature = append(signature, 1, i32)
			body = append(body, constI32, byte(f.result))
		}
		body = append(body, end)
		types = append(types, signature)
		indexes = append(indexes, []byte{byte(i)})
		exports = append(exports, slices.Concat([]byte{byte(len(f.name))}, []byte(f.name), []byte{0, byte(i)}))
		bodies = append(bodies, append([]byte{byte(len(body))}, body...))
	}
	const memory = "memory"
	exports = append(exports, slices.Concat([]byte{byte(len(memory))}, []byte(memory), []byte{2, 0}))
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, types), section(3, indexes), section(5, [][]byte{{0, 1}}), section(7, exports), section(10, bodies))
}

// section returns a section of a wasm module, of fewer than 128 items and 16,384 bytes.
func section(id byte, items [][]byte) []byte {
	body := slices.Concat(append([][]byte{{byte(len(items))}}, items...)...)
	return append([]byte{id, byte(len(body)) | 0x80, byte(len(body) >> 7)}, body...)
}
