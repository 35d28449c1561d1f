// Package config is what a TFIProxy is told: the form of its configuration file, read by a pure
// function. It is a package of its own so that those who write such files, as the control
// plane does, can have them read without linking the proxy.
//
// Read first: [Config], [Parse].
package config

import (
	"fmt"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// Config says what one sidecar does; [Parse] makes it of a file. It is not
// changed after that.
type Config struct {
	// Service is the service that the sidecar stands beside; required.
	Service string
	// Version of this program, for the control plane's lists; it may be empty.
	Version string
	// Instance names this sidecar to the control plane; the default is the host's
	// name and the process id.
	Instance string
	// Admin is where the admin port listens (host:port); empty: nowhere.
	Admin string
	// Profiles puts /debug/pprof/ on the admin port.
	Profiles bool
	// Workers bounds the threads that run at once; 0: the machine's number of CPUs.
	Workers int
	// Listeners, at least one.
	Listeners []Listener
	// Clusters are further addresses by name: where a policy's reports go.
	Clusters map[string]string
	Policy   PolicySource
	Limits   Limits
	Timeouts Timeouts
}

// Listener is one port of the sidecar.
type Listener struct {
	// Role is RoleServer for inbound, in front of the application, and RoleClient for
	// outbound, towards another service.
	Role tfi.Role
	// Listen is the address to listen on (host:port).
	Listen string
	// Upstream is where connections go (host:port); empty: where they were going
	// before nftables redirected them here (SO_ORIGINAL_DST).
	Upstream string
	// Cluster is the name by which a policy's peers know the upstream; outbound only.
	// A redirected connection has the name of the cluster with its address, or
	// else the address.
	Cluster string
	// TLS terminates TLS; nil: what clients encrypt passes through as bytes.
	TLS *ServerTLS
	// UpstreamTLS originates TLS towards the upstream; nil: bytes go as they are. What
	// clients have encrypted themselves, and nobody terminates here, is not encrypted again.
	UpstreamTLS *ClientTLS
}

// ServerTLS terminates TLS on a listener.
type ServerTLS struct {
	// Cert and Key are PEM files; both are required. Cert may hold a whole chain.
	Cert, Key string
	// ClientCA is a PEM file of those that may sign clients' certificates; empty:
	// clients need none.
	ClientCA string
	// ALPN are the protocols that are offered, "h2" and "http/1.1"; both by default.
	// Nothing is translated, so the upstream must speak them.
	ALPN []string
}

// ClientTLS originates TLS towards an upstream.
type ClientTLS struct {
	// CA is a PEM file of those that may sign the upstream's certificate; empty: the
	// host's.
	CA string
	// ServerName is what the certificate must be made out to; empty: the upstream's host.
	ServerName string
	// Cert and Key are PEM files of the sidecar's own certificate; empty: none.
	Cert, Key string
	// Insecure takes any certificate.
	Insecure bool
}

// PolicySource says where the policy comes from: a file, a control plane, or
// neither.
type PolicySource struct {
	// File is a serialised sequencefi.tfi.v1.Policy, read again whenever it changes.
	File string
	// Address of the control plane's policy port (host:port).
	Address string
	// TokenFile holds the token that the control plane asks for.
	TokenFile string
	// TTL is how long a policy is kept after the control plane was last heard of,
	// where the plane does not say; 15 s.
	TTL time.Duration
}

// Limits bound what peers may cost. Defaults are filled in.
type Limits struct {
	// Connections of one listener; 65,536. One more is closed at once.
	Connections int
	// HeadBytes of one head, or of one HTTP/2 header block; 60 KiB.
	HeadBytes int
	// Streams of one HTTP/2 connection that may be open at once, whatever the
	// upstream allows; 1,000.
	Streams int
	// Trials that may be active at once; 4,096.
	Trials int
}

// Timeouts bound how long peers may take. Defaults are filled in.
type Timeouts struct {
	// Connect to an upstream; 5 s.
	Connect time.Duration
	// Head is for a whole request head, from its first byte; 30 s.
	Head time.Duration
	// Idle is for the next request on a connection; 1 h, longer than applications
	// have, so that theirs decides.
	Idle time.Duration
	// Stall is for a body or a tunnel in which no byte moves; 5 min for bodies.
	// Tunnels and answers that have not begun are never cut: an application may think.
	Stall time.Duration
	// Hold is how long an answer may take that a fault keeps back; 5 s.
	Hold time.Duration
	// Drain is how long connections may go on after SIGTERM; 10 s.
	Drain time.Duration
	// Tick is how often connections are looked at, and so how exact all of the
	// above but Connect and Hold are; 250 ms.
	Tick time.Duration
}

// MaxHeadBytes bounds [Limits]'s HeadBytes: the largest buffer of the proxy has room for no more.
const MaxHeadBytes = 64 << 10

// WithDefaults fills in what is 0 and has a default.
func (c *Config) WithDefaults() {
	for _, f := range []struct {
		value *int
		or    int
	}{
		{&c.Limits.Connections, 1 << 16},
		{&c.Limits.HeadBytes, 60 << 10},
		{&c.Limits.Streams, 1000},
		{&c.Limits.Trials, 4096},
	} {
		if *f.value == 0 {
			*f.value = f.or
		}
	}
	for _, f := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&c.Policy.TTL, 15 * time.Second},
		{&c.Timeouts.Connect, 5 * time.Second},
		{&c.Timeouts.Head, 30 * time.Second},
		{&c.Timeouts.Idle, time.Hour},
		{&c.Timeouts.Stall, 5 * time.Minute},
		{&c.Timeouts.Hold, 5 * time.Second},
		{&c.Timeouts.Drain, 10 * time.Second},
		{&c.Timeouts.Tick, 250 * time.Millisecond},
	} {
		if *f.value == 0 {
			*f.value = f.or
		}
	}
}

// Path is where listener i stands in a configuration file.
func (c *Config) Path(i int) string {
	role, n := c.Listeners[i].Role, 0
	for _, l := range c.Listeners[:i] {
		if l.Role == role {
			n++
		}
	}
	if role == tfi.RoleServer {
		return fmt.Sprintf("inbound[%d]", n)
	}
	return fmt.Sprintf("outbound[%d]", n)
}
