package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/report"
)

// firstTTL is how long a sidecar keeps a policy that it has never confirmed, and more than
// it keeps any other, once nobody renews it. An Envoy counts it from when it has loaded the plugin.
const firstTTL = 30 * time.Second

// patience is how long sidecars may take to confirm that they hold no policy any more.
type patience struct {
	// usual is for all; loading is what those get beyond it that compile the plugin: an
	// Envoy that does takes nothing back before it is done.
	usual, loading time.Duration
}

var usualPatience = patience{usual: 5 * time.Second, loading: firstTTL}

// drain takes all policies away and says what is left where sidecars do not confirm in time.
// It gives up when the command is stopped, unless it was before: the first Ctrl-C ends the
// work and what it pushed, the next one the wait.
func (p *plane) drain() {
	ctx := p.ctx
	if ctx.Err() != nil {
		ctx = context.Background() // a second Ctrl-C kills
	}
	left := p.undrained(ctx, p.patience.usual)
	if loading := p.loading(left); len(loading) > 0 && ctx.Err() == nil {
		fmt.Fprintf(p.stderr, "waiting for %s to finish loading the plugin, so that it can be taken away again (Ctrl-C leaves that to the policies' own lifetime)\n", names(loading))
		left = p.undrained(ctx, p.patience.loading)
	}
	if len(left) > 0 {
		fmt.Fprintf(p.stderr, "%s did not confirm to hold no policy any more: no trial is sent any more, and what they hold ends by itself within %v, or as long after an Envoy that loads the plugin is done with it\n", names(left), firstTTL)
	}
}

// undrained returns the sidecars, as service/instance, that did not confirm in time.
func (p *plane) undrained(ctx context.Context, within time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var pending *ecds.PendingError
	if errors.As(p.server.Drain(ctx), &pending) {
		return pending.Sidecars
	}
	return nil
}

// loading returns those sidecars that load the plugin and have not confirmed a single policy
// yet.
func (p *plane) loading(sidecars []string) []string {
	var out []string
	for _, s := range p.server.Sidecars() {
		name := s.Service + "/" + s.Instance
		if s.Proxy == "envoy" && s.Acked == "" && slices.Contains(sidecars, name) {
			out = append(out, name)
		}
	}
	return out
}

func names(sidecars []string) string { return report.OneLine(strings.Join(sidecars, ", ")) }
