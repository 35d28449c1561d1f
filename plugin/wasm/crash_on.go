//go:build crashtest

package wasm

// Built with the tag crashtest the filter panics where a test's path asks for it,
// so that a real Envoy can show what a panic costs.
func init() {
	crash = func(where, path string) {
		if path == "/crash/"+where {
			panic("asked to")
		}
	}
}
