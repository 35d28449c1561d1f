// Package ecds is the plane that tells sidecars their policies: an xDS server
// for one ECDS resource, the gate with the plugin behind it, and the same policies
// for sidecars that poll, which need neither gate nor plugin ([Server.Poll]; package
// policypoll puts it on HTTP).
//
// Every filter of every Envoy asks for the resource "sequencefi"; which policy
// a stream gets is decided by its xDS node: the service is the metadata entry
// "sequencefi.service" or else node.cluster, the instance is node.id. There is
// one policy a service, and a push goes only to services whose policy changed.
//
// What it guarantees:
//   - The last policy applied always arrives; those before it may be skipped
//     (15 pushes a second to a sidecar, one at a time).
//   - A sidecar that stops hearing from the plane drops the plugin by itself: the
//     resource has a TTL, kept alive by heartbeats.
//   - An activation is never sent once it has expired, and a resource sent later
//     carries only what is left of its lifetime.
//   - A sidecar that the gate would crash never gets it; it is listed with what
//     to do (see [Sidecar].Refused).
//   - A plane that has been told nothing yet takes nothing away: what sidecars
//     hold from the plane before it is left to its TTL until the first Apply,
//     Remove or Clear. So fill the plane first, then serve.
//
// It knows policies, not campaigns. The three things to read first are [Config],
// [Server.Apply] and [Server.Wait].
package ecds
