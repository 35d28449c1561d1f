package policypoll

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// AllServices in [ClientTLS] stands for every service that is called.
const AllServices = "*"

// ServerTLS is how a sidecar's inbound ports terminate TLS, by files on its machine.
type ServerTLS struct {
	// Cert and Key are PEM files; empty: there is no TLS.
	Cert, Key string
	// ClientCA is a PEM file of those who may sign clients' certificates; empty: clients
	// need none.
	ClientCA string
	// ALPN is what clients are offered, of "h2" and "http/1.1"; empty: both.
	ALPN []string
}

// ClientTLS is how a sidecar's outbound ports speak TLS, by files on its machine.
type ClientTLS struct {
	// Services are those that are called so, as NAME, or as NAME=HOST if their certificates
	// are made out to another host than their address has. [AllServices] is all of
	// them, and transparent ports too. None: there is no TLS.
	Services []string
	// CA is a PEM file of those who may sign their certificates; empty: the host's.
	CA string
	// Cert and Key are PEM files with the sidecar's own certificate; empty: it has none.
	Cert, Key string
}

type configServerTLS struct {
	Cert     string   `json:"cert"`
	Key      string   `json:"key"`
	ClientCA string   `json:"client_ca,omitempty"`
	ALPN     []string `json:"alpn,omitempty"`
}

type configClientTLS struct {
	CA         string `json:"ca,omitempty"`
	ServerName string `json:"server_name,omitempty"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
}

// upstreamPair is the flags that go together.
const upstreamPair = "--upstream-cert, --upstream-key"

// tlsFlag is the flag that a listener's field of TLS comes from; empty: there is none.
func tlsFlag(field string) string {
	field, _, _ = strings.Cut(field, "[") // an item of a list
	return map[string]string{
		"tls.cert": "--tls-cert", "tls.key": "--tls-key", "tls.client_ca": "--tls-client-ca", "tls.alpn": "--tls-alpn",
		"upstream_tls":    upstreamPair,
		"upstream_tls.ca": "--upstream-ca", "upstream_tls.server_name": "--upstream-tls",
		"upstream_tls.cert": "--upstream-cert", "upstream_tls.key": "--upstream-key",
	}[field]
}

func (s *ServerTLS) problems() []topology.Problem {
	if s.Cert == "" && (s.Key != "" || s.ClientCA != "" || len(s.ALPN) > 0) {
		return []topology.Problem{{Path: "--tls-cert", Want: "is missing, without which there is no TLS on inbound ports"}}
	}
	if s.Cert != "" && s.Key == "" {
		return []topology.Problem{{Path: "--tls-key", Want: "is missing, the key of --tls-cert"}}
	}
	return nil
}

func (s *ServerTLS) config() *configServerTLS {
	if s.Cert == "" {
		return nil
	}
	return &configServerTLS{Cert: s.Cert, Key: s.Key, ClientCA: s.ClientCA, ALPN: s.ALPN}
}

func (s *ClientTLS) problems(caller *topology.Service) []topology.Problem {
	const flag = "--upstream-tls"
	var problems []topology.Problem
	if len(s.Services) == 0 && (s.CA != "" || s.Cert != "" || s.Key != "") {
		problems = append(problems, topology.Problem{Path: flag, Want: "is missing, without which there is no TLS on outbound ports"})
	}
	if (s.Cert == "") != (s.Key == "") {
		problems = append(problems, topology.Problem{Path: upstreamPair, Want: "must both be there, or neither"})
	}
	hosts := map[string]string{}
	for _, entry := range s.Services {
		name, host, named := strings.Cut(entry, "=")
		earlier, again := hosts[name]
		hosts[name] = host
		switch {
		case again && earlier != host:
			problems = append(problems, topology.Problem{Path: flag, Want: fmt.Sprintf("must say once what certificate %s has, not both %q and %q", name, joinHost(name, earlier), entry)})
		case named && (host == "" || name == AllServices):
			problems = append(problems, topology.Problem{Path: flag, Want: fmt.Sprintf("must be NAME, NAME=HOST or %s, not %q", AllServices, entry)})
		case name != AllServices && !slices.ContainsFunc(caller.Calls, func(c topology.Call) bool { return c.Service == name && c.Listen != "" }):
			problems = append(problems, topology.Problem{Path: flag, Want: fmt.Sprintf("must name a service that %s calls at a listen address, not %q", caller.Name, name)})
		}
	}
	return problems
}

// joinHost is an entry of Services.
func joinHost(name, host string) string {
	if host == "" {
		return name
	}
	return name + "=" + host
}

// config is that of the port towards a service; nil: it is plain.
func (s *ClientTLS) config(service string) *configClientTLS {
	var c *configClientTLS
	for _, entry := range s.Services {
		name, host, _ := strings.Cut(entry, "=")
		if name == service || name == AllServices && c == nil {
			c = &configClientTLS{CA: s.CA, ServerName: host, Cert: s.Cert, Key: s.Key}
		}
	}
	return c
}
