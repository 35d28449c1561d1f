package ecds

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Wait returns when every connected sidecar of each service has acknowledged the
// policy that Apply returned version for, or a later one. An acknowledgement is a
// hint only: the version in what a sidecar reports is the proof.
//
// Errors: ErrUnknownService; NackError when a sidecar has refused; RefusedError
// when a sidecar cannot be given one; NotConnectedError when a service has had no
// sidecar for the grace period; PendingError when ctx ends first; ErrClosed.
func (s *Server) Wait(ctx context.Context, version string, services []string) error {
	grace := time.NewTimer(s.cfg.ConnectGrace)
	defer grace.Stop()
	complete := false
	for {
		missing, pending, changed, err := s.standing(version, services)
		switch {
		case err != nil:
			return err
		case len(missing) == 0 && len(pending) == 0:
			return nil
		case len(missing) > 0 && complete:
			// One that was there a moment ago gets the time to come back.
			grace.Reset(s.cfg.ConnectGrace)
		}
		complete = len(missing) == 0
		gone := grace.C
		if complete {
			gone = nil
		}
		select {
		case <-changed:
		case <-gone:
			return &NotConnectedError{Services: missing}
		case <-s.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			if len(missing) > 0 {
				return fmt.Errorf("%w (%w)", &NotConnectedError{Services: missing}, ctx.Err())
			}
			return &PendingError{Sidecars: pending, Err: ctx.Err()}
		}
	}
}

// standing says which services have no sidecar and which sidecars have yet to
// answer, with the channel that tells of the next change.
func (s *Server) standing(version string, services []string) (missing, pending []string, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, service := range services {
		e := s.policies.entries[service]
		if e == nil {
			return nil, nil, nil, fmt.Errorf("%w: %q", ErrUnknownService, service)
		}
		connected := false
		for x := range s.sessions {
			if !x.named || x.node.service != service {
				continue
			}
			row := x.snapshot()
			switch {
			case row.Refused != "":
				return nil, nil, nil, &RefusedError{Service: service, Instance: row.Instance, Reason: row.Refused}
			case !x.subscribed:
				continue
			case x.acked == e.version, x.loaded && x.acked > version:
			case x.nacked == e.version && x.retry.IsZero() && x.inFlight == nil:
				return nil, nil, nil, &NackError{Service: service, Instance: row.Instance, Version: e.version, Message: x.reasonOf(e.version)}
			default:
				pending = append(pending, service+"/"+row.Instance)
			}
			connected = true
		}
		if !connected {
			missing = append(missing, service)
		}
	}
	slices.Sort(pending)
	return missing, pending, s.changed, nil
}

// Drain takes all policies away and returns when every connected sidecar has
// confirmed that it holds none.
//
// Errors: PendingError when ctx ends first; ErrClosed.
func (s *Server) Drain(ctx context.Context) error {
	s.Clear()
	for {
		s.mu.Lock()
		var pending []string
		for x := range s.sessions {
			if x.holds != "" || x.inFlight != nil && x.inFlight.kind == whole {
				pending = append(pending, x.node.service+"/"+x.node.instance)
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if len(pending) == 0 {
			return nil
		}
		slices.Sort(pending)
		select {
		case <-changed:
		case <-s.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return &PendingError{Sidecars: pending, Err: ctx.Err()}
		}
	}
}
