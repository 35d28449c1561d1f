package ecds

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// Config of a [Server]. It is read once, by [New].
type Config struct {
	// Module is where sidecars get the plugin from; required but for PollOnly.
	Module gate.Module
	// PollOnly: sidecars that poll are the only ones. There is no plugin, and an Envoy that
	// connects is told so.
	PollOnly bool
	// TTL is how long a sidecar keeps the plugin after it last heard from the
	// plane; 0 means 15 s, and it must be at least 1 s. Negative: for ever, so that
	// only the lifetimes of activations bound a fault; for tests.
	TTL time.Duration
	// FirstTTL replaces TTL until the sidecar has acknowledged its first policy,
	// since loading the plugin takes seconds; 0 means twice TTL, but at least 30 s.
	FirstTTL time.Duration
	// Heartbeat is the time between heartbeats; 0 means a third of TTL.
	Heartbeat time.Duration
	// PushInterval is the least time between two pushes to a sidecar; 0 means a
	// fifteenth of a second. Envoy skips versions when pushed much faster.
	PushInterval time.Duration
	// ModuleRetry is how long the refusal of a remote module that Envoy is still
	// fetching is answered by pushing again; 0 means 30 s.
	ModuleRetry time.Duration
	// ConnectGrace is how long Wait waits for the first sidecar of a service; 0
	// means 5 s.
	ConnectGrace time.Duration
	// Logger gets a line for each connection, refusal and lapse; nil: nobody.
	Logger *slog.Logger
}

// ErrConfig says that a [Config] cannot be used.
var ErrConfig = errors.New("invalid ECDS configuration")

// The defaults of Config.
const (
	defaultTTL          = 15 * time.Second
	minTTL              = time.Second
	minFirstTTL         = 30 * time.Second
	defaultPushInterval = time.Second / 15
	defaultModuleRetry  = 30 * time.Second
	defaultConnectGrace = 5 * time.Second
)

// withDefaults returns c with every zero replaced, or all that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s: %s", ErrConfig, path, fmt.Sprintf(format, args...)))
	}
	if err := c.Module.Validate(); err != nil && !c.PollOnly {
		errs = append(errs, fmt.Errorf("%w: module: %w", ErrConfig, err))
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.TTL > 0 && c.TTL < minTTL {
		bad("ttl", "must be at least %v, or negative for none, is %v", minTTL, c.TTL)
	}
	if c.FirstTTL == 0 {
		c.FirstTTL = max(2*c.TTL, minFirstTTL)
	}
	if c.TTL > 0 && c.FirstTTL < c.TTL {
		bad("first_ttl", "must not be less than ttl (%v), is %v", c.TTL, c.FirstTTL)
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.TTL / 3
	}
	if c.TTL > 0 && (c.Heartbeat <= 0 || c.Heartbeat > c.TTL/2) {
		bad("heartbeat", "must be positive and at most half of ttl (%v), is %v", c.TTL, c.Heartbeat)
	}
	for _, d := range []struct {
		path  string
		value *time.Duration
		def   time.Duration
	}{
		{"push_interval", &c.PushInterval, defaultPushInterval},
		{"module_retry", &c.ModuleRetry, defaultModuleRetry},
		{"connect_grace", &c.ConnectGrace, defaultConnectGrace},
	} {
		if *d.value < 0 {
			bad(d.path, "must not be negative, is %v", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
