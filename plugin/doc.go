// Package plugin is the data path: what runs beside the applications and sees
// their messages.
//
// It has three parts. Package tfi is the engine: pure Go, message in, decision
// out. Package wasm is the engine as a filter of Envoy, and package tfiproxy the
// engine as a small sidecar of its own; both are thin shells with sockets, clocks and
// SDKs.
//
// It is not the control plane: it decides nothing about what is tried, it only does
// what its policy says, when the policy says so. It imports neither the control plane
// nor the solver, and it never stands in the way: whatever goes wrong in it, the
// message is forwarded as it is.
//
// Read first: [github.com/sequencefi/sequencefi/plugin/tfi.Engine], which judges;
// [github.com/sequencefi/sequencefi/plugin/tfi.Policy], by what;
// [github.com/sequencefi/sequencefi/plugin/tfi.State], and what it remembers.
package plugin
