// Package wasm is the Envoy filter: the adapter between proxy-wasm callbacks and
// the engine of package tfi. It reads messages, asks the engine, and does to the
// stream what the engine decided; what a message means is none of its business.
//
// It is not the gate. The control plane puts the filter inside a native matcher,
// so that only requests whose trace headers may belong to a trial get here.
//
// Read first: callbacks.go, what the host calls; stream, the life of one call; and
// table, the trial states that Envoy's workers share.
//
// # One worker, several workers
//
// Envoy runs one VM a worker thread, plus one in its main thread. A VM calls back
// on one thread only, so nothing in here locks. What several VMs share lies in
// proxy-wasm shared data and is changed by compare-and-swap: the trial states
// (table) and the deadlines of activations (fenceRecord).
//
// # Policies
//
// A pushed policy makes a new root context in every VM, and the old one lives on
// until its last stream has ended. Streams keep the engine they began with.
package wasm
