package demo

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/deploy/envoy/envoytest"
	"github.com/sequencefi/sequencefi/deploy/jaeger"
	"github.com/sequencefi/sequencefi/deploy/process"
	"github.com/sequencefi/sequencefi/deploy/process/processtest"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

const (
	// ordinaryTotal are sent while a campaign and the replays of its finding run.
	ordinaryTotal = 20_000
	// replays of a finding, all of which must reproduce it.
	replays = 20
	// campaignTimeout is for a busy machine; on an idle one it takes half a minute.
	campaignTimeout = 5 * time.Minute
)

// runCampaign runs the product on env, and reads its report.
func runCampaign(t *testing.T, env *Env) *campaignv1.CampaignReport {
	t.Helper()
	command, plugin := product(t)
	output, err := os.Create(filepath.Join(env.logs(), "run.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	ctx, cancel := context.WithTimeout(t.Context(), campaignTimeout)
	defer cancel()
	out, err := env.campaign(ctx, RunOptions{Options: Options{Plugin: plugin}, Product: command, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(env.Dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.ReadJSON(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.Summarise(r), out.Summary); diff != "" {
		t.Errorf("summary.json: -report.json +summary.json:\n%s", diff)
	}
	for _, name := range []string{"report.html", "junit.xml"} {
		if info, err := os.Stat(filepath.Join(env.Dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%.1f s of search, %.1f s with loading the plugin; %+v", out.Seconds, out.Search.Seconds(), out.Summary)
	return r
}

// checkReport says what a campaign on HotROD must come to: a fault on any of the
// calls to route, in either phase, gives an answer without content, which no
// status shows; every other failure is refused cleanly.
func checkReport(t *testing.T, r *campaignv1.CampaignReport) {
	t.Helper()
	if len(r.GetFindings()) != 1 {
		t.Fatalf("%d findings: %v", len(r.GetFindings()), r.GetFindings())
	}
	finding := r.GetFindings()[0]
	if finding.GetSignature().GetClass() != campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING {
		t.Errorf("class %v", finding.GetSignature().GetClass())
	}
	phases := map[tfiv1.Phase]int{}
	for _, w := range finding.GetWitnesses() {
		phases[w.GetTfics()[0].GetTarget().GetPhase()]++
		if a := w.GetAnswers()[0]; a.GetStatus() != 200 || !bytes.Equal(bytes.TrimSpace(a.GetBody()), []byte("null")) {
			t.Errorf("witness %s: %d %s", w.GetTfics()[0].GetId(), a.GetStatus(), a.GetBody())
		}
	}
	if got := witnessed(finding); !slices.Equal(got, []string{"frontend→route"}) {
		t.Errorf("the finding's faults are on %v", got)
	}
	if phases[tfiv1.Phase_PHASE_REQ] == 0 || phases[tfiv1.Phase_PHASE_RESP] == 0 {
		t.Errorf("witnesses by phase: %v", phases)
	}
	var degraded []string
	for _, d := range r.GetDegraded() {
		if d.GetSignature().GetClass() != campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED {
			t.Errorf("%s: class %v", d.GetId(), d.GetSignature().GetClass())
		}
		for _, w := range d.GetWitnesses() {
			if status := w.GetAnswers()[0].GetStatus(); status != 500 {
				t.Errorf("degraded %s: status %d", w.GetTfics()[0].GetId(), status)
			}
		}
		degraded = append(degraded, witnessed(d)...)
	}
	slices.Sort(degraded)
	if diff := cmp.Diff([]string{"frontend→customer", "frontend→driver"}, slices.Compact(degraded)); diff != "" {
		t.Errorf("degraded: -want +got:\n%s", diff)
	}
	if s := report.Summarise(r); s.Invalid > 0 || !s.Exhausted || s.Fired != s.Trials {
		t.Errorf("%+v: %s", s, r.GetCoverage().GetStatement())
	}
}

// witnessed lists the calls on which a finding's faults were, each once.
func witnessed(f *campaignv1.Finding) []string {
	var calls []string
	for _, w := range f.GetWitnesses() {
		target := w.GetTfics()[0].GetTarget()
		calls = append(calls, target.GetCaller()+"→"+target.GetCallee())
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

// TestCampaign is the demonstration, with everything watched: what other clients
// get, what the applications see, and what stays in the sidecars.
func TestCampaign(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Tap: true, Workers: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan *Traffic, 1)
	go func() {
		traffic, err := Ordinary{Requests: ordinaryTotal}.Run(ctx, env.Topology)
		if err != nil {
			t.Error(err)
		}
		done <- traffic
	}()

	r := runCampaign(t, env)
	checkReport(t, r)
	replay(t, env, r.GetFindings()[0])

	traffic := <-done
	if traffic.Failed > 0 || traffic.Total() != ordinaryTotal {
		t.Errorf("%d of %d ordinary requests failed: %v", traffic.Failed, traffic.Total(), traffic.Failures)
	}
	t.Logf("ordinary: %v %v", traffic.Requests, traffic.Latency)
	for _, s := range env.Sightings() {
		// Answers that a fault made say so to the caller that they deceive.
		if s.Header != "x-fic-injected" || !strings.HasPrefix(s.Where, "outbound ") {
			t.Errorf("an application saw %v", s)
		}
	}
	noWasm(t, env)
}

// replay runs the finding's replay file again and again.
func replay(t *testing.T, env *Env, f *campaignv1.Finding) {
	t.Helper()
	command, plugin := product(t)
	file := filepath.Join(env.Dir, f.GetReplayFile())
	if filepath.IsAbs(f.GetReplayFile()) {
		file = f.GetReplayFile()
	}
	p, err := process.Start(process.Options{
		Name: "replay", Path: command, LogDir: env.logs(),
		Args: append([]string{"replay", file, "--times", strconv.Itoa(replays), "--plugin", plugin}, tracesArgs(env)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if code := p.ExitCode(); code != exitFindings {
		log, _ := p.Log()
		t.Errorf("replay: exit code %d\n%s", code, log)
	}
}

func tracesArgs(env *Env) []string {
	if env.Traces() == "" {
		return nil
	}
	return []string{"--traces", env.Traces()}
}

func noWasm(t *testing.T, env *Env) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wasmGone)
	defer cancel()
	if err := env.WaitNoWasm(ctx); err != nil {
		t.Error(err)
	}
}

// TestCampaignOldEnvoy has an Envoy that must load the plugin at its start.
func TestCampaignOldEnvoy(t *testing.T) {
	slow(t)
	const old = "1.37.0"
	path := envoytest.Binary(t, old)
	_, plugin := product(t)
	env := startEnv(t, Options{Envoy: path, EnvoyVersion: old, Plugin: plugin})
	vms, err := env.WasmVMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if vms[frontend] == 0 {
		t.Error("no wasm VM at the start: the gate would crash this Envoy")
	}
	checkReport(t, runCampaign(t, env))
	if got := env.Running(); len(got) != 8 {
		t.Errorf("running: %v", got)
	}
}

// TestCampaignJaeger gets the same from a real Jaeger, with sidecars that fetch
// the plugin over HTTP.
func TestCampaignJaeger(t *testing.T) {
	slow(t)
	processtest.Binary(t, jaeger.Find)
	env := startEnv(t, Options{Jaeger: true, Fetch: true})
	checkReport(t, runCampaign(t, env))
	noWasm(t, env)
}
