// Package solver holds what works out where and when a fault is worth making.
//
// Traces of one workload go in. Package trace turns them into events in causal
// order, package replay says what each sidecar could have known at each of them,
// package lineage which sets of faults could change what the client sees, and
// package guard at which moment each fault has to strike. Package search puts
// these together into a session that is fed with results until nothing new can
// be found; package service offers sessions over gRPC, and cmd/solver runs it.
// Package baseline makes the same faults without a sense of time, to compare with.
//
// It is not the data path, and it runs nothing: it sees neither sidecars nor
// answers, only spans and verdicts. All but the service is pure: equal inputs
// give equal candidates, whatever the clocks said.
//
// Read first: [github.com/sequencefi/sequencefi/solver/trace.Trial],
// [github.com/sequencefi/sequencefi/solver/guard.Problem] and
// [github.com/sequencefi/sequencefi/solver/search.Session].
package solver
