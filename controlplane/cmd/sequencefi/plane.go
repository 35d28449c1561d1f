package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/policypoll"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/traces"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// pluginName is the plugin's file name.
const pluginName = "sequencefi.wasm"

// loadTimeout bounds a push. The first one compiles the plugin, which takes an
// idle Envoy 4 s and one on a busy machine much longer.
const loadTimeout = 3 * time.Minute

// planeFlags are the flags of every command that talks with sidecars.
type planeFlags struct {
	topology, plugin, xds, otlp, otlpGRPC, module, policy, policyToken, traces, forward string
	verbose                                                                             bool
	wait                                                                                time.Duration
	// waits: the user said how long.
	waits bool
}

func (f *planeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.topology, "topology", "", "topology `file` (default: the campaign's, or topology.yaml)")
	c.Flags().StringVar(&f.plugin, "plugin", "", "the plugin, "+pluginName+" (default: beside this program, or in bin/)")
	c.Flags().StringVar(&f.xds, "xds", "", "`address` to serve xDS on (default: the topology's, else "+topology.DefaultXDS+")")
	c.Flags().StringVar(&f.otlp, "otlp", "", "`address` to receive OTLP/HTTP on (default: the topology's, else "+topology.DefaultOTLP+")")
	c.Flags().StringVar(&f.otlpGRPC, "otlp-grpc", "", "`address` to receive OTLP/gRPC on as well (default: none)")
	c.Flags().StringVar(&f.module, "module", "", "`address` to serve the plugin on (default: the topology's; none there: nowhere)")
	c.Flags().StringVar(&f.policy, "policy", "", "`address` to serve the polls of TFIProxies on (default: the topology's, else "+topology.DefaultPolicy+"; no TFIProxy there: nowhere)")
	c.Flags().StringVar(&f.policyToken, "policy-token", "", "`file` with the token that TFIProxies show (default: $"+tokenVariable+" or the topology's file)")
	c.Flags().StringVar(&f.traces, "traces", "", "read traces from `jaeger://host:port`, to whose OTLP port the topology's otlp leads")
	c.Flags().StringVar(&f.forward, "forward", "", "send received spans on to this OTLP/HTTP `URL` too")
	c.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "how long to wait for the sidecars to connect, and to come back once lost")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log what the control plane does")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return f.check(c) }
}

// check says which flag can never be right, before anything is started.
func (f *planeFlags) check(c *cobra.Command) error {
	f.waits = c.Flags().Changed("wait")
	if f.wait < 0 {
		return badUsage(c, "--wait must not be negative, not %v", f.wait)
	}
	for _, flag := range []struct{ name, address string }{
		{"xds", f.xds}, {"otlp", f.otlp}, {"otlp-grpc", f.otlpGRPC}, {"module", f.module}, {"policy", f.policy},
	} {
		_, port, err := net.SplitHostPort(flag.address)
		if err == nil {
			_, err = net.DefaultResolver.LookupPort(c.Context(), "tcp", port)
		}
		if flag.address != "" && err != nil {
			return badUsage(c, "--%s must be host:port to listen on, not %q", flag.name, flag.address)
		}
	}
	return nil
}

// plane is a running control plane.
type plane struct {
	server *ecds.Server
	// polls are those of TFIProxies, and tokenAt says where their token is; nil: none.
	polls   *policypoll.Handler
	tokenAt string
	source  campaign.Source
	// ctx of the command, whose end makes closing brief.
	ctx context.Context
	// xds is where it serves xDS; empty: nowhere.
	xds string
	// ports are what it serves HTTP by, by the addresses as they are resolved.
	ports map[string]*port
	// notes say where it listens, for people.
	notes []string
	stops []func()
	log   *slog.Logger // nil: none
	// patience with sidecars that are to give their policies up, and stderr is told of
	// those that do not.
	patience patience
	stderr   io.Writer
}

// startPlane serves xDS and polls, receives or reads traces, and serves the plugin
// where sidecars fetch it. What a topology's sidecars do not need is left out. What it
// started is stopped again by close, or before it returns an error.
func startPlane(ctx context.Context, f planeFlags, t *topology.Topology, stderr io.Writer) (*plane, error) {
	p := &plane{ctx: ctx, ports: map[string]*port{}, patience: usualPatience, stderr: stderr}
	envoys := t.Has(topology.SidecarEnvoy) || f.xds != ""
	if f.verbose {
		p.log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	c := ecds.Config{PollOnly: !envoys, ConnectGrace: f.wait, FirstTTL: firstTTL, Logger: p.log}
	var err error
	if envoys {
		c.Module, err = p.serveModule(ctx, f, t)
	}
	if err == nil {
		err = p.openTraces(ctx, f, t)
	}
	if err == nil {
		if p.server, err = ecds.New(c); err == nil {
			p.stops = append(p.stops, p.server.Close)
		}
	}
	if err == nil && envoys {
		err = p.serveXDS(ctx, f, t)
	}
	if err == nil && (t.Has(topology.SidecarTFIProxy) || f.policy != "") {
		err = p.servePolicies(ctx, f, t)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *plane) serveModule(ctx context.Context, f planeFlags, t *topology.Topology) (gate.Module, error) {
	path, err := findPlugin(f.plugin)
	if err != nil {
		return gate.Module{}, err
	}
	if t.Module == "" {
		return gate.Module{Filename: path}, nil
	}
	file, err := ecds.ReadModule(path)
	if err != nil {
		return gate.Module{}, err
	}
	at, err := p.serve(ctx, "--module", orElse(f.module, t.Module), file.Path(), file)
	if err != nil {
		return gate.Module{}, err
	}
	p.notes = append(p.notes, fmt.Sprintf("plugin at http://%s%s%s", at, file.Path(), reach(at)))
	return file.Source(t.Module, bootstrap.ClusterModule), nil
}

func (p *plane) openTraces(ctx context.Context, f planeFlags, t *topology.Topology) error {
	if f.traces != "" {
		jaeger, err := traces.OpenJaeger(ctx, f.traces)
		if err != nil {
			return err
		}
		p.source = jaeger
		p.stops = append(p.stops, func() { _ = jaeger.Close() })
		p.notes = append(p.notes, "traces from "+f.traces)
		return nil
	}
	store := traces.NewStore(traces.StoreOptions{})
	p.source = store
	p.stops = append(p.stops, func() { _ = store.Close() })
	o := traces.ReceiverOptions{HTTP: orElse(f.otlp, t.OTLP), GRPC: f.otlpGRPC, Sink: store}
	if f.forward != "" {
		forwarder, err := traces.NewForwarder(f.forward)
		if err != nil {
			return err
		}
		o.Forward = forwarder
		p.stops = append(p.stops, func() { _ = forwarder.Close() })
	}
	receiver, err := traces.Listen(ctx, o)
	if err != nil {
		return noListener("--otlp", err)
	}
	p.stops = append(p.stops, func() { _ = receiver.Close() })
	p.notes = append(p.notes, "OTLP/HTTP on "+receiver.HTTPAddr()+reach(receiver.HTTPAddr()))
	if addr := receiver.GRPCAddr(); addr != "" {
		p.notes = append(p.notes, "OTLP/gRPC on "+addr+reach(addr))
	}
	return nil
}

func (p *plane) serveXDS(ctx context.Context, f planeFlags, t *topology.Topology) error {
	l, err := listen(ctx, "--xds", orElse(f.xds, t.XDS))
	if err != nil {
		return err
	}
	g := grpc.NewServer(ecds.ServerOptions()...)
	p.server.Register(g)
	go func() { _ = g.Serve(l) }()
	p.stops = append(p.stops, g.Stop)
	p.xds = l.Addr().String()
	p.notes = append(p.notes, "xDS on "+p.xds+reach(p.xds))
	return nil
}

func (p *plane) servePolicies(ctx context.Context, f planeFlags, t *topology.Topology) error {
	token, where, err := readToken(f.policyToken, t)
	if err != nil {
		return err
	}
	p.tokenAt = where
	p.polls, err = policypoll.New(policypoll.Config{Source: p.server, Token: token, Logger: p.log})
	if err != nil {
		return err
	}
	at, err := p.serve(ctx, "--policy", cmp.Or(f.policy, t.Policy), policypoll.Path, p.polls)
	if err != nil {
		return err
	}
	p.notes = append(p.notes, fmt.Sprintf("policies for TFIProxies on %s, with the token in %s", at, where))
	return nil
}

// close takes all policies away, waits for the sidecars to confirm, and stops
// everything.
func (p *plane) close() {
	if p.server != nil {
		p.drain()
	}
	for i := len(p.stops) - 1; i >= 0; i-- {
		p.stops[i]()
	}
	p.stops, p.server = nil, nil
}

// onPlane does a campaign's work on a control plane of its own, which is gone when it
// returns.
func onPlane[T any](ctx context.Context, a *app, path string, f planeFlags, work func(context.Context, campaign.Config) (T, error)) (T, error) {
	var none T
	spec, t, err := a.load(path, &f)
	if err != nil {
		return none, err
	}
	p, err := startPlane(ctx, f, t, a.stderr)
	if err != nil {
		return none, err
	}
	defer p.close()
	progress := newProgress(a.stderr)
	defer progress.close()
	done, err := work(ctx, p.config(spec, t, f, progress))
	return done, f.unreached(t, err)
}

// config is what all campaigns by this plane have in common.
func (p *plane) config(spec *campaignv1.CampaignSpec, t *topology.Topology, f planeFlags, progress campaign.Progress) campaign.Config {
	c := campaign.Config{
		Spec: spec, Topology: t, Plane: p.server, Fleet: fleet{p}, Source: p.source,
		Progress: progress, Version: version, ReadyTimeout: f.wait, PushTimeout: loadTimeout,
	}
	if !f.waits {
		c.Nobody = func(ctx context.Context) string { return nobodyListens(ctx, t, spec.GetWorkload()) }
	}
	return c
}

// findPlugin returns the absolute path of the plugin: the one named, or the one
// beside this program, or the one that `make plugin` builds.
func findPlugin(named string) (string, error) {
	var tried []string
	if named != "" {
		tried = []string{named}
	} else {
		if self, err := os.Executable(); err == nil {
			tried = append(tried, filepath.Join(filepath.Dir(self), pluginName))
		}
		tried = append(tried, filepath.Join("bin", pluginName))
	}
	for _, path := range tried {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("no plugin at %s: %w (make plugin builds it; --plugin says where it is; only Envoys need it, and a service with sidecar: tfiproxy in the topology has none)", strings.Join(tried, " or "), fs.ErrNotExist)
}

// loadTopology reads the topology that the flags or the campaign name.
func (f *planeFlags) loadTopology(campaignPath string) (*topology.Topology, error) {
	path := orElse(f.topology, campaignPath)
	t, err := topology.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (--topology names another file; sequencefi init writes one)", err)
	}
	return t, err
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
