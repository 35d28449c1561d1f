// Package demo is the demonstration's environment: a real application, HotROD,
// whose four services run unmodified as processes of their own, each behind a
// real sidecar: an Envoy with the place for SequenceFI's gate, or a TFIProxy; and
// [Run], which lets the product search it for bugs as a user would.
//
// It knows nothing about HotROD's faults: what a campaign is told is a URL and
// who calls whom. To read first: [Start], [Env] and [Run].
package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/jaeger"
	"github.com/sequencefi/sequencefi/deploy/process"
	"github.com/sequencefi/sequencefi/deploy/tfiproxy"
)

// Options of [Start].
type Options struct {
	// Dir is where everything is written: topology.yaml, campaign.yaml, and logs
	// and bootstraps in Dir/logs. It is made if there is none; required.
	Dir string
	// HotROD and Envoy are the paths of the programs; empty: built or fetched ones.
	HotROD, Envoy string
	// EnvoyVersion is the version of Envoy; empty: [envoy.Version]. One before 1.39
	// needs Plugin, the path of the wasm module.
	EnvoyVersion, Plugin string
	// Native are the services that have a TFIProxy in the place of an Envoy, and
	// TFIProxy is the path of that program.
	Native   []string
	TFIProxy string
	// Jaeger starts a real Jaeger, to which applications and sidecars report.
	Jaeger bool
	// Fetch lets the sidecars fetch the plugin from the control plane over HTTP,
	// instead of reading it from the disk that they share.
	Fetch bool
	// AppOTLP is the OTLP/HTTP address (host:port) to which the applications send
	// their own spans; empty: Jaeger's if there is one, else they record none.
	AppOTLP string
	// Tap puts a listening post between applications and sidecars, which feeds
	// [Env.Sightings] and [Env.Heads].
	Tap bool
	// Entrance lets clients of the frontend in one at a time, in the order in which they
	// came; [Env.URL] goes there. Dispatches that overlap fail by themselves: the Redis
	// that HotROD's driver pretends to have lets every fifth look-up fail, whosever it is,
	// and the driver gives up after three in a row. Who keeps a connection open keeps the
	// others out. The entrance is tapped.
	Entrance bool
	// Workers of each sidecar; 0 means 1.
	Workers int
	// Step is told what is done, in short lines; nil: nobody.
	Step func(line string)
}

// Env is a running environment.
type Env struct {
	// Dir as in Options, absolute.
	Dir string
	// URL is the client's request.
	URL string
	// Topology is what TopologyFile has; CampaignFile names that.
	Topology                   *topology.Topology
	TopologyFile, CampaignFile string
	// Envoys and TFIProxies by service: each has one of them.
	Envoys     map[string]*envoy.Process
	TFIProxies map[string]*tfiproxy.Process
	// Apps by service.
	Apps map[string]*process.Process
	// Jaeger is nil without one.
	Jaeger *jaeger.Jaeger

	taps    []*tap
	closing sync.Once
}

const (
	// readyTimeout bounds the start of a program on a busy machine.
	readyTimeout = 30 * time.Second
	// requestPath is the request that HotROD's own page makes.
	requestPath = "/dispatch?customer=123"
)

// Start brings the environment up: it returns when a request through all the
// sidecars was answered. Nothing is left running if it fails.
//
// Errors: [process.ErrNoTool] and [envoy.ErrNotFound] say how to get what is
// missing; [process.ErrEnded] has the end of a program's log; ctx's.
func Start(ctx context.Context, o Options) (*Env, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	var err error
	if o.HotROD == "" {
		if o.HotROD, err = process.Tool("hotrod", "HOTROD_BINARY"); err != nil {
			return nil, err
		}
	}
	if o.EnvoyVersion == "" {
		o.EnvoyVersion = envoy.Version
	}
	if o.Envoy == "" && len(o.Native) < len(everyService) {
		if o.Envoy, err = envoy.Find(o.EnvoyVersion); err != nil {
			return nil, err
		}
	}
	if o.Plugin != "" {
		// The plane will name it in full, and Envoy knows a module by its path.
		if o.Plugin, err = filepath.Abs(o.Plugin); err != nil {
			return nil, err
		}
	}
	e := &Env{
		Envoys: map[string]*envoy.Process{}, TFIProxies: map[string]*tfiproxy.Process{}, Apps: map[string]*process.Process{},
	}
	if e.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(e.logs(), 0o755); err != nil {
		return nil, err
	}
	if err := e.start(ctx, o); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Env) start(ctx context.Context, o Options) error {
	otlp := ""
	if o.Jaeger {
		o.Step("starting Jaeger")
		var err error
		if e.Jaeger, err = jaeger.Start(ctx, jaeger.Options{Dir: e.logs()}); err != nil {
			return err
		}
		otlp = e.Jaeger.OTLPHTTP
		if o.AppOTLP == "" {
			o.AppOTLP = otlp
		}
	}
	var err error
	if e.Topology, err = hotrodTopology(ctx, otlp, o.Fetch); err != nil {
		return err
	}
	if err := e.makeNative(o.Native); err != nil {
		return err
	}
	apps := e.Topology
	if o.Tap {
		if apps, err = e.startTaps(ctx); err != nil {
			return err
		}
	}
	frontend, _ := e.Topology.Service(frontend)
	entrance := frontend.Inbound
	if o.Entrance {
		if entrance, err = e.startEntrance(ctx, entrance); err != nil {
			return err
		}
	}
	e.URL = "http://" + entrance + requestPath
	if err := e.writeFiles(); err != nil {
		return err
	}
	o.Step("starting HotROD: " + strings.Join(e.Topology.Names(), ", "))
	if err := e.startApps(ctx, o, apps); err != nil {
		return err
	}
	o.Step("starting " + sidecarNames(len(e.Topology.Services)-len(o.Native), len(o.Native), o.EnvoyVersion))
	if err := e.startSidecars(ctx, o); err != nil {
		return err
	}
	o.Step("GET " + e.URL)
	return e.firstRequest(ctx)
}

// Traces is the source of traces as `sequencefi run --traces` wants it; empty:
// the control plane's own.
func (e *Env) Traces() string {
	if e.Jaeger == nil {
		return ""
	}
	return "jaeger://" + e.Jaeger.Query
}

func (e *Env) logs() string { return filepath.Join(e.Dir, "logs") }

// startApps starts the services of apps, which are those of e.Topology where no
// tap stands between.
func (e *Env) startApps(ctx context.Context, o Options, apps *topology.Topology) error {
	for i := range apps.Services {
		s := &apps.Services[i]
		p, err := process.Start(process.Options{
			Name: s.Name, Path: o.HotROD, Args: hotrodArgs(s), Env: hotrodEnv(o.AppOTLP), LogDir: e.logs(),
			// HotROD does nothing on SIGTERM but end.
			Grace: time.Second,
		})
		if err != nil {
			return err
		}
		e.Apps[s.Name] = p
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for name, p := range e.Apps {
		s, _ := apps.Service(name)
		if err := p.WaitReady(ctx, listens(s.App)); err != nil {
			return err
		}
	}
	return nil
}

// firstRequest also lets the applications open their connections.
func (e *Env) firstRequest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL, nil)
	if err != nil {
		return err
	}
	req.Close = true // an entrance lets nobody in before
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("first request: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("first request: %s: %.200s (logs are in %s)", resp.Status, body, e.logs())
	}
	return nil
}

// Close ends every program, sidecars first so that nothing reports into
// nowhere. It may be called more than once.
func (e *Env) Close() {
	e.closing.Do(func() {
		var stops []func()
		for _, p := range e.Envoys {
			stops = append(stops, p.Stop)
		}
		for _, p := range e.TFIProxies {
			stops = append(stops, p.Stop)
		}
		together(stops)
		stops = nil
		for _, p := range e.Apps {
			stops = append(stops, p.Stop)
		}
		together(stops)
		for _, t := range e.taps {
			t.close()
		}
		if e.Jaeger != nil {
			e.Jaeger.Stop()
		}
	})
}

func together(calls []func()) {
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(call)
	}
	wg.Wait()
}

// Running names the programs of the environment that have not ended.
func (e *Env) Running() []string {
	var names []string
	running := func(name string, done <-chan struct{}) {
		select {
		case <-done:
		default:
			names = append(names, name)
		}
	}
	for name, p := range e.Apps {
		running(name, p.Done())
	}
	for name, p := range e.Envoys {
		running("envoy-"+name, p.Done())
	}
	for name, p := range e.TFIProxies {
		running("tfiproxy-"+name, p.Done())
	}
	if e.Jaeger != nil {
		running("jaeger", e.Jaeger.Done())
	}
	slices.Sort(names)
	return names
}
