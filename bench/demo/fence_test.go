package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/ecds"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	"github.com/sequencefi/sequencefi/deploy/process"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// The TTL of the product, and what an Envoy without processor time may add. The
// activations of a campaign outlive both together.
const (
	planeTTL   = 15 * time.Second
	busyMargin = 30 * time.Second
)

// TestPlaneKilled kills the control plane in mid-campaign: every Envoy drops the
// plugin by itself, and other clients notice nothing.
func TestPlaneKilled(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{})
	command, plugin := product(t)
	p, err := process.Start(process.Options{
		Name: "run", Path: command, LogDir: env.logs(),
		Args: []string{"run", env.CampaignFile, "--out", env.Dir, "--plugin", plugin},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), campaignTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, func(ctx context.Context) error {
		n, err := injections(ctx, env)
		if err == nil && n == 0 {
			err = errors.New("no fault yet")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
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
	gone, end := context.WithTimeout(t.Context(), planeTTL+busyMargin)
	defer end()
	if err := env.WaitNoWasm(gone); err != nil {
		t.Errorf("the TTL of %v passed: %v", planeTTL, err)
	}
	t.Logf("no wasm VM %.1f s after the kill", time.Since(killed).Seconds())
	stop()
	if tr := <-traffic; tr.Failed > 0 {
		t.Errorf("%d of %d ordinary requests failed: %v", tr.Failed, tr.Total(), tr.Failures)
	}
	if got := get(t, env.URL, nil); got.status != http.StatusOK || string(got.body) == "null" {
		t.Errorf("afterwards: %d %s", got.status, got.body)
	}
}

var injectionStats = regexp.MustCompile(`sequencefi\.injections\.`)

// injections is the number of faults that the frontend's sidecar has made.
func injections(ctx context.Context, env *Env) (int64, error) {
	stats, err := env.Envoys[frontend].Stats(ctx, injectionStats)
	var total int64
	for _, n := range stats {
		total += n
	}
	return total, err
}

const (
	// lifetime of the activation of TestLifetimes: time enough for two requests and a
	// kill on a machine that is busy with other things.
	lifetime = 12 * time.Second
	// longLifetime is for as long as a test may take.
	longLifetime = campaignTimeout
)

// TestLifetimes has a plane without TTL: after its death the plugin stays, and
// the activation ends by its own lifetime.
func TestLifetimes(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{})
	p, key := startPlane(t, env, lifetime)
	applied := time.Now()
	if status := trialStatus(t, env, key); status != http.StatusInternalServerError {
		t.Fatalf("the fault does not fire: status %d", status)
	}
	p.Kill()
	if status := trialStatus(t, env, key); status != http.StatusInternalServerError {
		t.Errorf("the fault ended with the plane: status %d", status)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for trialStatus(t, env, key) != http.StatusOK {
		if time.Since(applied) > lifetime+busyMargin {
			t.Fatalf("the activation of %v still fires after %v", lifetime, time.Since(applied))
		}
		<-tick.C
	}
	t.Logf("the last fault was %.1f s after the push", time.Since(applied).Seconds())
	vms, err := env.WasmVMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if vms[frontend] == 0 {
		t.Error("the plugin is gone: this was not the lifetime")
	}
}

const (
	// ordinaryDispatches are sent while a trial is awaited, one at a time.
	ordinaryDispatches = 60
	// maxGivenUp of them may be sent again, by errGaveUp.
	maxGivenUp = 10
)

// TestOrdinaryDispatches: while an activation is in force and its trial has not come yet, or
// comes now and then, the requests of others that take the very path of the fault are
// answered as ever, and see nothing of it.
//
// They come one at a time: the Redis that HotROD's driver pretends to have fails every fifth
// look-up, whosever it is, so those that overlap fail by themselves.
func TestOrdinaryDispatches(t *testing.T) {
	slow(t)
	env := startEnv(t, Options{Tap: true, Workers: 2})
	_, key := startPlane(t, env, longLifetime)
	again := 0
	for i := range ordinaryDispatches {
		err := ordinaryDispatch(t.Context(), env.URL, i%2 == 0)
		for ; errors.Is(err, errGaveUp) && again < maxGivenUp; again++ {
			err = ordinaryDispatch(t.Context(), env.URL, i%2 == 0)
		}
		if err != nil {
			t.Errorf("dispatch %d: %v", i+1, err)
		}
		if i%20 == 19 {
			// The policy is in force all the while.
			if status := trialStatus(t, env, key); status != http.StatusInternalServerError {
				t.Fatalf("the fault does not fire: status %d", status)
			}
		}
	}
	t.Logf("%d of %d were sent again: %v", again, ordinaryDispatches, errGaveUp)
	for _, s := range env.Sightings() {
		if s.Header != "x-fic-injected" || s.Times != ordinaryDispatches/20 || s.Where != "outbound "+frontend+" to "+customer {
			t.Errorf("an application saw %v", s)
		}
	}
}

// startPlane starts a control plane without TTL, with one activation that fails the call to
// customer, and returns once that is in force.
func startPlane(t *testing.T, env *Env, lives time.Duration) (*process.Process, [7]byte) {
	t.Helper()
	_, plugin := product(t)
	var key [7]byte
	if _, err := rand.Read(key[:]); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Options{
		Name: "plane", Path: os.Args[0], LogDir: env.logs(),
		Env: []string{
			planeEnv + "=" + env.Dir, "DEMO_TEST_PLUGIN=" + plugin, "DEMO_TEST_KEY=" + hex.EncodeToString(key[:]),
			"DEMO_TEST_LIFETIME=" + lives.String(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), campaignTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, func(context.Context) error {
		if log, _ := p.Log(); !strings.Contains(string(log), planeReady) {
			return errors.New("no policy in force yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p, key
}

// trialStatus sends the request as a trial of the key.
func trialStatus(t *testing.T, env *Env, key [7]byte) int {
	t.Helper()
	random := make([]byte, 15)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	trace := fmt.Sprintf("5f1c%x%x", key, random[:7])
	return get(t, env.URL, http.Header{"Traceparent": {fmt.Sprintf("00-%s-%x-01", trace, random[7:])}}).status
}

const (
	// planeEnv makes the test binary a control plane for the topology in this folder.
	planeEnv   = "DEMO_TEST_PLANE"
	planeReady = "in force"
)

// planeMain is that control plane: it has no TTL, and one activation that fails
// the call to customer in every request.
func planeMain(dir string) int {
	if err := runPlane(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runPlane(dir string) error {
	top, err := topology.Load(filepath.Join(dir, "topology.yaml"))
	if err != nil {
		return err
	}
	key, err := hex.DecodeString(os.Getenv("DEMO_TEST_KEY"))
	if err != nil {
		return err
	}
	lives, err := time.ParseDuration(os.Getenv("DEMO_TEST_LIFETIME"))
	if err != nil {
		return err
	}
	server, err := ecds.New(ecds.Config{
		Module: gate.Module{Filename: os.Getenv("DEMO_TEST_PLUGIN")}, TTL: -1, ConnectGrace: time.Minute,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), campaignTimeout)
	defer cancel()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", top.XDS)
	if err != nil {
		return err
	}
	g := grpc.NewServer(ecds.ServerOptions()...)
	server.Register(g)
	go func() { _ = g.Serve(l) }() // until the process is killed

	activation := &tfiv1.Activation{
		Key: key, Services: top.Names(), Scope: tfiv1.Scope_SCOPE_TRACE, Remaining: durationpb.New(lives),
		Tfics: []*tfiv1.Tfic{{
			Id: "customer-fails",
			Target: &tfiv1.StaticConfiguration{
				Caller: frontend, Callee: customer, Api: "GET /customer", Phase: tfiv1.Phase_PHASE_REQ, K: 1, EnforceK: true,
			},
			Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{HttpStatus: http.StatusServiceUnavailable}}},
		}},
	}
	// The first push loads the plugin, which takes longer than the activation lives.
	for _, live := range [][]*tfiv1.Activation{nil, {activation}} {
		version, err := server.Apply(ctx, campaign.Policies(top, top.Names(), live))
		if err != nil {
			return err
		}
		if err := server.Wait(ctx, version, top.Names()); err != nil {
			return err
		}
	}
	fmt.Println(planeReady)
	select {} // until the process is killed
}
