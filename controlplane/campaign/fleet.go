package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// nobodyAfter is how long sidecars may be missing altogether before it is asked whether any
// is to be expected.
const nobodyAfter = 2 * time.Second

// ErrNotReady says that a service has no usable sidecar.
var ErrNotReady = errors.New("sidecars are not ready")

// NotReadyError says which services have no usable sidecar, and why.
type NotReadyError struct {
	// Problems, one for each service, sorted.
	Problems []string
	// Connected services, sorted.
	Connected []string
	// Vain says why waiting on would be in vain; empty: all the time there was has passed.
	Vain string
}

// Error lists all of them.
func (e *NotReadyError) Error() string {
	text := fmt.Sprintf("%v:\n  %s", ErrNotReady, strings.Join(e.Problems, "\n  "))
	if e.Vain != "" {
		return text + "\n" + e.Vain
	}
	if len(e.Connected) == 0 {
		return text + "\nno sidecar at all is connected: are the proxies up (or still busy with the plugin of an earlier command: --wait waits longer), and does their bootstrap name this control plane's address (xds in the topology, or policy for TFIProxies)?"
	}
	return text + "\nconnected are: " + strings.Join(e.Connected, ", ")
}

// Unwrap returns [ErrNotReady].
func (e *NotReadyError) Unwrap() error { return ErrNotReady }

// awaitFleet waits until each service has a connected sidecar that takes policies.
func awaitFleet(ctx context.Context, fleet Fleet, services []string, patience time.Duration) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := fleet.Changed()
		problem := notReady(fleet.Sidecars(), services)
		if problem == nil {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			// What is wrong may have changed without any sidecar that is connected.
			return notReady(fleet.Sidecars(), services)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func notReady(sidecars []Sidecar, services []string) error {
	refused := make(map[string]string)
	absent := make(map[string]string)
	usable := make(map[string]bool)
	e := &NotReadyError{}
	for _, s := range sidecars {
		if !s.Connected {
			if s.Refused != "" {
				absent[s.Service] = ": " + s.Refused
			}
			continue
		}
		e.Connected = append(e.Connected, s.Service)
		if s.Refused != "" {
			refused[s.Service] = s.Refused
			continue
		}
		usable[s.Service] = true
	}
	e.Connected = slices.Compact(slices.Sorted(slices.Values(e.Connected)))
	for _, service := range services {
		switch reason, is := refused[service]; {
		case is:
			// One sidecar without the plugin would make trials differ by instance.
			e.Problems = append(e.Problems, service+": "+reason)
		case !usable[service]:
			e.Problems = append(e.Problems, service+": no sidecar is connected"+absent[service])
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	slices.Sort(e.Problems)
	return e
}

// statusOf renders the fleet for reports.
func statusOf(sidecars []Sidecar, services map[string]bool) []*campaignv1.SidecarStatus {
	var out []*campaignv1.SidecarStatus
	for _, s := range sidecars {
		if !services[s.Service] {
			continue
		}
		nack := s.Nack
		if s.Refused != "" {
			nack = s.Refused
		}
		out = append(out, &campaignv1.SidecarStatus{
			Service: s.Service, Instance: s.Instance, Proxy: s.Proxy, PolicyVersion: s.Acked, Nack: nack,
		})
	}
	return out
}

// firstInvolved returns the services that the workload can reach as far as the
// topology tells: those behind the sidecars that its requests go to, or all where that
// cannot be told.
func firstInvolved(spec *campaignv1.Workload, t *topology.Topology) []string {
	entries := make(map[string]bool)
	for _, s := range spec.GetSteps() {
		request := s.GetHttp()
		if request == nil {
			return t.Names() // a command may call anything
		}
		u, err := url.Parse(request.GetUrl())
		if err != nil {
			continue // a `${name}` that stands for a whole URL: its step follows another
		}
		entry := ""
		for _, service := range t.Services {
			if service.Inbound != "" && service.Inbound == u.Host {
				entry = service.Name
			}
		}
		if entry == "" {
			return t.Names()
		}
		entries[entry] = true
	}
	if len(entries) == 0 {
		return t.Names()
	}
	return closure(t, entries)
}

func closure(t *topology.Topology, reached map[string]bool) []string {
	var queue []string
	for name := range reached {
		queue = append(queue, name)
	}
	for len(queue) > 0 {
		s, ok := t.Service(queue[0])
		queue = queue[1:]
		if !ok {
			continue
		}
		for _, call := range s.Calls {
			if _, hasSidecar := t.Service(call.Service); hasSidecar && !reached[call.Service] {
				reached[call.Service] = true
				queue = append(queue, call.Service)
			}
		}
	}
	names := make([]string, 0, len(reached))
	for name := range reached {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
