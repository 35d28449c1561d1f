package campaign

import (
	"context"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// loadingBeat is how often a push that loads the plugin is told of while nothing changes:
// an Envoy that compiles it says nothing for seconds.
const loadingBeat = time.Second

// loadingText names the first push for people: what it does there depends on the sidecars.
func (e *env) loadingText() string {
	if e.Topology.Has(topology.SidecarEnvoy) {
		return "loading the plugin into the sidecars"
	}
	return "giving the sidecars their first policy"
}

// showLoading tells progress how many of the sidecars have the first policy, and with it the
// plugin, until the returned function is called. Updates come one at a time: that function
// returns after the last of them.
func (e *env) showLoading(version string) (stop func()) {
	if e.stage != StageLoad {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	services := slices.Clone(e.act.involved)
	go func() {
		defer close(done)
		beat := time.NewTicker(loadingBeat)
		defer beat.Stop()
		for {
			changed := e.Fleet.Changed()
			loaded, all := loadedOf(e.Fleet.Sidecars(), services, version)
			e.update(Update{Done: loaded, Planned: all})
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

// loadedOf counts the connected sidecars of services, and those that have version.
func loadedOf(sidecars []Sidecar, services []string, version string) (loaded, all int) {
	for _, s := range sidecars {
		if !s.Connected || !slices.Contains(services, s.Service) {
			continue
		}
		all++
		if s.Acked == version {
			loaded++
		}
	}
	return loaded, all
}
