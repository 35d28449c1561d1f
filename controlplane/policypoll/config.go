package policypoll

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
)

// ErrTopology says that a topology has not what a native sidecar must know.
var ErrTopology = errors.New("the topology is not enough for a native sidecar")

// ErrFlags says that what is asked for beside the topology cannot be.
var ErrFlags = errors.New("bad flags")

// SidecarConfig is what [NativeConfig] is made of, beside the topology.
type SidecarConfig struct {
	// Instance names the sidecar; empty: it names itself.
	Instance string
	// TokenFile holds the token, on the sidecar's machine.
	TokenFile string
	// Workers bounds the threads that the sidecar runs at once; 0: the machine's CPUs.
	Workers int
	// TransparentInbound and TransparentOutbound are where connections come out that
	// nftables redirects (host:port); none: nothing is redirected. With the former the
	// service's inbound address is the application's own. With the latter a call needs
	// no listen address, and its callee's is an IP address.
	TransparentInbound, TransparentOutbound []string
	// TLS is terminated on inbound ports.
	TLS ServerTLS
	// UpstreamTLS is originated on outbound ports.
	UpstreamTLS ClientTLS
}

// NativeConfig returns the configuration file of TFIProxy for a service of a
// topology (JSON): the same listeners, upstreams and cluster names as a standalone Envoy
// of that topology has, and a policy polled from the plane.
//
// Addresses of the control plane that the topology leaves out are the usual ones. TFIProxy
// itself has read what is returned, but for the files that are named there.
//
// Errors: ErrTopology, with the field path of each thing that is missing or wrong; ErrFlags,
// with the flag of it; both.
func NativeConfig(t *topology.Topology, service string, c SidecarConfig) ([]byte, error) {
	index := slices.IndexFunc(t.Services, func(s topology.Service) bool { return s.Name == service })
	if index < 0 {
		return nil, fmt.Errorf("%w: services: there is no %q, only %s", ErrTopology, service, strings.Join(t.Names(), ", "))
	}
	s, at := &t.Services[index], fmt.Sprintf("services[%d]", index)
	problems := t.Validate()
	need := func(path, address string) string {
		if address == "" { // others have been judged
			problems = append(problems, topology.Problem{Path: path, Want: "is missing: host:port, for a TFIProxy of one's own"})
		}
		return address
	}
	if s.Kind() != topology.SidecarTFIProxy {
		problems = append(problems, topology.Problem{Path: at + ".sidecar", Want: "must be " + topology.SidecarTFIProxy + ", so that the control plane serves its polls"})
	}
	file := configFile{
		Service: service, Instance: c.Instance, Admin: s.Admin, Workers: c.Workers,
		Clusters: map[string]string{bootstrap.ClusterOTLP: cmp.Or(t.OTLP, topology.DefaultOTLP)},
		Policy:   configPolicy{Address: cmp.Or(t.Policy, topology.DefaultPolicy), TokenFile: c.TokenFile},
	}
	problems = append(problems, c.TLS.problems()...)
	problems = append(problems, c.UpstreamTLS.problems(s)...)
	if len(c.TransparentInbound) == 0 {
		file.Inbound = append(file.Inbound, configListener{
			Listen: need(at+".inbound", s.Inbound), Upstream: need(at+".app", s.App), TLS: c.TLS.config(), from: at + ".inbound",
		})
	}
	for _, listen := range c.TransparentInbound {
		file.Inbound = append(file.Inbound, configListener{Listen: listen, Transparent: true, TLS: c.TLS.config(), from: "--transparent-inbound"})
	}
	for i, call := range s.Calls {
		address, path := t.CalleeAddress(call), fmt.Sprintf("%s.calls[%d].address", at, i)
		cluster := cmp.Or(call.Cluster, call.Service)
		switch {
		case call.Listen != "":
			file.Outbound = append(file.Outbound, configListener{
				Listen: call.Listen, Upstream: need(path, address), Cluster: cluster, UpstreamTLS: c.UpstreamTLS.config(call.Service),
				from: fmt.Sprintf("%s.calls[%d].listen", at, i),
			})
		case len(c.TransparentOutbound) == 0: // the application calls it directly, unseen
		case isIP(need(path, address)):
			file.Clusters[cluster] = address
		case address != "":
			problems = append(problems, topology.Problem{Path: path, Want: fmt.Sprintf("must have an IP address, by which a redirected connection is known, not %q", address)})
		}
	}
	for _, listen := range c.TransparentOutbound {
		file.Outbound = append(file.Outbound, configListener{Listen: listen, Transparent: true, UpstreamTLS: c.UpstreamTLS.config(AllServices), from: "--transparent-outbound"})
	}
	if slices.ContainsFunc(problems, func(p topology.Problem) bool { return !isFlag(p.Path) }) {
		return nil, refused(service, problems)
	}
	b, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil, err
	}
	var wrong *config.Error
	if _, err := config.Parse(b); errors.As(err, &wrong) {
		for _, p := range wrong.Problems {
			problem := topology.Problem{Path: file.origin(p.Path, at), Want: p.Want}
			// A flag may be for several ports, and has one problem here.
			if !slices.ContainsFunc(problems, func(x topology.Problem) bool { return x.Path == problem.Path }) {
				problems = append(problems, problem)
			}
		}
	}
	if err := refused(service, problems); err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// isFlag reports whether the path of a problem is that of a flag.
func isFlag(path string) bool { return strings.HasPrefix(path, "--") }

// refused is the error that lists problems; nil: there are none.
func refused(service string, problems []topology.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	var fields, flags strings.Builder
	for _, p := range problems {
		if isFlag(p.Path) {
			flags.WriteString("\n  " + p.String())
		} else {
			fields.WriteString("\n  " + p.String())
		}
	}
	switch {
	case fields.Len() == 0:
		return fmt.Errorf("%w:%s", ErrFlags, flags.String())
	case flags.Len() == 0:
		return fmt.Errorf("%w of %q:%s", ErrTopology, service, fields.String())
	}
	return fmt.Errorf("%w of %q:%s\n%w:%s", ErrTopology, service, fields.String(), ErrFlags, flags.String())
}

// origin is the flag, or the field of the topology's service at a path, from which a field of
// the file comes; else the field itself.
func (f *configFile) origin(field, service string) string {
	switch field {
	case "instance":
		return "--instance"
	case "policy.token_file":
		return "--token-file"
	case "policy.address":
		return "policy"
	case "admin":
		return service + ".admin"
	}
	for name, listeners := range map[string][]configListener{"inbound": f.Inbound, "outbound": f.Outbound} {
		for i, l := range listeners {
			rest, ok := strings.CutPrefix(field, fmt.Sprintf("%s[%d].", name, i))
			switch {
			case !ok:
			case rest == "listen":
				return l.from
			case tlsFlag(rest) != "":
				return tlsFlag(rest)
			}
		}
	}
	return field
}

// isIP reports whether an address (host:port) has no name that must be looked up.
func isIP(address string) bool {
	_, err := netip.ParseAddrPort(address)
	return err == nil
}

// configFile is the part of TFIProxy's configuration that a topology decides.
type configFile struct {
	Service  string            `json:"service"`
	Instance string            `json:"instance,omitempty"`
	Admin    string            `json:"admin,omitempty"`
	Workers  int               `json:"workers,omitempty"`
	Inbound  []configListener  `json:"inbound"`
	Outbound []configListener  `json:"outbound,omitempty"`
	Clusters map[string]string `json:"clusters"`
	Policy   configPolicy      `json:"policy"`
}

type configListener struct {
	Listen      string           `json:"listen"`
	Upstream    string           `json:"upstream,omitempty"`
	Transparent bool             `json:"transparent,omitempty"`
	Cluster     string           `json:"cluster,omitempty"`
	TLS         *configServerTLS `json:"tls,omitempty"`
	UpstreamTLS *configClientTLS `json:"upstream_tls,omitempty"`
	// from is the flag, or the field of the topology, that Listen comes from.
	from string
}

type configPolicy struct {
	Address   string `json:"address"`
	TokenFile string `json:"token_file,omitempty"`
}
