package bootstrap

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func shop(t *testing.T) *topology.Topology {
	t.Helper()
	top, err := topology.Load("testdata/in/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

var goldens = []struct {
	name, service string
	options       Options
}{
	{name: "web", service: "web", options: Options{Instance: "web-7"}},
	{name: "prices", service: "prices"},
	{name: "web-1.37", service: "web", options: Options{EnvoyVersion: "1.37.0", Plugin: "/opt/sequencefi.wasm"}},
}

func TestBuildGolden(t *testing.T) {
	for _, tc := range goldens {
		t.Run(tc.name, func(t *testing.T) {
			b, err := Build(shop(t), tc.service, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := YAML(b)
			if err != nil {
				t.Fatal(err)
			}
			out := filepath.Join("testdata/out", tc.name+".yaml")
			if *update {
				if err := os.WriteFile(out, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEnvoyAccepts lets the real Envoy check each bootstrap that names no plugin:
// Envoy would load it for that. The demo's campaign on an old Envoy covers those.
func TestEnvoyAccepts(t *testing.T) {
	for _, tc := range goldens {
		if tc.options.Plugin != "" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			path := envoytest.Binary(t, envoy.Version)
			b, err := Build(shop(t), tc.service, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			j, err := JSON(b)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			if err := os.WriteFile(file, j, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), path, "--mode", "validate", "-c", file, "-l", "warning").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "deprecated") {
					t.Errorf("warning: %s", line)
				}
			}
		})
	}
}

func TestBuildErrors(t *testing.T) {
	for _, tc := range []struct {
		name, service string
		edit          func(*topology.Topology)
		options       Options
		want          []string
	}{
		{
			name: "unknown service", service: "bank",
			want: []string{`services: there is no service "bank" with a sidecar, only cart, prices, web`},
		},
		{
			name: "no addresses", service: "cart",
			edit: func(t *topology.Topology) {
				t.Services[1].App, t.Services[1].Inbound, t.XDS, t.OTLP = "", "", "", ""
				t.Services[0].Calls[0].Listen = ""
			},
			want: []string{
				"services[1].app: is missing: host:port of the application, for a standalone Envoy",
				"services[1].inbound: is missing: host:port where the sidecar listens, for a standalone Envoy",
				"xds: is missing: host:port of the control plane's xDS server",
				"otlp: is missing: host:port of an OTLP/HTTP server",
			},
		},
		{
			name: "names to listen at", service: "web",
			edit: func(t *topology.Topology) {
				t.Services[0].Inbound, t.Services[0].Calls[1].Listen = "localhost:1", "web.example:2"
			},
			want: []string{
				`services[0].calls[1].listen: an IP address: Envoy listens at no name such as "web.example"`,
				`services[0].inbound: an IP address: Envoy listens at no name such as "localhost"`,
			},
		},
		{
			name: "another sidecar", service: "cart",
			edit: func(t *topology.Topology) { t.Services[1].Sidecar = topology.SidecarTFIProxy },
			want: []string{"services[1].sidecar: envoy, or left out: of a tfiproxy the configuration is printed by sequencefi tfiproxy config"},
		},
		{
			name: "invalid topology", service: "web",
			edit: func(t *topology.Topology) { t.Services[0].Protocol = "smtp" },
			want: []string{`services[0].protocol: http, http2 or grpc, not "smtp"`},
		},
		{
			name: "old Envoy without a plugin", service: "web", options: Options{EnvoyVersion: "1.36.4"},
			want: []string{"options: the plugin's path: Envoy 1.36.4 must load it at its start (from 1.39 on it need not)"},
		},
		{
			name: "too old", service: "web", options: Options{EnvoyVersion: "1.35.0"},
			want: []string{"options: version 1.36 of Envoy or later: 1.35.0 is not known to work"},
		},
		{
			name: "no version", service: "web", options: Options{EnvoyVersion: "latest"},
			want: []string{`options: an Envoy version as 1.40.0, not "latest"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := shop(t)
			if tc.edit != nil {
				tc.edit(top)
			}
			_, err := Build(top, tc.service, tc.options)
			var incomplete *Error
			if !errors.As(err, &incomplete) || !errors.Is(err, ErrIncomplete) {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, p := range incomplete.Problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// start boots the Envoy beside service until the test ends.
func start(t *testing.T, top *topology.Topology, service string) *envoy.Process {
	t.Helper()
	b, err := Build(top, service, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := top.Service(service)
	return envoytest.Start(t, envoy.Options{Bootstrap: j, Admin: s.Admin, Name: service})
}
