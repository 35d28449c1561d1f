package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// ErrIncomplete says that no bootstrap can be made; the error that wraps it is
// an [*Error].
var ErrIncomplete = errors.New("no bootstrap can be made")

// Error lists all that is missing. It wraps [ErrIncomplete].
type Error struct {
	Service string
	// Problems with paths in the topology, or "options".
	Problems []topology.Problem
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v for %q:", ErrIncomplete, e.Service)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Unwrap returns [ErrIncomplete].
func (e *Error) Unwrap() error { return ErrIncomplete }

// form is how the gate gets into an Envoy.
type form uint8

const (
	formFull        form = iota // pushed over a native no-op
	formDefaultGate             // pushed over the same gate with an idle plugin
)

// The versions of Envoy that take the gate at all, and from which on without
// help: before, it crashes when V8 starts after its workers.
const (
	major       = 1
	oldestMinor = 36
	fullMinor   = 39
)

func check(t *topology.Topology, service string, o Options) (*topology.Service, form, error) {
	e := &Error{Service: service, Problems: t.Validate()}
	add := func(path, want string) {
		e.Problems = append(e.Problems, topology.Problem{Path: path, Want: want})
	}
	s, ok := t.Service(service)
	if !ok {
		add("services", "there is no service "+strconv.Quote(service)+" with a sidecar, only "+strings.Join(t.Names(), ", "))
		return nil, 0, e
	}
	path := "services"
	for i := range t.Services {
		if &t.Services[i] == s {
			path = fmt.Sprintf("services[%d]", i)
		}
	}
	if s.Kind() != topology.SidecarEnvoy {
		add(path+".sidecar", fmt.Sprintf("%s, or left out: of a %s the configuration is printed by sequencefi tfiproxy config", topology.SidecarEnvoy, s.Kind()))
	}
	if s.App == "" {
		add(path+".app", "is missing: host:port of the application, for a standalone Envoy")
	}
	if s.Inbound == "" {
		add(path+".inbound", "is missing: host:port where the sidecar listens, for a standalone Envoy")
	}
	listens := map[string]string{path + ".inbound": s.Inbound, path + ".admin": s.Admin}
	for i, c := range s.Calls {
		listens[fmt.Sprintf("%s.calls[%d].listen", path, i)] = c.Listen
	}
	for _, at := range slices.Sorted(maps.Keys(listens)) {
		if host, _, err := net.SplitHostPort(listens[at]); err == nil && net.ParseIP(host) == nil {
			add(at, "an IP address: Envoy listens at no name such as "+strconv.Quote(host))
		}
	}
	if t.XDS == "" {
		add("xds", "is missing: host:port of the control plane's xDS server")
	}
	if t.OTLP == "" {
		add("otlp", "is missing: host:port of an OTLP/HTTP server")
	}
	f, err := formOf(o.EnvoyVersion)
	if err != nil {
		add("options", err.Error())
	}
	if f == formDefaultGate && o.Plugin == "" {
		add("options", fmt.Sprintf("the plugin's path: Envoy %s must load it at its start (from %d.%d on it need not)", o.EnvoyVersion, major, fullMinor))
	}
	if len(e.Problems) > 0 {
		return nil, 0, e
	}
	return s, f, nil
}

// formOf says how an Envoy of the version gets the gate.
func formOf(version string) (form, error) {
	if version == "" {
		return formFull, nil
	}
	parts := strings.SplitN(version, ".", 3)
	var n [2]int
	for i := range n {
		var err error
		if i >= len(parts) {
			return 0, fmt.Errorf("an Envoy version as 1.40.0, not %q", version)
		}
		if n[i], err = strconv.Atoi(parts[i]); err != nil {
			return 0, fmt.Errorf("an Envoy version as 1.40.0, not %q", version)
		}
	}
	switch {
	case n[0] > major || n[0] == major && n[1] >= fullMinor:
		return formFull, nil
	case n[0] == major && n[1] >= oldestMinor:
		return formDefaultGate, nil
	}
	return 0, fmt.Errorf("version %d.%d of Envoy or later: %s is not known to work", major, oldestMinor, version)
}
