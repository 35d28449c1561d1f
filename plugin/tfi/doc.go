// Package tfi is the engine of SequenceFI's data path: it watches the messages of
// one sidecar, keeps what it learns of each trial, and says of each message whether it
// goes on, late, or not at all. It is pure: a message goes in, a decision comes out.
// It does no I/O, starts no goroutines, and knows no time but the one it is told. The
// Envoy filter, the native sidecar and the solver's replay all run this very code.
//
// # A first call
//
// An adapter has a policy (bytes, as the control plane sent them), a place where the
// trials' states live, and one [Call] beside each stream:
//
//	policy, err := tfi.ParsePolicy(b)
//	if err != nil {
//		return err // keep the last good policy; the error lists every problem
//	}
//	fence.Admit(policy, now)
//	engine := tfi.NewEngine(policy, store, tfi.Options{Now: now, Fence: &fence})
//
// When a request's headers have arrived, it asks what to do:
//
//	d := engine.Request(&call, &tfi.Request{
//		Role: tfi.RoleClient, Cluster: cluster,
//		Method: method, Path: path, GRPC: grpc, Headers: headers, Now: now,
//	})
//
// and does it, in this order:
//
//   - d.TraceParent is added, if there is any;
//   - d.Evidence is set as [EvidenceHeader], over whatever stands there; if there is
//     none and d.Strip is set, the header is removed;
//   - d.Action says what becomes of the message. [ActionForward] is by far the
//     commonest.
//
// The same with [Engine.Response] once the answer's event has come: for HTTP when
// its headers have arrived, for gRPC when its trailers have. A sidecar at the caller's
// side reports, last, that the answer's last byte has gone to the application
// ([Engine.Delivered]). Then [Call.Record] holds all there is to report.
//
// Where a call belongs to no trial, [Call.Active] is false from the start, nothing has
// been allocated, and Response and Delivered do nothing.
//
// # What happens inside
//
// A request names its trial by a trace header ([Key], and tracecontext.go for the
// formats). The trial's [Activation] says what may be done in it and what must be
// known for that. One call of [Store.Update] then does, as one atomic step:
//
//  1. merge: the evidence that came with the message goes into the state's [Counter];
//  2. count: the message's own event gets the next sequence number, and is added to
//     the predicates that match it, so that counts include the message being judged;
//  3. judge: of the TFICs whose [Target] matches, the first fires whose guard holds,
//     whose rank is right, and which has not fired often enough;
//  4. snapshot: what is known now is what the message will carry.
//
// All else, parsing before and encoding after, is done outside that step, and
// a store may take the step several times when another worker was faster.
//
// # Evidence
//
// A sidecar knows of an event if it has seen it itself or if a message has brought
// word of it. Word travels in [EvidenceHeader], from sidecar to sidecar only: a caller's
// attaches it to requests towards peers that the policy lists, a callee's to the
// answers of requests that brought some. Applications never see it. They need only pass
// on their trace headers, so that the next sidecar finds the state again. What is
// counted where is told by [Counter]; evidence.go has the bytes.
//
// Lost evidence makes a sidecar know less, never more: headers that are too large or
// not well-formed are dropped and counted, and a guard that would have held may not. No
// loss can make one hold that should not.
//
// # Ranks
//
// The k of a call is its rank among the calls of its op in the trial, given by the
// caller's sidecar, which stamps it on the request; both sidecars then speak of the
// same k. A callee's sidecar ranks only those calls that bear no stamp. If a target has
// identities, its k is a rank among the calls that carry them, counted where it is
// judged. A request that the mesh sent twice has the ranks of its first arrival.
//
// # States, stores and clocks
//
// A [State] belongs to one trial at one sidecar, shared by its workers, inbound and
// outbound. [Memory] keeps states in a map; who keeps them elsewhere as bytes uses
// [State.AppendBinary] and [State.UnmarshalBinary], with compare and swap around
// [Updater].Apply, and [PeekState] to find the slots that are free again.
//
// Activations end by the sidecar's own clock, whoever else has died: see [Fence].
//
// # Faults
//
// A fault's message is no event at its maker. A request that is not forwarded has no
// answer here, an answer that is not forwarded is not delivered; whoever receives the
// made answer counts it as what it looks like. How long a delay is, is drawn at random;
// whether there is one never is. The verdict at a message depends on what was delivered
// before it, on its own rank, and on what has fired: not on the worker, the
// wall clock, or messages that have nothing to do with it. naive_test.go says the same
// a second time, as simply as can be, and holds the engine to it.
package tfi
