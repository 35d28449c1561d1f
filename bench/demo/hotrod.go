package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/process"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// The services of HotROD, which are also its subcommands.
const (
	frontend = "frontend"
	customer = "customer"
	driver   = "driver"
	route    = "route"
)

// callees of the frontend; the others call nobody.
var callees = []string{customer, driver, route}

var everyService = append([]string{frontend}, callees...)

// Native is which services have a TFIProxy: all of them, or, of a mixed mesh, two that
// Envoys call, one by HTTP and one by gRPC.
var Native = map[string][]string{"envoy": nil, "tfiproxy": everyService, "mixed": {driver, route}}

// hotrodTopology puts HotROD on free ports. otlp is where sidecars report;
// empty: to the control plane. fetch: they get the plugin from there, too.
func hotrodTopology(ctx context.Context, otlp string, fetch bool) (*topology.Topology, error) {
	addrs, err := process.FreeAddrs(ctx, 3*len(everyService)+len(callees)+4)
	if err != nil {
		return nil, err
	}
	next := func() string {
		a := addrs[0]
		addrs = addrs[1:]
		return a
	}
	t := &topology.Topology{XDS: next(), OTLP: next(), Module: next(), Policy: next()}
	if !fetch {
		t.Module = ""
	}
	if otlp != "" {
		t.OTLP = otlp
	}
	for _, name := range everyService {
		s := topology.Service{Name: name, App: next(), Inbound: next(), Admin: next(), Protocol: topology.ProtocolHTTP}
		if name == driver {
			s.Protocol = topology.ProtocolGRPC
		}
		if name == frontend {
			for _, callee := range callees {
				s.Calls = append(s.Calls, topology.Call{Service: callee, Listen: next()})
			}
		}
		t.Services = append(t.Services, s)
	}
	return t, nil
}

// hotrodArgs starts one service of HotROD at its own address, and points it to
// its sidecar for those that it calls. The flags that make it quick are its own:
// by default it handles three requests a second.
func hotrodArgs(s *topology.Service) []string {
	args := []string{
		s.Name,
		"--fix-db-query-delay", "1ms",
		"--fix-disable-db-conn-mutex",
		"--fix-route-worker-pool-size", "10",
	}
	at := func(service, address string) {
		host, port, _ := net.SplitHostPort(address) // made by hotrodTopology
		args = append(args, "--"+service+"-service-hostname", host, "--"+service+"-service-port", port)
	}
	at(s.Name, s.App)
	for _, c := range s.Calls {
		at(c.Service, c.Listen)
	}
	return args
}

// hotrodEnv says where HotROD sends its own spans.
func hotrodEnv(otlp string) []string {
	if otlp == "" {
		// Nobody wants them. It still forwards trace context, with the flag "not
		// sampled": sidecars do not go by it.
		return []string{"OTEL_TRACES_SAMPLER=always_off"}
	}
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + otlp}
}

// writeFiles writes what a user would have written: who calls whom, and a URL.
func (e *Env) writeFiles() error {
	e.TopologyFile = filepath.Join(e.Dir, "topology.yaml")
	b, err := e.Topology.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(e.TopologyFile, b, 0o644); err != nil {
		return err
	}
	e.CampaignFile = filepath.Join(e.Dir, "campaign.yaml")
	spec := &campaignv1.CampaignSpec{
		Name:     "demo",
		Topology: filepath.Base(e.TopologyFile),
		Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{{
			Name:   "dispatch",
			Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Method: "GET", Url: e.URL}},
		}}},
	}
	if b, err = campaignfile.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(e.CampaignFile, b, 0o644)
}

func listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("nobody listens yet: %w", err)
		}
		return conn.Close()
	}
}
