package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// port is an address at which HTTP is served.
type port struct {
	mux *http.ServeMux
	at  string
}

// serve serves a handler for a path, beside others of the same address, and returns
// where it listens.
func (p *plane) serve(ctx context.Context, flag, address, path string, handler http.Handler) (at string, err error) {
	key := resolved(address)
	if known := p.ports[key]; known != nil {
		known.mux.Handle(path, handler)
		return known.at, nil
	}
	l, err := listen(ctx, flag, address)
	for other := range p.ports {
		if err != nil && portOf(other) == portOf(key) {
			err = fmt.Errorf("%w, or the very address of %s, whose port it can share", err, other)
		}
	}
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	p.stops = append(p.stops, func() { _ = server.Close() })
	p.ports[key] = &port{mux: mux, at: l.Addr().String()}
	return p.ports[key].at, nil
}

// resolved is an address as others are compared with it, since localhost:80 is 127.0.0.1:80.
func resolved(address string) string {
	if at, err := net.ResolveTCPAddr("tcp", address); err == nil {
		return at.String()
	}
	return address // listening says what is wrong with it
}

func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return port
}

// reach warns of an address that others than this machine's processes can reach: the
// ports ask nobody who they are. Who speaks xDS learns activation keys, and who speaks
// OTLP can report what never happened.
func reach(address string) string {
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Unmap().IsLoopback() {
		return ""
	}
	return " (not only for this machine, and without authentication: let nobody but sidecars reach it)"
}

// noListener says why an address cannot be had. One in use is mostly another command's, and
// then another address leads astray: the sidecars know the one of the topology only.
func noListener(flag string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another sequencefi is probably running: let it end, or stop it (%s names another address, but sidecars keep to the topology's)", err, flag)
	}
	return fmt.Errorf("%w (%s names another address)", err, flag)
}

// elsewhere says that sidecars look for the control plane where it is not, since a flag names
// another port than the topology; empty: the ports agree, or the flag is not given.
func elsewhere(flag, here, what, there string) string {
	if here == "" || portOf(here) == portOf(there) {
		return ""
	}
	return fmt.Sprintf("by the topology, sidecars %s %s, but %s has this command listen at %s: leave it out, or start the sidecars with a topology that names it", what, there, flag, here)
}

// unreached puts first what explains that no sidecar at all has connected, or reported.
func (f *planeFlags) unreached(t *topology.Topology, err error) error {
	if why := f.unheard(t); why != "" && errors.Is(err, campaign.ErrSilent) {
		return fmt.Errorf("%s\n%w", why, err)
	}
	var missing *campaign.NotReadyError
	if !errors.As(err, &missing) || len(missing.Connected) > 0 || missing.Vain != "" {
		return err
	}
	var told []string
	if t.Has(topology.SidecarEnvoy) {
		told = append(told, elsewhere("--xds", f.xds, "connect to", t.XDS))
	}
	if t.Has(topology.SidecarTFIProxy) {
		told = append(told, elsewhere("--policy", f.policy, "ask for policies at", t.Policy))
	}
	for _, text := range slices.Backward(told) {
		if text != "" {
			err = fmt.Errorf("%s\n%w", text, err)
		}
	}
	return err
}

// unreported explains that no sidecar has reported anything; empty: nothing does.
func (f *planeFlags) unreported(t *topology.Topology, c *campaign.Checked) string {
	if slices.ContainsFunc(c.Edges, func(e campaign.Edge) bool { return e.Calls > 0 }) {
		return ""
	}
	return f.unheard(t)
}

// unheard says that sidecars report to where this command does not listen; empty: they do
// not, as far as flags tell.
func (f *planeFlags) unheard(t *topology.Topology) string {
	if f.traces != "" {
		return ""
	}
	return elsewhere("--otlp", f.otlp, "report to", t.OTLP)
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, noListener(flag, err)
	}
	return l, nil
}
