package campaign

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/traces"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/service"
)

// An effect that comes after the answer belongs to the trial.
func TestQuietPeriodSeesWhatComesLate(t *testing.T) {
	var background sync.WaitGroup
	t.Cleanup(background.Wait)
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		status, _ := call(http.MethodGet, "stock", "/stock")
		background.Go(func() {
			time.Sleep(20 * time.Millisecond) // late: the answer is out
			if status == http.StatusOK {
				call(http.MethodPost, "mail", "/mails")
			}
		})
		reply(w, map[string]int{"n": 1})
	}
	m := newMesh(t, map[string]application{"front": front, "stock": plain, "mail": plain},
		map[string][]string{"front": {"stock", "mail"}})
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.CleanQuiet, c.MinQuiet = 150*time.Millisecond, 150*time.Millisecond
	report := runCampaign(t, c)
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1: the mail that is never sent", len(report.GetFindings()))
	}
	if got := report.GetFindings()[0].GetSignature().GetEffects(); !slices.Equal(got, []string{"-1 mail POST /mails"}) {
		t.Errorf("effects are %q", got)
	}
}

// The quiet period is as long as what clean runs do after their answers makes it.
func TestQuietPeriodIsLearnt(t *testing.T) {
	const late = 60 * time.Millisecond
	var background sync.WaitGroup
	t.Cleanup(background.Wait)
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		background.Go(func() {
			time.Sleep(late)
			call(http.MethodPost, "mail", "/mails")
		})
		reply(w, map[string]int{"n": 1})
	}
	m := newMesh(t, map[string]application{"front": front, "mail": plain}, map[string][]string{"front": {"mail"}})
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.CleanQuiet = 500 * time.Millisecond // longer than anything that is learnt here
	e, err := newEnv(c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if err := e.recordClean(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	var longest time.Duration
	for _, a := range e.clean {
		longest = max(longest, a.recording.tail)
	}
	if longest < late || e.quiet != 2*longest {
		t.Errorf("%v is waited for silence, where a clean run went on for %v after its answer", e.quiet, longest)
	}
}

// Each step's effects are its own; a probe tells whether a refusal left something behind.
func TestSequenceWithProbes(t *testing.T) {
	var orders atomic.Int32
	front := func(w http.ResponseWriter, r *http.Request, call caller) {
		switch r.URL.Path {
		case "/reset":
			orders.Store(0)
		case "/orders":
			if r.Method == http.MethodGet {
				reply(w, map[string]int32{"count": orders.Load()})
				return
			}
			orders.Add(1) // before it knows that it can be paid
			if status, _ := call(http.MethodPost, "pay", "/charge"); status != http.StatusOK {
				http.Error(w, "no", http.StatusPaymentRequired)
				return
			}
			reply(w, map[string]string{"id": "o-1"})
		default:
			reply(w, map[string]string{"path": r.URL.Path})
		}
	}
	m := newMesh(t, map[string]application{"front": front, "pay": plain}, map[string][]string{"front": {"pay"}})
	order := fetch("POST", m.url("front")+"/orders")
	order.Name = "order"
	order.GetHttp().Capture = map[string]string{"id": "answer.json.id"}
	s := spec(order, fetch("GET", m.url("front")+"/orders/${id}/state"))
	s.Workload.Before = []*campaignv1.Step{fetch("POST", m.url("front")+"/reset")}
	probe := fetch("GET", m.url("front")+"/orders")
	probe.Name = "count"
	s.Workload.After = []*campaignv1.Step{probe}
	report := runCampaign(t, m.config(s))

	byPhase := map[string][]string{}
	for _, trial := range candidates(report) {
		phase := trial.GetTfics()[0].GetTarget().GetPhase().String()
		signature := trial.GetSignature()
		byPhase[phase] = append(byPhase[phase], fmt.Sprintf("%v %v %v", signature.GetAnswers(), signature.GetEffects(), signature.GetProbes()))
	}
	want := map[string]string{
		"PHASE_REQ":  "[refusal] [] [count: $.count: was 0, is 1]",
		"PHASE_RESP": "[refusal] [order: +1 pay POST /charge] [count: $.count: was 0, is 1]",
	}
	for phase, text := range want {
		if len(byPhase[phase]) != 2 || byPhase[phase][0] != text || byPhase[phase][1] != text {
			t.Errorf("%s: got %q, want twice %q", phase, byPhase[phase], text)
		}
	}
}

// TestCommandChild is not a test: it is the command of TestCommandAsWorkload.
func TestCommandChild(t *testing.T) {
	target := os.Getenv("CHILD_TARGET")
	if target == "" {
		t.Skip("run by TestCommandAsWorkload")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("traceparent", os.Getenv("TRACEPARENT"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
}

func TestCommandAsWorkload(t *testing.T) {
	m := relayMesh(t)
	s := spec(&campaignv1.Step{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
		Argv: []string{os.Args[0], "-test.run=^TestCommandChild$"}, Env: map[string]string{"CHILD_TARGET": m.url("front")},
	}}})
	report := runCampaign(t, m.config(s))
	if len(report.GetDegraded()) != 1 || len(report.GetFindings()) != 0 {
		t.Fatalf("%d degraded and %d findings, want a test that fails and no more", len(report.GetDegraded()), len(report.GetFindings()))
	}
	if got := report.GetDegraded()[0].GetSignature().GetSummary(); !strings.HasPrefix(got, "Exit code 1") {
		t.Errorf("%s", got)
	}
}

// remoteSolver is a solver's service, and how to start a search there.
func remoteSolver(t *testing.T) (*service.Server, StartSolver) {
	t.Helper()
	backend, start, _ := mortalSolver(t)
	return backend, start
}

// mortalSolver is a remoteSolver, and what ends the service.
func mortalSolver(t *testing.T) (backend *service.Server, start StartSolver, stop func()) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	backend = service.New(service.Options{})
	server := service.NewGRPC(backend)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	conn, err := grpc.NewClient("passthrough:///solver", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return backend, Remote(conn), server.Stop
}

// The solver's service and the embedded solver are one to a campaign.
func TestRemoteSolver(t *testing.T) {
	backend, start := remoteSolver(t)
	m := dispatchMesh(t)
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.StartSolver = start
	report := runCampaign(t, c)
	if len(report.GetFindings()) != 1 || !report.GetCoverage().GetExhausted() {
		t.Errorf("%d findings, coverage %s", len(report.GetFindings()), report.GetCoverage().GetStatement())
	}
	if n := backend.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// garbled is a source some of whose spans cannot be read.
type garbled struct {
	*traces.Store
	// good is how many more times the spans are good.
	good *atomic.Int32
}

func (g garbled) Spans(ctx context.Context, ids [][16]byte) (*tracev1.TracesData, error) {
	data, err := g.Store.Spans(ctx, ids)
	if err != nil || g.good.Add(-1) >= 0 {
		return data, err
	}
	for _, resource := range data.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for i, span := range scope.GetSpans() {
				broken := &tracev1.Span{TraceId: span.GetTraceId(), SpanId: span.GetSpanId()}
				broken.Attributes = span.GetAttributes()[:1]
				scope.Spans[i] = broken
			}
		}
	}
	return data, nil
}

// Spans that cannot be read cost a trial, not the campaign.
func TestUnreadableSpansAreInvalid(t *testing.T) {
	m := relayMesh(t)
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 20 * time.Millisecond
	good := &atomic.Int32{}
	good.Store(1 << 20)
	c.Source = garbled{m.store, good}
	c.Progress = progressFunc(func(u Update) {
		if u.Stage == StageSearch {
			good.Store(0)
		}
	})
	report := runCampaign(t, c)
	for _, trial := range candidates(report) {
		if trial.GetVerdict() != campaignv1.Verdict_VERDICT_INVALID || !strings.Contains(trial.GetReason(), "incomplete") {
			t.Errorf("%s is %s: %s", ids(trial), trial.GetVerdict(), trial.GetReason())
		}
	}
	if len(candidates(report)) == 0 {
		t.Error("nothing was tried")
	}
}

// A client that gives up is answered by nobody: the run is judged once all that it set
// off has ended.
func TestDropMakesTheClientGiveUp(t *testing.T) {
	// A clean run must fit into the client's patience on a starved machine too.
	const patience, limit = 600 * time.Millisecond, 1200 * time.Millisecond
	m := relayMesh(t)
	step := fetch("GET", m.url("front"))
	step.GetHttp().Timeout = durationpb.New(patience)
	s := spec(step)
	s.Faults = &campaignv1.FaultModel{
		Faults: []*campaignv1.NamedFault{{Name: "drop", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Drop{
			Drop: &tfiv1.Drop{Limit: durationpb.New(limit)},
		}}}},
		Phases: []tfiv1.Phase{tfiv1.Phase_PHASE_REQ},
	}
	report := runCampaign(t, m.config(s))
	if len(report.GetFindings()) != 1 {
		t.Fatalf("%d findings, want 1", len(report.GetFindings()))
	}
	found := report.GetFindings()[0]
	if got := found.GetSignature(); !slices.Equal(got.GetAnswers(), []string{"timeout"}) || !strings.HasPrefix(got.GetSummary(), "No answer within") {
		t.Errorf("%v: %s", got.GetAnswers(), got.GetSummary())
	}
	for _, w := range found.GetWitnesses() {
		if took := w.GetDuration().AsDuration(); took < limit {
			t.Errorf("%s was judged after %s, before the dropped call had ended", ids(w), took)
		}
	}
}
