package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
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

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (%s names another address)", err, flag)
	}
	return l, nil
}
