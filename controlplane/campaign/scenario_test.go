package campaign

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// relay passes a request on and tells a failure apart from an answer.
func relay(callee, path string) application {
	return func(w http.ResponseWriter, _ *http.Request, call caller) {
		if status, _ := call(http.MethodGet, callee, path); status != http.StatusOK {
			http.Error(w, "sorry", http.StatusBadGateway)
			return
		}
		reply(w, map[string]int{"n": 1})
	}
}

func relayMesh(t *testing.T) *mesh {
	return newMesh(t, map[string]application{"front": relay("back", "/"), "back": plain}, map[string][]string{"front": {"back"}})
}

func verdicts(report *campaignv1.CampaignReport) map[campaignv1.Verdict]int {
	out := make(map[campaignv1.Verdict]int)
	for _, t := range candidates(report) {
		out[t.GetVerdict()]++
	}
	return out
}

// A caller that retries a charge whose answer was lost charges twice.
func TestLostAnswerChargesTwice(t *testing.T) {
	buy := func(w http.ResponseWriter, _ *http.Request, call caller) {
		for range 2 {
			if status, _ := call(http.MethodPost, "pay", "/charge"); status == http.StatusOK {
				reply(w, map[string]string{"state": "bought"})
				return
			}
		}
		http.Error(w, "no", http.StatusBadGateway)
	}
	m := newMesh(t, map[string]application{"shop": buy, "pay": plain}, map[string][]string{"shop": {"pay"}})
	report := runCampaign(t, m.config(spec(fetch("POST", m.url("shop")+"/buy"))))
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1", len(report.GetFindings()))
	}
	found := report.GetFindings()[0]
	if got := strings.Join(found.GetSignature().GetEffects(), " "); got != "+1 pay POST /charge" {
		t.Errorf("effects are %q", got)
	}
	for _, w := range found.GetWitnesses() {
		if w.GetTfics()[0].GetTarget().GetPhase().String() != "PHASE_RESP" {
			t.Errorf("%s charges twice", ids(w))
		}
	}
	if n := verdicts(report)[campaignv1.Verdict_VERDICT_TOLERATED]; n != 2 {
		t.Errorf("%d trials were tolerated, want the two of the request's phase", n)
	}
	static := map[string]bool{}
	for _, c := range found.GetContrasts() {
		static[c.GetBaseline()] = c.GetSame()
	}
	if static["static-req"] || !static["static-k"] {
		t.Errorf("contrasts reach the finding: %v", static)
	}
}

// A service that is called only when another fails is not involved at first.
func TestServiceThatOnlyAFaultReaches(t *testing.T) {
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		for _, callee := range []string{"main", "backup"} {
			if status, _ := call(http.MethodGet, callee, "/"); status == http.StatusOK {
				reply(w, map[string]int{"n": 1})
				return
			}
		}
		http.Error(w, "no", http.StatusBadGateway)
	}
	m := newMesh(t, map[string]application{"front": front, "main": plain, "backup": plain},
		map[string][]string{"front": {"main", "backup"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	got := verdicts(report)
	if got[campaignv1.Verdict_VERDICT_TOLERATED] == 0 || got[campaignv1.Verdict_VERDICT_INVALID] != 0 {
		t.Errorf("verdicts are %v", got)
	}
	for _, trial := range candidates(report) {
		if trial.GetRepeats() != 0 {
			t.Errorf("%s was repeated %d times", ids(trial), trial.GetRepeats())
		}
	}
	if !slices.Contains(m.removed, "backup") {
		t.Errorf("backup was never let go: %v", m.removed)
	}
}

func TestServicesBeyondReachAreLeftAlone(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("back", "/"), "back": plain, "other": plain},
		map[string][]string{"front": {"back"}, "other": {"back"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(report.GetSidecars()) != 2 {
		t.Errorf("%d sidecars were given a policy, want 2: %v", len(report.GetSidecars()), report.GetSidecars())
	}
}

func TestLeafIsNoGap(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("store", "/"), "store": plain}, map[string][]string{"front": {"store"}})
	m.sidecars["store"].server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(tfi.EvidenceHeader) != "" {
			t.Error("evidence was sent to a leaf")
		}
		plain(w, r, nil)
	})
	m.topology.Services = slices.DeleteFunc(m.topology.Services, func(s topology.Service) bool { return s.Name == "store" })
	m.topology.Leaves = []string{"store"}
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if got := verdicts(report); got[campaignv1.Verdict_VERDICT_EFFECTIVE] == 0 || len(got) != 1 {
		t.Errorf("verdicts are %v", got)
	}
}

// Reports that get lost make a trial invalid, and it is repeated; whatever it came to.
func TestLostReportsAreInvalid(t *testing.T) {
	m := relayMesh(t)
	var lost atomic.Int32
	m.lose = func(r *tfi.Record) bool {
		return r.Service == "front" && r.Role == tfi.RoleClient && r.Fired != nil && lost.Add(1) == 1
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 500 * time.Millisecond
	report := runCampaign(t, c)
	if n := candidates(report)[0].GetRepeats(); n != 1 {
		t.Errorf("the trial whose report was lost was repeated %d times, want 1", n)
	}
	if n := verdicts(report)[campaignv1.Verdict_VERDICT_INVALID]; n != 0 {
		t.Errorf("%d trials are invalid for good", n)
	}
}

func TestReportsThatAreAlwaysLost(t *testing.T) {
	m := relayMesh(t)
	m.lose = func(r *tfi.Record) bool { return r.Fired != nil && r.Fired.Fault.Kind == tfi.FaultAbort }
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 50 * time.Millisecond
	report := runCampaign(t, c)
	invalid := 0
	for _, trial := range candidates(report) {
		if trial.GetVerdict() != campaignv1.Verdict_VERDICT_INVALID {
			continue
		}
		invalid++
		if trial.GetRepeats() != maxRepeats || trial.GetSignature() != nil || !strings.Contains(trial.GetReason(), "incomplete") {
			t.Errorf("%s was repeated %d times, judged %v: %s", ids(trial), trial.GetRepeats(), trial.GetSignature(), trial.GetReason())
		}
	}
	if invalid == 0 || report.GetCoverage().GetExhausted() {
		t.Errorf("%d trials are invalid, coverage %s", invalid, report.GetCoverage().GetStatement())
	}
}

// A sidecar that does not take new policies knows nothing of later trials.
func TestStalePolicyIsInvalid(t *testing.T) {
	m := relayMesh(t)
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 50 * time.Millisecond
	c.Recorder = recorderFunc(func(*campaignv1.Trial) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stale["back"] = true // once the first clean run is recorded
	})
	report := runCampaign(t, c)
	for _, trial := range candidates(report) {
		// A request that never leaves front needs nothing of back.
		if trial.GetTfics()[0].GetTarget().GetPhase().String() == "PHASE_RESP" && trial.GetVerdict() != campaignv1.Verdict_VERDICT_INVALID {
			t.Errorf("%s is %s though the callee did not know of it", ids(trial), trial.GetVerdict())
		}
	}
}

// What an event was judged by decides, not what was acknowledged.
func TestAcknowledgementIsNoProof(t *testing.T) {
	m := relayMesh(t)
	m.lie = true
	_, err := Run(t.Context(), m.config(spec(fetch("GET", m.url("front")))))
	if !errors.Is(err, ErrClean) || !strings.Contains(err.Error(), "judged by policy") {
		t.Errorf("got %v, want ErrClean because of the policy's version", err)
	}
}

type recorderFunc func(*campaignv1.Trial)

func (f recorderFunc) RecordTrial(_ context.Context, t *campaignv1.Trial, _ []byte) error {
	f(t)
	return nil
}

// A fault that leaves the system broken for a while must not be charged to those that follow.
func TestContaminationIsNotAFinding(t *testing.T) {
	var mu sync.Mutex
	sickFor := 0
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		mu.Lock()
		sick := sickFor > 0
		sickFor = max(0, sickFor-1)
		mu.Unlock()
		status, _ := call(http.MethodGet, "a", "/a")
		// A failure of b is tolerated.
		_, _ = call(http.MethodGet, "b", "/b")
		switch {
		case sick:
			reply(w, nil)
		case status != http.StatusOK:
			mu.Lock()
			sickFor = 2 // a cache is poisoned, say
			mu.Unlock()
			http.Error(w, "sorry", http.StatusBadGateway)
		default:
			reply(w, map[string]int{"n": 1})
		}
	}
	m := newMesh(t, map[string]application{"front": front, "a": plain, "b": plain}, map[string][]string{"front": {"a", "b"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	for _, f := range report.GetFindings() {
		t.Errorf("finding %s: %s by %s", f.GetId(), f.GetSignature().GetSummary(), ids(f.GetWitnesses()[0]))
	}
	for _, trial := range candidates(report) {
		want := campaignv1.Verdict_VERDICT_TOLERATED
		if trial.GetTfics()[0].GetTarget().GetCallee() == "a" {
			want = campaignv1.Verdict_VERDICT_CONTAMINATED
		}
		if trial.GetVerdict() != want {
			t.Errorf("%s is %s, want %s: %s", ids(trial), trial.GetVerdict(), want, trial.GetReason())
		}
	}
}

// A system that a fault broke for good does not get more faults than the budget allows.
func TestBudgetOfASickWorld(t *testing.T) {
	var sick atomic.Bool
	var faults atomic.Int32
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		was := sick.Load()
		for _, callee := range []string{"a", "b"} {
			if status, _ := call(http.MethodGet, callee, "/"+callee); status != http.StatusOK {
				faults.Add(1)
				sick.Store(true)
			}
		}
		if was {
			reply(w, nil)
			return
		}
		reply(w, map[string]int{"n": 1})
	}
	m := newMesh(t, map[string]application{"front": front, "a": plain, "b": plain}, map[string][]string{"front": {"a", "b"}})
	s := spec(fetch("GET", m.url("front")))
	s.Budget.Trials = 2
	report := runCampaign(t, m.config(s))
	if n := faults.Load(); n != 2 {
		t.Errorf("%d faults, 2 allowed", n)
	}
	var reasons []string
	for _, trial := range candidates(report) {
		if trial.GetVerdict() == campaignv1.Verdict_VERDICT_CONTAMINATED {
			reasons = append(reasons, trial.GetReason())
		}
	}
	if len(report.GetFindings()) > 0 || !strings.Contains(strings.Join(reasons, "\n"), "budget") {
		t.Errorf("%d findings, contaminated: %q", len(report.GetFindings()), reasons)
	}
}

// An outcome that only chance brought about does not reproduce.
func TestChanceIsOnlySuspected(t *testing.T) {
	var failures atomic.Int32
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		if status, _ := call(http.MethodGet, "back", "/"); status == http.StatusOK {
			reply(w, map[string]int{"n": 1})
		} else if failures.Add(1) == 1 {
			reply(w, nil)
		} else {
			http.Error(w, "sorry", http.StatusBadGateway)
		}
	}
	m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1", len(report.GetFindings()))
	}
	s := report.GetFindings()[0].GetSignature()
	if s.GetClass() != campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED || !strings.Contains(s.GetSummary(), "reproduced in 0 of 1 runs") {
		t.Errorf("%s: %s", s.GetClass(), s.GetSummary())
	}
}

func TestStoppedCampaignKeepsWhatItFound(t *testing.T) {
	m := dispatchMesh(t)
	c := m.config(spec(fetch("GET", m.url("front"))))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Progress = progressFunc(func(u Update) {
		if u.Finding != nil && u.Finding.GetId() == "F1" {
			cancel()
		}
	})
	report, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if report.GetInterrupted() == "" || len(report.GetFindings()) != 1 || report.GetCoverage() == nil {
		t.Errorf("interrupted %q, %d findings, coverage %v", report.GetInterrupted(), len(report.GetFindings()), report.GetCoverage())
	}
	if report.GetCoverage().GetReached() == 0 {
		t.Errorf("the round that was not finished does not count: %s", report.GetCoverage().GetStatement())
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
}

type progressFunc func(Update)

func (f progressFunc) Update(u Update) { f(u) }

func TestBudget(t *testing.T) {
	m := dispatchMesh(t)
	s := spec(fetch("GET", m.url("front")))
	s.Budget.Trials = 3
	report := runCampaign(t, m.config(s))
	c := report.GetCoverage()
	if c.GetExhausted() || c.GetUnreached()[reasonBudget] == 0 || !strings.Contains(c.GetStatement(), reasonBudget) {
		t.Errorf("coverage after %d trials: %v", len(candidates(report)), c)
	}
	// No point is counted twice.
	all := c.GetReached() + c.GetRepresented()
	for _, n := range c.GetUnreached() {
		all += n
	}
	if all != c.GetSpace() {
		t.Errorf("%d points are accounted for, there are %d: %v", all, c.GetSpace(), c)
	}
	if n := len(candidates(report)); n != 3 {
		t.Errorf("%d trials, 3 allowed", n)
	}
}

func TestPreconditions(t *testing.T) {
	m := dispatchMesh(t)
	bad := spec(fetch("GET", "ftp://x"))
	bad.Oracle = &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{{Name: "x", Cel: "1 +"}}}
	bad.Faults = &campaignv1.FaultModel{Callees: []string{"nobody"}}
	_, err := Run(t.Context(), m.config(bad))
	if !errors.Is(err, valid.ErrInvalid) {
		t.Fatalf("got %v, want valid.ErrInvalid", err)
	}
	for _, path := range []string{"workload.steps[0].http.url", "oracle.invariants[0].cel", "faults.callees[0]"} {
		if strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s is not named once in %v", path, err)
		}
	}
	slip := spec(fetch("GET", m.url("front")))
	slip.Oracle = &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{{Name: "x", Cel: "probes.stok.status == 200"}}}
	if _, err := Check(t.Context(), m.config(slip)); !errors.Is(err, valid.ErrInvalid) || !strings.Contains(err.Error(), `oracle.invariants[0].cel: probes["stok"]`) {
		t.Errorf("got %v, want valid.ErrInvalid of the probe", err)
	}

	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReadyTimeout = 20 * time.Millisecond
	m.topology.Services = append(m.topology.Services, topology.Service{Name: "ghost"})
	front, _ := m.topology.Service("front")
	front.Calls = append(front.Calls, topology.Call{Service: "ghost"})
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "ghost: no sidecar is connected") {
		t.Errorf("got %v, want ErrNotReady for ghost", err)
	}
	if _, err := Run(t.Context(), Config{}); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

func TestUnmarkedWorkloadSaysWhatToDo(t *testing.T) {
	m := dispatchMesh(t)
	// The request goes to a service of another mesh.
	direct := newMesh(t, map[string]application{"lonely": plain}, nil)
	c := m.config(spec(fetch("GET", direct.url("lonely"))))
	c.ReportTimeout = 30 * time.Millisecond
	_, err := Run(t.Context(), c)
	if !errors.Is(err, ErrClean) || !errors.Is(err, ErrSilent) {
		t.Errorf("got %v", err)
	}
}

func TestParallelTrialsNeedIsolation(t *testing.T) {
	for _, isolated := range []bool{true, false} {
		m := dispatchMesh(t)
		if !isolated {
			m.sidecars["front"].app = contagious()
		}
		s := spec(fetch("GET", m.url("front")+"/?user=${trial.id}"))
		s.Workload.Isolated, s.Workload.Parallelism = true, 4
		warned := false
		c := m.config(s)
		c.Progress = progressFunc(func(u Update) { warned = warned || strings.Contains(u.Text, "not isolated") })
		report := runCampaign(t, c)
		if warned == isolated {
			t.Errorf("isolated %v, warned %v", isolated, warned)
		}
		if got := verdicts(report); got[campaignv1.Verdict_VERDICT_EFFECTIVE] == 0 || got[campaignv1.Verdict_VERDICT_INVALID] != 0 {
			t.Errorf("isolated %v: verdicts are %v", isolated, got)
		}
	}
}

// contagious fails whatever runs beside a run that fails.
func contagious() application {
	// How long a run is at risk, and contagious: enough for runs that begin together to
	// meet on a starved machine.
	const window = 250 * time.Millisecond
	var mu sync.Mutex
	failing := make(chan struct{}) // closed while a run fails
	current := func() chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		return failing
	}
	return func(w http.ResponseWriter, _ *http.Request, call caller) {
		status, _ := call(http.MethodGet, "customer", "/customer")
		if status != http.StatusOK {
			close(current())
			time.Sleep(window)
			mu.Lock()
			failing = make(chan struct{})
			mu.Unlock()
			http.Error(w, "sorry", http.StatusBadGateway)
			return
		}
		select {
		case <-current():
			http.Error(w, "infected", http.StatusBadGateway)
		case <-time.After(window):
			reply(w, map[string]int{"n": 1})
		}
	}
}
