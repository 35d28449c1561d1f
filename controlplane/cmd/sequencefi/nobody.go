package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// dialTimeout bounds how long one address is tried: one that refuses says so at once.
const dialTimeout = 500 * time.Millisecond

// shownAddresses bounds how many addresses an error lists.
const shownAddresses = 4

// nobodyListens says that every address of the topology and of the requests refuses
// connections; empty: one does not, or that cannot be told. A sidecar that is out of this
// machine's sight may connect all the same, but then its clients' requests reach it.
func nobodyListens(ctx context.Context, t *topology.Topology, w *campaignv1.Workload) string {
	known, asked := listenAddresses(t), requestAddresses(w)
	if len(known) == 0 || len(asked) == 0 {
		return ""
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, address := range append(slices.Clone(known), asked...) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return ""
		}
	}
	return fmt.Sprintf("nothing listens at any address of the topology (%s): is the system up, and has it these addresses? (--wait says how long to wait for it)",
		report.OneLine(firstOf(known)))
}

// firstOf lists addresses, and says how many are left out.
func firstOf(addresses []string) string {
	shown := strings.Join(addresses[:min(len(addresses), shownAddresses)], ", ")
	if more := len(addresses) - shownAddresses; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// listenAddresses are those at which sidecars and applications listen, each once.
func listenAddresses(t *topology.Topology) []string {
	var all []string
	for _, s := range t.Services {
		all = append(all, s.Inbound, s.App, s.Admin)
		for _, call := range s.Calls {
			all = append(all, call.Listen, call.Address)
		}
	}
	return distinct(all)
}

// requestAddresses are those that the workload's requests go to; none where it has a
// command, which may go anywhere.
func requestAddresses(w *campaignv1.Workload) []string {
	var all []string
	for _, s := range w.GetSteps() {
		if s.GetHttp() == nil {
			return nil
		}
		u, err := url.Parse(s.GetHttp().GetUrl())
		if err != nil || u.Host == "" {
			continue // a captured value stands in it
		}
		port := u.Port()
		switch {
		case port == "" && u.Scheme == "https":
			port = "443"
		case port == "":
			port = "80"
		}
		all = append(all, net.JoinHostPort(u.Hostname(), port))
	}
	return distinct(all)
}

// distinct leaves out what is empty or was there before.
func distinct(all []string) []string {
	var out []string
	for _, one := range all {
		if one != "" && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
