package demo

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/ecds/gate"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/traces"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// buildPlugin builds the wasm module from the working tree.
func buildPlugin(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sequencefi.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags", "-s -w", "-o", out,
		"github.com/sequencefi/sequencefi/plugin/wasm/cmd/plugin")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, b)
	}
	return out
}

// plane is a control plane in the test's own process.
type plane struct {
	*ecds.Server
	source campaign.Source
}

type fleet struct{ *ecds.Server }

func (f fleet) Sidecars() []campaign.Sidecar {
	var out []campaign.Sidecar
	for _, s := range f.Server.Sidecars() {
		row := campaign.Sidecar{
			Service: s.Service, Instance: s.Instance, Proxy: s.Proxy + " " + s.ProxyVersion,
			Connected: s.Connected, Acked: s.Acked, Refused: s.Refused,
		}
		if s.Nack != nil {
			row.Nack = s.Nack.Message
		}
		out = append(out, row)
	}
	return out
}

func startPlane(t *testing.T, env *Env, config ecds.Config) *plane {
	t.Helper()
	server, err := ecds.New(config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", env.Topology.XDS)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(ecds.ServerOptions()...)
	server.Register(g)
	served := make(chan struct{})
	go func() { _ = g.Serve(l); close(served) }() // ends by Stop
	p := &plane{Server: server}
	t.Cleanup(func() {
		server.Close()
		g.Stop()
		<-served
	})
	if env.Jaeger != nil {
		j, err := traces.OpenJaeger(t.Context(), env.Traces())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() })
		p.source = j
		return p
	}
	store := traces.NewStore(traces.StoreOptions{})
	r, err := traces.Listen(t.Context(), traces.ReceiverOptions{HTTP: env.Topology.OTLP, Sink: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	p.source = store
	return p
}

type logProgress struct{ t *testing.T }

func (l logProgress) Update(u campaign.Update) {
	trial := ""
	if u.Trial != nil {
		trial = u.Trial.GetPurpose() + " " + u.Trial.GetVerdict().String() + " " + u.Trial.GetReason()
		for _, f := range u.Trial.GetTfics() {
			trial += " " + f.GetId()
		}
	}
	l.t.Logf("%6.2fs %-8s %d/%d %s %s", u.Elapsed.Seconds(), u.Stage, u.Done, u.Planned, u.Text, trial)
}

// TestCampaignEmbedded runs the campaign in this process, without the command.
func TestCampaignEmbedded(t *testing.T) {
	env := startEnv(t, Options{Tap: true, Jaeger: os.Getenv("DEMO_JAEGER") != ""})
	p := startPlane(t, env, ecds.Config{Module: gate.Module{Filename: buildPlugin(t)}})
	spec, err := campaignfile.Load(env.CampaignFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := campaign.Run(ctx, campaign.Config{
		Spec: spec, Topology: env.Topology, Plane: p.Server, Fleet: fleet{p.Server}, Source: p.source,
		StartSolver: campaign.Embedded, Progress: logProgress{t}, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := os.Getenv("DEMO_OUT"); out != "" {
		if err := report.Write(out, r); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%+v", report.Summarise(r))
	checkReport(t, r)
	gone, stop := context.WithTimeout(t.Context(), wasmGone)
	defer stop()
	if err := env.WaitNoWasm(gone); err != nil {
		t.Error(err)
	}
	for _, s := range env.Sightings() {
		if s.Header != "x-fic-injected" {
			t.Errorf("an application saw %v", s)
		}
	}
}

// checkReport says what a campaign on HotROD must come to.
func checkReport(t *testing.T, r *campaignv1.CampaignReport) {
	t.Helper()
	for _, f := range r.GetFindings() {
		t.Logf("finding %s: %s (%d witnesses)", f.GetId(), f.GetSignature().GetSummary(), len(f.GetWitnesses()))
	}
	for _, f := range r.GetDegraded() {
		t.Logf("degraded %s: %s (%d witnesses)", f.GetId(), f.GetSignature().GetSummary(), len(f.GetWitnesses()))
	}
}
