package demo

import (
	"bytes"
	"context"
	"fmt"
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
	// ordinaryTotal are sent while a campaign runs.
	ordinaryTotal = 20_000
	// beside replays there are fewer clients, to save time.
	besideReplays = 2
	// replays of each witness of a finding, all of which must reproduce it.
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
	for _, name := range []string{"report.html", "junit.xml", "findings/F1.yaml"} {
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
//
// One of the other clients sends the campaign's own request, as fast as it goes: it takes
// turns with the trials.
func TestCampaign(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Tap: true, Entrance: true, Workers: 2})
	others := startOthers(t, env, defaultClients, ordinaryTotal)
	turns := startDispatches(t, env)
	r := runCampaign(t, env)
	turns.stop()
	others.stop(t)
	checkSame(t, r, "envoy")
	// There is one at least after each trial. One of ten may be HotROD's own failure.
	if len(turns.failures) > 0 || turns.right < len(r.GetTrials()) || turns.gaveUp > turns.right/10 {
		t.Errorf("beside %d trials %d dispatches were right, in %d more %v; wrong were: %v",
			len(r.GetTrials()), turns.right, turns.gaveUp, errGaveUp, turns.failures)
	}
	t.Logf("%d dispatches beside %d trials; in %d more %v", turns.right, len(r.GetTrials()), turns.gaveUp, errGaveUp)

	others = startOthers(t, env, besideReplays, 1)
	replay(t, env, len(r.GetFindings()[0].GetWitnesses()))
	others.stop(t)

	injected := false
	for _, s := range env.Sightings() {
		// Answers that a fault made say so to the caller that they deceive.
		made := s.Header == "x-fic-injected" && strings.HasPrefix(s.Where, "outbound ")
		injected = injected || made
		if !made {
			t.Errorf("an application saw %v", s)
		}
	}
	if !injected {
		t.Error("the taps did not even see the answers that faults made")
	}
	noWasm(t, env)
}

// others are clients that take no part in the campaign.
type others struct {
	ended context.CancelFunc
	done  chan struct{}
	// What they have seen; read after done.
	wanted, sent int
	failures     []string
}

// startOthers has ordinary requests sent until stop, and as many as wanted at least. They
// are sent in rounds, so that none is cut off.
func startOthers(t *testing.T, env *Env, clients, wanted int) *others {
	t.Helper()
	ctx, ended := context.WithCancel(t.Context())
	o := &others{ended: ended, done: make(chan struct{}), wanted: wanted}
	go func() {
		defer close(o.done)
		for t.Context().Err() == nil && (ctx.Err() == nil || o.sent < wanted) {
			traffic, err := Ordinary{Clients: clients, Requests: 60 * clients}.Run(t.Context(), env.Topology)
			if err != nil {
				t.Error(err)
				return
			}
			o.sent += traffic.Total()
			o.failures = append(o.failures, traffic.Failures...)
		}
	}()
	// The context of a test ends before this.
	t.Cleanup(func() { <-o.done })
	return o
}

func (o *others) stop(t *testing.T) {
	t.Helper()
	o.ended()
	<-o.done
	if len(o.failures) > 0 || o.sent < o.wanted {
		t.Errorf("%d ordinary requests, want at least %d; wrong were: %v", o.sent, o.wanted, o.failures)
	}
	t.Logf("%d ordinary requests", o.sent)
}

// replay runs every witness of the finding again and again, and wants each of them to
// reproduce it each time.
func replay(t *testing.T, env *Env, witnesses int) {
	t.Helper()
	command, plugin := product(t)
	p, err := process.Start(process.Options{
		Name: "replay", Path: command, LogDir: env.logs(),
		Args: append([]string{"replay", filepath.Join(env.Dir, "findings", "F1.yaml"), "--all", "--times", strconv.Itoa(replays), "--plugin", plugin}, tracesArgs(env)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	code := p.ExitCode()
	log, err := p.Log()
	if err != nil {
		t.Fatal(err)
	}
	each := fmt.Sprintf("reproduced in %d of %d runs", replays, replays)
	if n := strings.Count(string(log), each); code != exitFindings || n != witnesses {
		t.Errorf("replay: exit code %d, %q of %d witnesses, want %d\n%s", code, each, n, witnesses, log)
	}
}

func tracesArgs(env *Env) []string {
	if env.Traces() == "" {
		return nil
	}
	return []string{"--traces", env.Traces()}
}

// noWasm checks that the product took the plugin away when it ended. It waits for less
// than what is left of the TTL then, a heartbeat ago, which would take it away as well.
func noWasm(t *testing.T, env *Env) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), planeTTL*3/5)
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
