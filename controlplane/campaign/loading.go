package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// loadingBeat is how often a push that loads the plugin is told of while nothing changes:
// an Envoy that compiles it says nothing for seconds.
const loadingBeat = time.Second

// loadingText names the first push for people: what it does there depends on the sidecars.
func (e *env) loadingText() string {
	if len(e.loaders()) > 0 {
		return "loading the plugin into the sidecars"
	}
	return "giving the sidecars their first policy"
}

// loaders are the involved services whose sidecars load the plugin.
func (e *env) loaders() []string {
	return slices.DeleteFunc(slices.Clone(e.act.involved), func(name string) bool {
		s, ok := e.Topology.Service(name)
		return !ok || s.Kind() != topology.SidecarEnvoy
	})
}

// showPush tells progress which services have no sidecar that could take a policy, and of the
// first one, which loads the plugin, how many of those that load it have it, until the returned function is called.
// Updates come one at a time: that function returns after the last of them.
func (e *env) showPush(version string) (stop func()) {
	loading := e.stage == StageLoad
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	services := slices.Clone(e.act.involved)
	counted := e.loaders()
	if len(counted) == 0 {
		counted = services
	}
	go func() {
		defer close(done)
		beat := time.NewTicker(loadingBeat)
		defer beat.Stop()
		said := ""
		for {
			changed := e.Fleet.Changed()
			sidecars := e.Fleet.Sidecars()
			var u Update
			if loading {
				u.Done, u.Planned = loadedOf(sidecars, counted, version)
			}
			if problem := unready(sidecars, services); problem != said {
				if said = problem; problem != "" {
					u.Text, u.Warning = e.waitingText(problem), true
				}
			}
			if loading || u.Warning {
				e.update(u)
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-beat.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waitingText tells people of sidecars that are waited for.
func (e *env) waitingText(problem string) string {
	return fmt.Sprintf("%s: waiting %v at most", problem, e.ReadyTimeout)
}

// unready says in a line which services have no usable sidecar, and why; empty: all have.
func unready(sidecars []Sidecar, services []string) string {
	var e *NotReadyError
	if !errors.As(notReady(sidecars, services), &e) {
		return ""
	}
	return strings.Join(e.Problems, "; ")
}

// loadedOf counts the connected sidecars of services, and those that have version. A service
// without any lacks one.
func loadedOf(sidecars []Sidecar, services []string, version string) (loaded, all int) {
	for _, service := range services {
		connected := 0
		for _, s := range sidecars {
			if !s.Connected || s.Service != service {
				continue
			}
			connected++
			if s.Acked == version {
				loaded++
			}
		}
		all += max(1, connected)
	}
	return loaded, all
}
