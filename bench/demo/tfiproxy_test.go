package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/deploy/process"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// statuses are HotROD's witnesses whose faults are answers, by any sidecar. Those whose
// faults break a connection depend on which calls went over a new one, since Go's client
// repeats the others: which that are is the application's doing, not a sidecar's.
var statuses = []string{
	"error PHASE_REQ 1", "error PHASE_REQ 10", "error PHASE_REQ 5",
	"error PHASE_RESP 1", "error PHASE_RESP 10", "error PHASE_RESP 5",
}

// checkSame says that a campaign found with these sidecars what it finds with Envoys.
func checkSame(t *testing.T, r *campaignv1.CampaignReport, proxies ...string) {
	t.Helper()
	checkReport(t, r)
	var got []string
	for _, w := range r.GetFindings()[0].GetWitnesses() {
		target := w.GetTfics()[0].GetTarget()
		if w.GetTfics()[0].GetFault().GetError() != nil {
			got = append(got, fmt.Sprintf("error %s %d", target.GetPhase(), target.GetK()))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(statuses, got); diff != "" {
		t.Errorf("witnesses: -with Envoys +got:\n%s", diff)
	}
	var kinds []string
	for _, proxy := range report.Summarise(r).Proxies {
		kind, _, _ := strings.Cut(proxy, " ")
		kinds = append(kinds, kind)
	}
	if diff := cmp.Diff(proxies, kinds); diff != "" {
		t.Errorf("sidecars: -want +got:\n%s", diff)
	}
}

// TestTFIProxyCampaign is the demonstration without Envoy.
func TestTFIProxyCampaign(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Native: everyService, Tap: true})
	if len(env.Envoys) != 0 || len(env.TFIProxies) != 4 {
		t.Fatalf("sidecars: %v %v", env.Envoys, env.TFIProxies)
	}
	checkSame(t, runCampaign(t, env), "tfiproxy")
	noWasm(t, env)
	for _, s := range env.Sightings() {
		// Answers that a fault made say so to the caller that they deceive.
		if s.Header != "x-fic-injected" || !strings.HasPrefix(s.Where, "outbound ") {
			t.Errorf("an application saw %v", s)
		}
	}
	if heads := env.Heads(); heads["inbound "+driver] == 0 || heads["outbound "+frontend+" to "+route] == 0 {
		t.Errorf("the taps saw nothing: %v", heads)
	}
	if got := env.Running(); len(got) != 8 {
		t.Errorf("running: %v", got)
	}
	env.Close()
	if got := env.Running(); len(got) != 0 {
		t.Errorf("left running: %v", got)
	}
}

// TestMixedCampaign has Envoys call TFIProxies, and the other way round.
func TestMixedCampaign(t *testing.T) {
	slow(t)
	for name, native := range map[string][]string{"called": Native["mixed"], "calling": {frontend}} {
		t.Run(name, func(t *testing.T) {
			env := startEnv(t, Options{Native: native})
			checkSame(t, runCampaign(t, env), "envoy", "tfiproxy")
			noWasm(t, env)
		})
	}
}

// startRun starts the product on env and returns in mid-campaign: faults have been made.
func startRun(t *testing.T, env *Env) *process.Process {
	t.Helper()
	command, _ := product(t)
	p, err := process.Start(process.Options{
		Name: "run", Path: command, LogDir: env.logs(), Args: []string{"run", env.CampaignFile, "--out", env.Dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), campaignTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, func(ctx context.Context) error {
		n, err := env.TFIProxies[frontend].Metric(ctx, "sequencefi_injections")
		if err == nil && n == 0 {
			err = errors.New("no fault yet")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTFIProxyPlaneKilled kills the control plane in mid-campaign: every TFIProxy drops
// its policy by itself when its TTL has passed, and other clients notice nothing.
func TestTFIProxyPlaneKilled(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Native: everyService})
	p := startRun(t, env)
	traffic := make(chan *Traffic, 1)
	ordinary, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		tr, err := Ordinary{Clients: 4}.Run(ordinary, env.Topology)
		if err != nil {
			t.Error(err)
		}
		traffic <- tr
	}()
	p.Kill()
	killed := time.Now()
	held, err := env.Held(t.Context())
	if err != nil || len(held) != len(everyService) {
		t.Errorf("right after the kill only %v have a policy: %v", held, err)
	}
	gone, end := context.WithTimeout(t.Context(), planeTTL+busyMargin)
	defer end()
	if err := env.WaitNoWasm(gone); err != nil {
		t.Errorf("the TTL of %v passed: %v", planeTTL, err)
	}
	t.Logf("no policy %.1f s after the kill", time.Since(killed).Seconds())
	for name, sidecar := range env.TFIProxies {
		if n, err := sidecar.Metric(t.Context(), "sequencefi_policies_lapsed"); n != 1 || err != nil {
			t.Errorf("%s: %d policies lapsed, %v", name, n, err)
		}
	}
	stop()
	if tr := <-traffic; tr.Failed > 0 || tr.Total() == 0 {
		t.Errorf("%d of %d ordinary requests failed: %v", tr.Failed, tr.Total(), tr.Failures)
	}
	if got := get(t, env.URL, nil); got.status != http.StatusOK || string(got.body) == "null" {
		t.Errorf("afterwards: %d %s", got.status, got.body)
	}
}

// exitIncomplete is the product's exit code where it was stopped, whatever it had found.
const exitIncomplete = 3

// TestTFIProxyInterrupted stops the product in mid-campaign, as Ctrl-C does: it takes all
// policies away, and not their TTL.
func TestTFIProxyInterrupted(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Native: everyService})
	p := startRun(t, env)
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.ExitCode(); code != exitIncomplete {
		t.Errorf("exit code %d", code)
	}
	if held, err := env.Held(t.Context()); err != nil || len(held) > 0 {
		t.Errorf("%v still have a policy: %v", held, err)
	}
	for name, sidecar := range env.TFIProxies {
		if n, err := sidecar.Metric(t.Context(), "sequencefi_policies_lapsed"); n != 0 || err != nil {
			t.Errorf("%s: %d policies lapsed, %v", name, n, err)
		}
	}
	if _, err := os.Stat(filepath.Join(env.Dir, "report.json")); err != nil {
		t.Errorf("what was found until then is lost: %v", err)
	}
}

func TestSidecarNames(t *testing.T) {
	for want, n := range map[string][2]int{
		"4 Envoys 1.40.0": {4, 0}, "4 TFIProxies": {0, 4}, "3 Envoys 1.40.0 and 1 TFIProxy": {3, 1}, "1 Envoy 1.40.0 and 3 TFIProxies": {1, 3},
	} {
		if got := sidecarNames(n[0], n[1], "1.40.0"); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}

// TestNativeOfNobody names a service that there is not.
func TestNativeOfNobody(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), HotROD: "/bin/true", Envoy: "/bin/true", Native: []string{"redis"}})
	if err == nil || !strings.Contains(err.Error(), `no service "redis"`) {
		t.Errorf("got %v", err)
	}
}
