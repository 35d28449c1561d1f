package ecds

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of [Server.Wait] and [Server.Drain]; each is wrapped by a type that
// names who.
var (
	// ErrNack says that a sidecar refused a policy.
	ErrNack = errors.New("policy refused by the sidecar")
	// ErrNotConnected says that no sidecar of a service is connected.
	ErrNotConnected = errors.New("no sidecar connected")
	// ErrRefused says that the plane sends a sidecar nothing, for its own safety.
	ErrRefused = errors.New("sidecar cannot be given a policy")
	// ErrPending says that sidecars have not acknowledged in time.
	ErrPending = errors.New("not acknowledged in time")
	// ErrUnknownService says that a service waited for has no policy.
	ErrUnknownService = errors.New("service has no policy")
	// ErrClosed says that the plane is closed.
	ErrClosed = errors.New("control plane closed")
)

// NackError tells which sidecar refused a policy, and why in Envoy's words.
type NackError struct {
	Service, Instance, Version, Message string
}

func (e *NackError) Error() string {
	return fmt.Sprintf("%v: service %q, instance %q, version %s: %s", ErrNack, e.Service, e.Instance, e.Version, e.Message)
}

// Unwrap returns [ErrNack].
func (e *NackError) Unwrap() error { return ErrNack }

// NotConnectedError lists services without a sidecar.
type NotConnectedError struct {
	Services []string
}

func (e *NotConnectedError) Error() string {
	return fmt.Sprintf("%v for %s: is the sidecar running, and does it reach the control plane under the same service name?",
		ErrNotConnected, strings.Join(e.Services, ", "))
}

// Unwrap returns [ErrNotConnected].
func (e *NotConnectedError) Unwrap() error { return ErrNotConnected }

// RefusedError tells why a sidecar gets no policy, and what to do.
type RefusedError struct {
	Service, Instance, Reason string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%v: %s", ErrRefused, e.Reason) }

// Unwrap returns [ErrRefused].
func (e *RefusedError) Unwrap() error { return ErrRefused }

// PendingError lists the sidecars that have not acknowledged yet, as
// "service/instance", and wraps the context's error.
type PendingError struct {
	Sidecars []string
	Err      error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%v by %s: %v", ErrPending, strings.Join(e.Sidecars, ", "), e.Err)
}

// Unwrap returns [ErrPending] and the context's error.
func (e *PendingError) Unwrap() []error { return []error{ErrPending, e.Err} }

var (
	_ error = (*NackError)(nil)
	_ error = (*NotConnectedError)(nil)
	_ error = (*RefusedError)(nil)
	_ error = (*PendingError)(nil)
)
