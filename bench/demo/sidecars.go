package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/policypoll"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/tfiproxy"
)

// makeNative gives the services named a TFIProxy, as a user would in the topology.
func (e *Env) makeNative(names []string) error {
	if len(names) == 0 {
		e.Topology.Policy = ""
		return nil
	}
	for _, name := range names {
		s, ok := e.Topology.Service(name)
		if !ok {
			return fmt.Errorf("no service %q: there are %s", name, strings.Join(e.Topology.Names(), ", "))
		}
		s.Sidecar = topology.SidecarTFIProxy
	}
	e.Topology.PolicyToken = filepath.Join(e.Dir, topology.DefaultPolicyToken)
	return os.WriteFile(e.Topology.PolicyToken, []byte(rand.Text()+"\n"), 0o600)
}

// sidecarNames says how many of each kind there are.
func sidecarNames(envoys, natives int, version string) string {
	var names []string
	add := func(n int, one, more string) {
		switch {
		case n == 1:
			names = append(names, "1 "+one)
		case n > 1:
			names = append(names, fmt.Sprintf("%d %s", n, more))
		}
	}
	add(envoys, "Envoy "+version, "Envoys "+version)
	add(natives, "TFIProxy", "TFIProxies")
	return strings.Join(names, " and ")
}

func (e *Env) startSidecars(ctx context.Context, o Options) error {
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	for i := range e.Topology.Services {
		s := &e.Topology.Services[i]
		g.Go(func() error {
			if s.Kind() == topology.SidecarTFIProxy {
				p, err := e.startTFIProxy(gctx, o, s)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				e.TFIProxies[s.Name] = p
				return nil
			}
			p, err := e.startEnvoy(gctx, o, s)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			e.Envoys[s.Name] = p
			return nil
		})
	}
	return g.Wait()
}

func (e *Env) startTFIProxy(ctx context.Context, o Options, s *topology.Service) (*tfiproxy.Process, error) {
	config, err := policypoll.NativeConfig(e.Topology, s.Name, policypoll.SidecarConfig{
		Instance: s.Name + "-1", TokenFile: e.Topology.PolicyToken, Workers: max(1, o.Workers),
	})
	if err != nil {
		return nil, err
	}
	return tfiproxy.Start(ctx, tfiproxy.Options{
		Path: o.TFIProxy, Config: config, Admin: s.Admin, Dir: e.logs(), Name: "tfiproxy-" + s.Name,
	})
}

func (e *Env) startEnvoy(ctx context.Context, o Options, s *topology.Service) (*envoy.Process, error) {
	boot, err := bootstrap.Build(e.Topology, s.Name, bootstrap.Options{EnvoyVersion: o.EnvoyVersion, Plugin: o.Plugin})
	if err != nil {
		return nil, err
	}
	j, err := bootstrap.JSON(boot)
	if err != nil {
		return nil, err
	}
	return envoy.Start(ctx, envoy.Options{
		Path: o.Envoy, Bootstrap: j, Admin: s.Admin, Concurrency: o.Workers, Dir: e.logs(), Name: "envoy-" + s.Name,
	})
}

// WasmVMs returns the number of wasm VMs of each Envoy.
func (e *Env) WasmVMs(ctx context.Context) (map[string]int, error) {
	vms := map[string]int{}
	for name, p := range e.Envoys {
		n, err := p.VMs(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		vms[name] = int(n)
	}
	return vms, nil
}

// Held returns the services whose TFIProxy has a policy, sorted.
func (e *Env) Held(ctx context.Context) ([]string, error) {
	var held []string
	for name, p := range e.TFIProxies {
		version, err := p.Policy(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if version != "" {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held, nil
}

var errNotIdle = errors.New("some sidecar has not given up what it was told")

// WaitNoWasm returns once no Envoy has a wasm VM, and no TFIProxy a policy.
//
// Errors: ctx's, with what each still has.
func (e *Env) WaitNoWasm(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		vms, err := e.WasmVMs(ctx)
		if err != nil {
			return err
		}
		held, err := e.Held(ctx)
		if err != nil {
			return err
		}
		if idleVMs(vms) == 0 && len(held) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: wasm VMs %v, TFIProxies with a policy %v: %w", errNotIdle, vms, held, ctx.Err())
		case <-tick.C:
		}
	}
}

// idleText says what [Env.WaitNoWasm] waits for.
func (e *Env) idleText() string {
	if len(e.TFIProxies) == 0 {
		return "no Envoy has a wasm VM"
	}
	return "no sidecar has a policy"
}
