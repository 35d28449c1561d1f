package tfi

import (
	"errors"
	"time"
)

// ErrTableFull says that a [Store] has no room for one more trial: the trial is
// not active at this sidecar, which is counted and reported.
var ErrTableFull = errors.New("trial table full")

// StateID names the state of a trial, or with scope trace that of one trace in it.
type StateID struct {
	Key   Key
	Trace [16]byte // zero unless the activation's scope is trace
}

// Updater is one atomic step on a trial's state.
type Updater interface {
	// Apply changes s. A store may call it again on a fresh s when another worker
	// was faster; what it writes elsewhere must be overwritten then.
	Apply(s *State)
}

// Timed is an [Updater] that tells the time on the sidecar's monotonic clock, so
// that a store without a clock can throw away what has expired. The engine's do.
type Timed interface {
	Now() time.Duration
}

// Store keeps the trial states of one sidecar, shared by its workers.
type Store interface {
	// Update applies u to the state of id, which it creates if there is none.
	// Errors: ErrTableFull; anything else is an internal error, and the message is
	// forwarded untouched.
	Update(id StateID, u Updater) error
}
