package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// activation is a key that was given out, and where it is in force.
type activation struct {
	key     workload.Key
	tfics   []*tfiv1.Tfic
	message *tfiv1.Activation
	expires time.Time
	// versions of policies that have it. An event judged by any other did not
	// know of it.
	versions map[string]bool
}

// activations are the keys of a campaign that are in force. Each push replaces what a
// sidecar was told before, so it has all of them again.
type activations struct {
	plane    Plane
	fleet    Fleet
	topology *topology.Topology
	random   io.Reader
	// lifetime of an activation until its run begins, and how long a run may take
	// beyond what its faults delay.
	lifetime, longest time.Duration
	// patience is how long sidecars may take to acknowledge, and comeback how long one that
	// is lost may stay away: one that loads the plugin is busy, and stays connected.
	patience, comeback time.Duration
	// failures of pushes since the last that succeeded.
	failures int
	// watch is told of the version that is waited for; what it returns is called once
	// the wait is over.
	watch func(version string) (stop func())

	involved []string
	live     []*activation
	// spare clean ones, for control runs that must not wait for a push.
	spare []*activation
	// pushed services, those of them included that are involved no more.
	pushed map[string]bool
}

// create makes activations that are not in force yet.
func (s *activations) create(tfics ...[]*tfiv1.Tfic) ([]*activation, error) {
	out := make([]*activation, len(tfics))
	for i, set := range tfics {
		key, err := workload.NewKey(s.random)
		if err != nil {
			return nil, err
		}
		out[i] = &activation{
			key: key, tfics: set,
			message:  &tfiv1.Activation{Key: key[:], Tfics: set, Services: slices.Clone(s.involved)},
			expires:  time.Now().Add(min(valid.MaxRemaining, s.lifetime+s.longest+waitOf(set))),
			versions: make(map[string]bool),
		}
	}
	return out, nil
}

// push puts added activations in force, and waits until they are. Whoever pushes, it is
// ErrPush once too many in a row have failed, or when a service has no usable sidecar and
// none came back: what is left of the campaign would wait for each push as long, in vain.
func (s *activations) push(ctx context.Context, added ...*activation) error {
	err := s.tryPush(ctx, added...)
	if err == nil {
		s.failures = 0
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if s.failures++; s.failures >= maxPushFailures || errors.Is(err, ErrNotReady) {
		return fmt.Errorf("%w: %w", ErrPush, err)
	}
	return err
}

// tryPush pushes once. Activations that were used up or have expired go.
func (s *activations) tryPush(ctx context.Context, added ...*activation) error {
	now := time.Now()
	s.live = append(s.live, added...)
	s.live = slices.DeleteFunc(s.live, func(a *activation) bool { return !a.expires.After(now) })
	messages := make([]*tfiv1.Activation, len(s.live))
	for i, a := range s.live {
		a.message.Remaining = durationpb.New(a.expires.Sub(now))
		messages[i] = a.message
	}
	for _, service := range s.involved {
		s.pushed[service] = true
	}
	version, err := s.plane.Apply(ctx, Policies(s.topology, s.involved, messages))
	if err != nil {
		return fmt.Errorf("push policies: %w", err)
	}
	for _, a := range s.live {
		a.versions[version] = true
	}
	waiting, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	defer s.watch(version)()
	if err := s.await(waiting, version); err != nil {
		return fmt.Errorf("wait for sidecars to take policy %s: %w", version, err)
	}
	return nil
}

// await waits until a version is in force. An Envoy that compiles the plugin answers
// nobody for seconds, on a busy machine long enough to lose its connection: it comes back, and is
// given the policy again.
func (s *activations) await(ctx context.Context, version string) error {
	for again := false; ; {
		err := s.plane.Wait(ctx, version, s.involved)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, notReady(s.fleet.Sidecars(), s.involved))
		}
		if notReady(s.fleet.Sidecars(), s.involved) == nil {
			if again {
				return err
			}
			again = true // it may have come back since
			continue
		}
		if gone := awaitFleet(ctx, s.fleet, s.involved, s.comeback); gone != nil {
			return errors.Join(err, gone)
		}
	}
}

// pushNew makes activations, with spares clean ones beside them, and puts all in force.
func (s *activations) pushNew(ctx context.Context, spares int, tfics ...[]*tfiv1.Tfic) ([]*activation, error) {
	wanted := append(slices.Clone(tfics), make([][]*tfiv1.Tfic, spares)...)
	made, err := s.create(wanted...)
	if err != nil {
		return nil, err
	}
	if err := s.push(ctx, made...); err != nil {
		// What a sidecar that did take it now knows goes with the next push.
		for _, a := range made {
			s.drop(a)
		}
		return nil, err
	}
	s.spare = append(s.spare, made[len(tfics):]...)
	return made[:len(tfics)], nil
}

// clean returns a clean activation in force, a spare one if there is one that will
// live long enough.
func (s *activations) clean(ctx context.Context) (*activation, error) {
	s.spare = slices.DeleteFunc(s.spare, func(a *activation) bool { return s.endangered(a) })
	if len(s.spare) == 0 {
		const batch = 4
		if _, err := s.pushNew(ctx, batch); err != nil {
			return nil, err
		}
	}
	a := s.spare[0]
	s.spare = s.spare[1:]
	return a, nil
}

// endangered says whether an activation might expire before a trial with it ends.
func (s *activations) endangered(a *activation) bool {
	return time.Until(a.expires) < s.longest+waitOf(a.tfics)
}

// drop forgets an activation: the next push takes it away.
func (s *activations) drop(a *activation) {
	s.live = slices.DeleteFunc(s.live, func(other *activation) bool { return other == a })
}

// involve adds services, for activations made from now on.
func (s *activations) involve(services ...string) {
	s.involved = append(s.involved, services...)
	slices.Sort(s.involved)
	s.involved = slices.Compact(s.involved)
}

// retain takes the policies of all but the services named away.
func (s *activations) retain(services []string) {
	var gone []string
	for _, service := range s.involved {
		if !slices.Contains(services, service) {
			gone = append(gone, service)
			delete(s.pushed, service)
		}
	}
	s.involved = slices.DeleteFunc(s.involved, func(service string) bool { return slices.Contains(gone, service) })
	if len(gone) > 0 {
		s.plane.Remove(gone...)
	}
}

// clear takes everything away.
func (s *activations) clear() {
	s.live, s.spare = nil, nil
	if services := slices.Sorted(maps.Keys(s.pushed)); len(services) > 0 {
		s.plane.Remove(services...)
	}
	clear(s.pushed)
}
