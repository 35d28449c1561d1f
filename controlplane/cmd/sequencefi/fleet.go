package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/ecds"
)

// fleet shows the plane's sidecars as a campaign wants them, and those that it does not let
// in.
type fleet struct{ *plane }

var (
	_ campaign.Fleet = fleet{}
	_ campaign.Plane = (*ecds.Server)(nil)
)

// Changed implements campaign.Fleet. It does not tell of strangers: nobody waits for them.
func (f fleet) Changed() <-chan struct{} { return f.server.Changed() }

// Sidecars implements campaign.Fleet.
func (f fleet) Sidecars() []campaign.Sidecar {
	var out []campaign.Sidecar
	for _, s := range f.server.Sidecars() {
		one := campaign.Sidecar{
			Service: s.Service, Instance: s.Instance, Proxy: strings.TrimSpace(s.Proxy + " " + s.ProxyVersion),
			Connected: s.Connected, Acked: s.Acked, Refused: s.Refused,
		}
		if s.Nack != nil {
			one.Nack = s.Nack.Message
		}
		out = append(out, one)
	}
	if f.polls == nil {
		return out
	}
	for _, s := range f.polls.Strangers() {
		out = append(out, campaign.Sidecar{
			Service: s.Service, Instance: s.Instance, Proxy: strings.Replace(s.Proxy, "/", " ", 1),
			Refused: fmt.Sprintf("it polls from %s without the token in %s (%s, the last %v ago): its policy.token_file must hold the same",
				s.From, f.tokenAt, count(s.Count, "poll"), time.Since(s.Last).Round(time.Second)),
		})
	}
	return out
}

// stateOf says in a few words what a sidecar is good for.
func stateOf(s campaign.Sidecar) string {
	switch {
	case !s.Connected && s.Refused != "":
		return "not connected: " + s.Refused
	case !s.Connected:
		return "gone"
	case s.Refused != "":
		return "cannot be used: " + s.Refused
	case s.Nack != "":
		return "refused a policy: " + s.Nack
	}
	return "connected"
}
