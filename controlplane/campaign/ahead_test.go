package campaign

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// refusing calls a, and refuses when it fails; and b, whose failure it hides.
func refusing(w http.ResponseWriter, _ *http.Request, call caller) {
	if status, _ := call(http.MethodGet, "a", "/a"); status != http.StatusOK {
		http.Error(w, "sorry", http.StatusBadGateway)
		return
	}
	if status, _ := call(http.MethodGet, "b", "/b"); status != http.StatusOK {
		reply(w, nil)
		return
	}
	reply(w, map[string]int{"n": 1})
}

func refusingMesh(t *testing.T) *mesh {
	return newMesh(t, map[string]application{"front": refusing, "a": plain, "b": plain},
		map[string][]string{"front": {"a", "b"}})
}

// early counts the runs that began before the one before them had been judged. Only
// candidates may, and only after a candidate.
func early(t *testing.T, trials []*campaignv1.Trial) int {
	t.Helper()
	n := 0
	for i, trial := range trials[1:] {
		before := trials[i]
		judged := before.GetStart().AsTime().Add(before.GetDuration().AsDuration())
		if !trial.GetStart().AsTime().Before(judged) {
			continue
		}
		n++
		if trial.GetPurpose() != purposeCandidate || before.GetPurpose() != purposeCandidate {
			t.Errorf("a run (%s) began in the quiet period of another (%s)", trial.GetPurpose(), before.GetPurpose())
		}
	}
	return n
}

// alone has the front fail the test where two of its requests are under way at once. Each takes
// a while.
func (m *mesh) alone(takes time.Duration) {
	var mu sync.Mutex
	under := 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		if under += by; under > 1 {
			m.t.Error("two runs at once")
		}
	}
	app := m.sidecars["front"].app
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		count(1)
		defer count(-1)
		time.Sleep(takes)
		app(w, r, call)
	}
}

// Candidates' requests are sent one after the other, but not after the quiet period: that is for
// runs that the outcome of one asks for.
func TestCandidatesBeginInQuietPeriods(t *testing.T) {
	const quiet = 200 * time.Millisecond
	m := refusingMesh(t)
	m.alone(quiet / 2)
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.MinQuiet = quiet
	report := runCampaign(t, c)
	if early(t, report.GetTrials()) == 0 {
		t.Error("no candidate began in the quiet period of the one before it")
	}
	if len(report.GetFindings()) != 1 || len(report.GetDegraded()) != 1 {
		t.Fatalf("%d findings, %d degraded; want one of each", len(report.GetFindings()), len(report.GetDegraded()))
	}
	for i, trial := range report.GetTrials() {
		if trial.GetSignature().GetId() != report.GetFindings()[0].GetSignature().GetId() {
			continue
		}
		if next := report.GetTrials()[i+1]; next.GetPurpose() != purposeControl {
			t.Errorf("the first witness was followed by a run of purpose %s, want a control run", next.GetPurpose())
		}
		break
	}
}

// Once a control run has failed, each run waits for the world to be well.
func TestNoCandidateBeginsEarlyInASickWorld(t *testing.T) {
	m := refusingMesh(t)
	const control = 3 + 5 + 1 // clean runs, candidates up to the first witness of a finding, and this
	var requests atomic.Int32
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		if requests.Add(1) == control {
			http.Error(w, "sick", http.StatusInternalServerError)
			return
		}
		refusing(w, r, call)
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.MinQuiet = 60 * time.Millisecond
	trials := runCampaign(t, c).GetTrials()
	failed := slices.IndexFunc(trials, func(trial *campaignv1.Trial) bool {
		return trial.GetPurpose() == purposeControl && trial.GetVerdict() == campaignv1.Verdict_VERDICT_CONTAMINATED
	})
	if failed < 0 {
		t.Fatal("no control run failed")
	}
	if n := early(t, trials[failed:]); n != 0 {
		t.Errorf("%d runs began in quiet periods after a control run had failed, want none", n)
	}
}

// A run whose reports stay incomplete is repeated before the next one begins.
func TestInvalidRunIsRepeatedAlone(t *testing.T) {
	m := refusingMesh(t)
	m.alone(100 * time.Millisecond)
	var lost atomic.Bool
	m.lose = func(r *tfi.Record) bool {
		return r.Service == "front" && r.Role == tfi.RoleClient && r.Fired != nil && !lost.Swap(true)
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 500 * time.Millisecond
	report := runCampaign(t, c)
	if n := candidates(report)[0].GetRepeats(); n != 1 {
		t.Errorf("the trial whose report was lost was repeated %d times, want 1", n)
	}
}

// Where a run goes on beside the one after it, neither says anything. Both are repeated, and
// no other begins early.
func TestRunThatGoesOnVoidsTheNext(t *testing.T) {
	m := refusingMesh(t)
	var background sync.WaitGroup
	t.Cleanup(background.Wait)
	arrived := make(chan struct{}, 100)
	failed := false
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		arrived <- struct{}{}
		refusing(w, r, func(method, callee, path string) (int, []byte) {
			status, body := call(method, callee, path)
			if status == http.StatusOK {
				return status, body
			}
			first := !failed
			failed = true
			for first && len(arrived) > 0 {
				<-arrived
			}
			background.Go(func() {
				if first {
					<-arrived // the run after it
				}
				call(http.MethodPost, "b", "/mails")
			})
			return status, body
		})
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.MinQuiet = 300 * time.Millisecond
	var repeated []string
	c.Progress = progressFunc(func(u Update) {
		if why, ok := strings.CutPrefix(u.Text, "repeating a run: "); ok {
			repeated = append(repeated, why)
		}
	})
	report := runCampaign(t, c)
	if len(repeated) != 2 || repeated[0] != voidBefore || repeated[1] != voidAfter {
		t.Errorf("repeated because %q, want the first two runs", repeated)
	}
	if n := early(t, report.GetTrials()); n != 0 {
		t.Errorf("%d runs that count began in quiet periods, want none", n)
	}
	for i, trial := range candidates(report) {
		if got, want := trial.GetRepeats(), uint32(1); (got == want) != (i < 2) {
			t.Errorf("candidate %d was repeated %d times", i+1, got)
		}
		if got := strings.Join(trial.GetSignature().GetEffects(), " "); got != "+1 b POST /mails" {
			t.Errorf("candidate %d has the effects %q, want the mail that was sent late", i+1, got)
		}
	}
}

// A run that turns out to lack reports, once the next has begun, may not have ended then. The
// repeat waits for the next, and that is repeated as well.
func TestRunThatLacksReportsVoidsTheNext(t *testing.T) {
	m := refusingMesh(t)
	m.alone(100 * time.Millisecond)
	var mu sync.Mutex
	var first *span.Span // a report of the first run that a fault struck
	told := false
	m.lose = func(r *tfi.Record) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Fired != nil && first == nil {
			record := *r
			record.Kind, record.Events = tfi.KindTrialEnd, 99
			first = &span.Span{Record: &record, Epoch: time.Now().UnixNano()}
		}
		return false
	}
	app := m.sidecars["front"].app
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		mu.Lock()
		if first != nil && !told {
			told = true
			m.keep(first) // as of a sidecar that drops its policy because it has lost the plane
		}
		mu.Unlock()
		app(w, r, call)
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.MinQuiet, c.ReportTimeout = 300*time.Millisecond, 500*time.Millisecond
	var repeated []string
	c.Progress = progressFunc(func(u Update) {
		if why, ok := strings.CutPrefix(u.Text, "repeating a run: "); ok {
			repeated = append(repeated, why)
		}
	})
	report := runCampaign(t, c)
	if len(repeated) != 2 || !strings.HasPrefix(repeated[0], "reports are incomplete: front has not reported its events") || repeated[1] != voidAfter {
		t.Errorf("repeated because %q, want the first two runs", repeated)
	}
	if early(t, report.GetTrials()) == 0 {
		t.Error("no candidate began in a quiet period any more")
	}
}

// heard calls complete with the trial of a recording that lacks nothing, each time it is read.
type heard struct {
	Source
	complete func(workload.Key)
}

func (h heard) Spans(ctx context.Context, ids [][16]byte) (*tracev1.TracesData, error) {
	data, err := h.Source.Spans(ctx, ids)
	if err != nil || len(ids) == 0 {
		return data, err
	}
	w := watching{key: workload.Key(ids[0][2:9])}
	shared := workload.Propagation{}.Shared(w.key)
	for _, id := range ids {
		if !slices.Contains(shared, workload.TraceID(id)) { // of which nobody need report anything
			w.required = append(w.required, request{trace: workload.TraceID(id).String()})
		}
	}
	if run, err := trace.Build(w.key.String(), data); err == nil {
		if lacks, absent := w.missing(run); lacks == "" && len(absent) == 0 {
			h.complete(w.key)
		}
	}
	return data, nil
}

// A run that has begun in a quiet period, and goes on in it, is alone: the next one waits.
func TestNoRunBeginsBesideOneThatGoesOn(t *testing.T) {
	m := refusingMesh(t)
	var background sync.WaitGroup
	t.Cleanup(background.Wait)
	var mu sync.Mutex
	refused := 0
	complete := make(map[string]chan struct{}) // by run
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		refusing(w, r, func(method, callee, path string) (int, []byte) {
			status, body := call(method, callee, path)
			if status == http.StatusOK {
				return status, body
			}
			mu.Lock()
			defer mu.Unlock()
			if refused++; refused > 1 {
				done := make(chan struct{})
				complete[r.Header.Get("traceparent")[len("00-5f1c"):][:2*len(workload.Key{})]] = done
				background.Go(func() {
					<-done
					call(http.MethodPost, "b", "/mails")
				})
			}
			return status, body
		})
	}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.MinQuiet = 300 * time.Millisecond
	c.Source = heard{c.Source, func(run workload.Key) {
		mu.Lock()
		defer mu.Unlock()
		if done := complete[run.String()]; done != nil {
			close(done)
			delete(complete, run.String())
		}
	}}
	c.Progress = progressFunc(func(u Update) {
		if strings.HasPrefix(u.Text, "repeating a run: ") {
			t.Error(u.Text)
		}
	})
	report := runCampaign(t, c)
	if n := early(t, report.GetTrials()); n != 1 {
		t.Errorf("%d runs began in quiet periods, want only the one that went on", n)
	}
	for i, trial := range candidates(report) {
		want := "+1 b POST /mails"
		if i == 0 {
			want = ""
		}
		if got := strings.Join(trial.GetSignature().GetEffects(), " "); got != want {
			t.Errorf("candidate %d has the effects %q, want %q", i+1, got, want)
		}
	}
}

// What sidecars do not see, or is known to come late, or is looked at in the end, is given
// the quiet period before the next run.
func TestNoRunBeginsInTheQuietPeriod(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(m *mesh, w *campaignv1.Workload)
	}{
		{"reset", func(m *mesh, w *campaignv1.Workload) { w.Before = append(w.Before, fetch("GET", m.url("b"))) }},
		{"probe", func(m *mesh, w *campaignv1.Workload) { w.After = append(w.After, fetch("GET", m.url("b"))) }},
		{"command", func(m *mesh, w *campaignv1.Workload) {
			w.Steps = []*campaignv1.Step{{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
				Argv: []string{os.Args[0], "-test.run=^TestCommandChild$"}, Env: map[string]string{"CHILD_TARGET": m.url("front")},
			}}}}
		}},
		{"leaf", func(m *mesh, _ *campaignv1.Workload) { m.topology.Leaves = []string{"store"} }},
		{"unseen", func(m *mesh, w *campaignv1.Workload) {
			outside := newMesh(m.t, map[string]application{"lonely": plain}, nil)
			w.Steps = append(w.Steps, fetch("GET", outside.url("lonely")))
		}},
		{"late in clean runs", func(m *mesh, _ *campaignv1.Workload) {
			var background sync.WaitGroup
			m.t.Cleanup(background.Wait)
			m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
				background.Go(func() {
					<-r.Context().Done() // the answer is out
					time.Sleep(20 * time.Millisecond)
					call(http.MethodGet, "b", "/mails")
				})
				refusing(w, r, call)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := refusingMesh(t)
			s := spec(fetch("GET", m.url("front")))
			test.change(m, s.GetWorkload())
			c := m.config(s)
			c.ReportTimeout = 500 * time.Millisecond
			c.MinQuiet, c.CleanQuiet = 60*time.Millisecond, 60*time.Millisecond
			report := runCampaign(t, c)
			if n := early(t, report.GetTrials()); n != 0 {
				t.Errorf("%d runs began in quiet periods, want none", n)
			}
			for _, trial := range candidates(report) {
				if n := trial.GetRepeats(); n != 0 {
					t.Errorf("%s was repeated %d times", ids(trial), n)
				}
			}
			if len(report.GetFindings())+len(report.GetDegraded()) == 0 {
				t.Error("nothing was found")
			}
		})
	}
}

func TestIsOver(t *testing.T) {
	const fired = "f"
	answered := trace.Call{ServerReq: 0, ServerResp: 1, Attempts: 1}
	with := func(change func(c *trace.Call)) trace.Call {
		c := answered
		change(&c)
		return c
	}
	for _, test := range []struct {
		name    string
		call    trace.Call
		fired   string
		invalid string
		failed  string
		want    bool
	}{
		{name: "answered", call: answered, want: true},
		{name: "invalid", call: answered, invalid: "why"},
		{name: "the client gave up", call: answered, failed: workload.ErrorTimeout},
		{name: "never arrived", call: with(func(c *trace.Call) { c.ServerReq, c.ServerResp, c.Broken = trace.None, trace.None, true }), want: true},
		{name: "not answered", call: with(func(c *trace.Call) { c.ServerResp = trace.None })},
		{name: "not answered, struck", call: with(func(c *trace.Call) { c.ServerResp = trace.None }), fired: fired},
		{name: "given up by its caller", call: with(func(c *trace.Call) { c.Broken = true })},
		{name: "broken by the fault", call: with(func(c *trace.Call) { c.Broken = true }), fired: fired, want: true},
		{name: "tried again by the mesh", call: with(func(c *trace.Call) { c.Attempts = 2 })},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &attempt{
				invalid:     test.invalid,
				observation: oracle.Observation{Answers: []workload.Answer{{Answer: &campaignv1.Answer{Error: test.failed}}}},
				recording: &recording{trial: &trace.Trial{
					Events: []trace.Event{{Call: 0}, {Call: 0, Fired: test.fired}}, Calls: []trace.Call{test.call},
				}},
			}
			if got := a.isOver(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
