package campaign

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config of a campaign on a mesh, with waits that fit a mesh in one process.
func (m *mesh) config(spec *campaignv1.CampaignSpec) Config {
	return Config{
		Spec: spec, Topology: m.topology, Plane: m, Fleet: m, Source: meshSource{m.store}, StartSolver: Embedded,
		ReadyTimeout: 2 * time.Second, ReportTimeout: 3 * time.Second,
		MinQuiet: 10 * time.Millisecond, CleanQuiet: 15 * time.Millisecond,
		Progress: &logged{t: m.t},
	}
}

// logged writes progress into the test's log.
type logged struct {
	t       *testing.T
	updates []Update
}

func (l *logged) Update(u Update) {
	l.updates = append(l.updates, u)
	switch {
	case u.Text != "":
		l.t.Logf("%s: %s", u.Stage, u.Text)
	case u.Trial != nil:
		l.t.Logf("%s %s %s %s: %s %s", u.Stage, u.Trial.GetPurpose(), ids(u.Trial), u.Trial.GetVerdict(), u.Trial.GetSignature().GetSummary(), u.Trial.GetReason())
	}
}

func ids(t *campaignv1.Trial) string {
	var out []string
	for _, tfic := range t.GetTfics() {
		out = append(out, tfic.GetId())
	}
	return strings.Join(out, "+")
}

func spec(steps ...*campaignv1.Step) *campaignv1.CampaignSpec {
	return &campaignv1.CampaignSpec{
		Name: "test", Workload: &campaignv1.Workload{Steps: steps},
		Budget: &campaignv1.Budget{CleanRuns: 3, Duration: durationpb.New(time.Minute)},
	}
}

func fetch(method, url string) *campaignv1.Step {
	return &campaignv1.Step{Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Method: method, Url: url}}}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func plain(w http.ResponseWriter, _ *http.Request, _ caller) { reply(w, map[string]int{"n": 1}) }

// dispatch is a service that asks one, then another, then a third several times at
// once; it hides a failure of the third behind a 200.
func dispatch(w http.ResponseWriter, _ *http.Request, call caller) {
	for _, path := range []string{"customer /customer?id=1", "driver /drivers"} {
		callee, path, _ := strings.Cut(path, " ")
		if status, _ := call(http.MethodGet, callee, path); status != http.StatusOK {
			http.Error(w, "sorry", http.StatusInternalServerError)
			return
		}
	}
	results := make([]int, 6)
	var group sync.WaitGroup
	tokens := make(chan struct{}, 3)
	for i := range results {
		group.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			results[i], _ = call(http.MethodGet, "route", fmt.Sprintf("/route?to=%d", i))
		})
	}
	group.Wait()
	for _, status := range results {
		if status != http.StatusOK {
			reply(w, nil)
			return
		}
	}
	reply(w, results)
}

func dispatchMesh(t *testing.T) *mesh {
	return newMesh(t,
		map[string]application{"front": dispatch, "customer": plain, "driver": plain, "route": plain},
		map[string][]string{"front": {"customer", "driver", "route"}})
}

// candidates are the trials of candidates, without control runs and their like.
func candidates(report *campaignv1.CampaignReport) []*campaignv1.Trial {
	return slices.DeleteFunc(slices.Clone(report.GetTrials()), func(t *campaignv1.Trial) bool { return t.GetPurpose() != purposeCandidate })
}

func runCampaign(t *testing.T, c Config) *campaignv1.CampaignReport {
	t.Helper()
	report, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCampaignFindsWhatAStatusHides(t *testing.T) {
	m := dispatchMesh(t)
	got := runCampaign(t, m.config(spec(fetch("GET", m.url("front")+"/dispatch"))))

	if len(got.GetFindings()) != 1 || len(got.GetDegraded()) != 1 {
		t.Fatalf("%d findings and %d degraded, want one of each", len(got.GetFindings()), len(got.GetDegraded()))
	}
	found := got.GetFindings()[0]
	if s := found.GetSignature().GetSummary(); !strings.Contains(s, "HTTP 200 with body `null`") {
		t.Errorf("the finding is: %s", s)
	}
	phases, guarded := map[string]bool{}, 0
	for _, w := range found.GetWitnesses() {
		target := w.GetTfics()[0].GetTarget()
		phases[target.GetPhase().String()] = true
		if target.GetCallee() != "route" {
			t.Errorf("a fault on %s is a witness", target.GetCallee())
		}
		marked := 0
		guard := report.When(w.GetTfics()[0].GetGuard())
		for _, e := range w.GetEvents() {
			marked += len(e.GetAtoms())
			for _, text := range e.GetAtoms() {
				if !slices.Contains(guard, text) {
					t.Errorf("%s: the atom %q is called otherwise in its guard: %q", ids(w), text, guard)
				}
			}
		}
		guarded += atoms(w)
		if want := atoms(w); marked != want {
			t.Errorf("%s: %d atoms are marked among the events, want %d", ids(w), marked, want)
		}
		if len(w.GetFired()) != 1 || len(w.GetEvents()) == 0 {
			t.Errorf("witness %s fired %v and has %d events", ids(w), w.GetFired(), len(w.GetEvents()))
		}
	}
	if guarded == 0 {
		t.Error("no witness has a guard")
	}
	if len(phases) != 2 {
		t.Errorf("witnesses are of phases %v, want both", phases)
	}
	for _, w := range got.GetDegraded()[0].GetWitnesses() {
		if callee := w.GetTfics()[0].GetTarget().GetCallee(); callee == "route" {
			t.Errorf("a fault on %s is degraded", callee)
		}
	}
	if n := len(found.GetContrasts()); n != 3 || found.GetTemporalOnly() {
		t.Errorf("%d contrasts, temporal only %v, want 3 and no", n, found.GetTemporalOnly())
	}
	// The smallest witness fails the first request: with neither guard nor phase to tell them
	// apart, two baselines are one injection, and the third is what the witness did.
	if c := found.GetContrasts(); len(c) == 3 && (c[0].GetTrial() != c[1].GetTrial() || c[2].GetTrial() != found.GetWitnesses()[0]) {
		t.Errorf("contrasts that inject the same were run apart: %v", c)
	}
	if !got.GetCoverage().GetExhausted() {
		t.Errorf("coverage: %s", got.GetCoverage().GetStatement())
	}
	if len(got.GetClean()) != 3 || len(got.GetSidecars()) != 4 {
		t.Errorf("%d clean runs and %d sidecars, want 3 and 4", len(got.GetClean()), len(got.GetSidecars()))
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
	if len(found.GetCleanAnswers()) == 0 {
		t.Error("the finding has no clean answer beside it")
	}
}
