package tfiproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// Proxy is one sidecar. Make it with [New], run it once with [Proxy.Run].
type Proxy struct {
	cfg      *Config
	log      *slog.Logger
	start    time.Time
	metrics  metrics
	policies policies
	report   *reporter
	trials   sync.Pool // of *trial
	h2trials sync.Pool // of *h2trial, each with a trial

	listeners []*listener
	admin     net.Listener

	draining atomic.Bool
	drainNow chan struct{} // closed by Drain
	drained  sync.Once
	// cutOff is closed when all connections are cut, for those that wait for a timer.
	cutOff chan struct{}
	// dialing ends with cutOff.
	dialing  context.Context
	stopDial context.CancelFunc

	conns connSet
	// The sweeper's own; see trim.
	counted   int // about how many connections there have been since countedAt
	countedAt time.Duration
	trimmed   int
	trimmedAt time.Duration
	nudged    bool
	// busy counts connections and whatever else must have ended when Run returns.
	busy sync.WaitGroup
}

// New binds the configured ports. Connections are accepted once [Proxy.Run] runs.
// log gets a line for what an operator should know; nil: nobody.
//
// Errors: those of the ports.
func New(c *Config, log *slog.Logger) (*Proxy, error) {
	cfg := *c
	cfg.WithDefaults()
	if cfg.Instance == "" {
		host, _ := os.Hostname() // a name without a host is still a name
		cfg.Instance = host + "-" + strconv.Itoa(os.Getpid())
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{cfg: &cfg, log: log, start: time.Now(), drainNow: make(chan struct{}), cutOff: make(chan struct{})}
	p.dialing, p.stopDial = context.WithCancel(context.Background())
	p.trials.New = func() any { return &trial{proxy: p} }
	p.h2trials.New = func() any { return &h2trial{trial: &trial{proxy: p}} }
	p.report = newReporter(&cfg, &p.metrics, p.start)
	p.policies = policies{
		service: cfg.Service, store: tfi.NewMemory(cfg.Limits.Trials), metrics: &p.metrics,
		report: p.report, log: log, now: p.now,
	}
	p.conns.init()
	var errs []error
	for i := range cfg.Listeners {
		l, err := listen(p, &cfg.Listeners[i], cfg.Path(i))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.listeners = append(p.listeners, l)
	}
	if cfg.Admin != "" {
		var err error
		if p.admin, err = net.Listen("tcp", cfg.Admin); err != nil { //nolint:noctx // at once
			errs = append(errs, fmt.Errorf("admin: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.closePorts()
		p.stopDial()
		return nil, err
	}
	return p, nil
}

func (p *Proxy) closePorts() {
	for _, l := range p.listeners {
		_ = l.tcp.Close() // nothing to lose
	}
	if p.admin != nil {
		_ = p.admin.Close() // nothing to lose
	}
}

// now is the sidecar's monotonic clock.
func (p *Proxy) now() time.Duration { return time.Since(p.start) }

// Addr returns where listener i of the configuration listens.
func (p *Proxy) Addr(i int) net.Addr { return p.listeners[i].tcp.Addr() }

// AdminAddr returns where the admin port listens; nil: nowhere.
func (p *Proxy) AdminAddr() net.Addr {
	if p.admin == nil {
		return nil
	}
	return p.admin.Addr()
}

// Apply puts a serialised policy in force, as a policy source would.
//
// Errors: [tfi.ErrPolicy] and others; then the policy before stays in force.
func (p *Proxy) Apply(policy []byte) error { return p.policies.apply(policy, 0) }

// Drain makes the sidecar stop taking connections and end those it has, each
// after the exchange under way. Run returns when they have ended, or after the
// drain time-out. Further calls do nothing.
func (p *Proxy) Drain() {
	p.drained.Do(func() {
		p.draining.Store(true)
		close(p.drainNow)
	})
}

// Run serves until ctx ends, which ends every connection at once, or until a
// drain is done.
func (p *Proxy) Run(ctx context.Context) error {
	if p.cfg.Workers > 0 {
		runtime.GOMAXPROCS(p.cfg.Workers)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What must outlive the connections: their reports are sent at the end.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var others sync.WaitGroup
	others.Go(func() { p.report.run(background) })
	others.Go(func() { p.follow(ctx) })
	others.Go(func() { p.sweep(background) })
	others.Go(func() { p.watchTLS(ctx) })
	if p.admin != nil {
		others.Go(func() { p.serveAdmin(background) })
	}
	for _, l := range p.listeners {
		p.busy.Go(l.accept)
	}
	ended := make(chan struct{})
	select {
	case <-ctx.Done():
	case <-p.drainNow:
	}
	p.draining.Store(true)
	for _, l := range p.listeners {
		_ = l.tcp.Close() // ends accept
	}
	go func() { p.busy.Wait(); close(ended) }()
	timer := time.NewTimer(p.cfg.Timeouts.Drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
	case <-timer.C:
		p.log.Warn("drain timed out: connections were cut", "connections", p.metrics.open.Load())
	}
	close(p.cutOff)
	p.conns.closeAll() // first, so that whose dialing stops knows why
	p.stopDial()
	<-ended
	cancel()
	stop()
	if p.admin != nil {
		_ = p.admin.Close() // ends serveAdmin
	}
	others.Wait()
	return nil
}

// sweep looks at all connections now and then. One goroutine does what would
// otherwise take a timer a connection, set anew for every message.
func (p *Proxy) sweep(ctx context.Context) {
	t := time.NewTicker(p.cfg.Timeouts.Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			p.policies.tick()
			now := p.now()
			p.trim(p.conns.sweep(now), now)
		}
	}
}

// Bounds of trim.
const (
	trimPeriod = 5 * time.Second
	trimFrom   = 512
)

// trim gives memory back after the number of connections has changed: traffic of no
// trial allocates nothing, so that there would never be a collection. While it changes
// much this is done now and then, and once more when it has settled.
func (p *Proxy) trim(connections int, now time.Duration) {
	if p.nudged { // they have had a tick
		p.nudged = false
		debug.FreeOSMemory()
		return
	}
	if far(connections, p.counted) {
		p.counted, p.countedAt = connections, now
	}
	if now-p.trimmedAt < trimPeriod || max(connections, p.trimmed) < trimFrom {
		return
	}
	much := connections > p.trimmed+p.trimmed/4 || connections < p.trimmed/2
	settled := now-p.countedAt >= trimPeriod && far(connections, p.trimmed)
	if !much && !settled {
		return
	}
	p.trimmed, p.trimmedAt = connections, now
	p.conns.nudge()
	p.nudged = true
}

// far reports whether two numbers of connections differ by more than those do that
// come and go.
func far(a, b int) bool { return max(a, b)-min(a, b) > max(a, b)/64 }
