package campaign

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

func edgeOf(t *testing.T, c *Checked, caller, callee string) Edge {
	t.Helper()
	for _, e := range c.Edges {
		if e.Caller == caller && e.Callee == callee {
			return e
		}
	}
	t.Fatalf("no edge %s -> %s in %+v", caller, callee, c.Edges)
	return Edge{}
}

func check(t *testing.T, m *mesh) *Checked {
	t.Helper()
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.ReportTimeout = 50 * time.Millisecond
	got, err := Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
	return got
}

func TestCheckOfASoundSystem(t *testing.T) {
	got := check(t, dispatchMesh(t))
	if !got.OK() {
		t.Errorf("%+v", got)
	}
	if e := edgeOf(t, got, "front", "route"); e.State != EdgeOK || e.Calls != 6 || !e.Declared {
		t.Errorf("%+v", e)
	}
	if e := edgeOf(t, got, "", "front"); e.State != EdgeOK {
		t.Errorf("%+v", e)
	}
	if len(got.Sidecars) != 4 || len(got.Answers) != 1 {
		t.Errorf("%d sidecars and %d answers", len(got.Sidecars), len(got.Answers))
	}
}

func TestCheckFindsLostContext(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("back", "/"), "back": plain, "leaf": plain},
		map[string][]string{"front": {"back", "leaf"}})
	// Something between the sidecars takes the trace away.
	back := m.sidecars["back"]
	back.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("traceparent")
		r.Header.Del("x-fic-evidence")
		back.ServeHTTP(w, r)
	})
	got := check(t, m)
	if e := edgeOf(t, got, "front", "back"); e.State != EdgeLost || e.Costs == "" {
		t.Errorf("%+v", e)
	}
	if got.OK() || got.Incomplete == "" {
		t.Errorf("a system that loses context is in order: %+v", got)
	}
}

func TestCheckFindsForgottenContext(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("mid", "/"), "mid": nil, "back": plain},
		map[string][]string{"front": {"mid"}, "mid": {"back"}})
	// mid does not forward traceparent.
	m.sidecars["mid"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		r.Header.Del("traceparent")
		call(http.MethodGet, "back", "/")
		reply(w, 1)
	}
	got := check(t, m)
	e := edgeOf(t, got, "mid", "back")
	if e.State != EdgeUnseen || !strings.Contains(e.Why, "does not forward traceparent") || !strings.Contains(e.Why, "or is not given the one that it forwards") {
		t.Errorf("%+v", e)
	}
	// The client gives front all that there is.
	m.sidecars["front"].app = func(w http.ResponseWriter, _ *http.Request, _ caller) { reply(w, 1) }
	if e := edgeOf(t, check(t, m), "front", "mid"); e.State != EdgeUnseen || strings.Contains(e.Why, "is not given") {
		t.Errorf("%+v", e)
	}
}

// TestCheckNamesTheHeaders: what a service would have to forward is what its requests carry.
func TestCheckNamesTheHeaders(t *testing.T) {
	const long, short, stated = "5f1c0102030405060708090a0b0c0d0e/1", "00000000000000005f1c010203040506/1", "5f1c0102030405060700000000000000/1"
	call := func(caller, callee, span string) trace.Call {
		return trace.Call{Caller: caller, Callee: callee, ClientReq: trace.None, ClientResp: trace.None, ServerResp: trace.None, Spans: []string{span}}
	}
	for _, tc := range []struct {
		name  string
		top   topology.Topology
		calls []trace.Call
		want  string
	}{
		{"a client's", topology.Topology{}, []trace.Call{call("", "mid", long)}, "traceparent (nor b3, x-b3-traceid, uber-trace-id, tracestate)"},
		{"a client's, with an own header", topology.Topology{TraceHeader: "x-trace"}, []trace.Call{call("", "mid", long)}, "traceparent (nor x-trace, b3, x-b3-traceid, uber-trace-id, tracestate)"},
		{"a client's, narrowed", topology.Topology{Propagation: []string{topology.FormatB3}}, []trace.Call{call("", "mid", short)}, "b3"},
		{"of a service that forwards B3", topology.Topology{}, []trace.Call{call("front", "mid", short)}, "b3 (nor x-b3-traceid)"},
		{"of a service that forwards tracestate", topology.Topology{}, []trace.Call{call("front", "mid", stated)}, "tracestate"},
		{"of two services", topology.Topology{}, []trace.Call{call("front", "mid", short), call("other", "mid", stated)}, "b3 (nor x-b3-traceid, tracestate)"},
		{"of another", topology.Topology{}, []trace.Call{call("", "front", long)}, "the trace headers"},
	} {
		seen := newSightings()
		seen.add(&trace.Trial{Calls: tc.calls})
		e := &env{Config: Config{Topology: &tc.top}}
		if got := e.forgotten("mid", seen); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestCheckFindsABypass(t *testing.T) {
	m := newMesh(t, map[string]application{"front": nil, "back": plain}, map[string][]string{"front": {"back"}})
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, _ caller) {
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, m.url("back"), nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header.Set("traceparent", r.Header.Get("traceparent"))
		response, err := oneShot.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		_ = response.Body.Close()
		reply(w, 1)
	}
	got := check(t, m)
	if e := edgeOf(t, got, "", "back"); e.State != EdgeBypass {
		t.Errorf("%+v", e)
	}
	if got.OK() {
		t.Error("a bypassed sidecar is in order")
	}
}

func TestCheckOfALeafAndAWrongAddress(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("store", "/"), "store": plain}, map[string][]string{"front": {"store"}})
	m.topology.Services = m.topology.Services[:1]
	m.topology.Leaves = []string{"store"}
	m.sidecars["store"].server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { plain(w, r, nil) })
	if e := edgeOf(t, check(t, m), "front", "store"); e.State != EdgeLeaf || e.Costs == "" {
		t.Errorf("%+v", e)
	}

	lonely := newMesh(t, map[string]application{"lonely": plain}, nil)
	c := m.config(spec(fetch("GET", lonely.url("lonely"))))
	c.ReportTimeout = 20 * time.Millisecond
	got, err := Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got.OK() || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "no sidecar saw its request") {
		t.Errorf("%+v", got)
	}
}

// TestCheckOfACalleeThatIsDown: trace context survives, and the calls fail all the same.
func TestCheckOfACalleeThatIsDown(t *testing.T) {
	m := relayMesh(t)
	m.sidecars["back"].app = func(w http.ResponseWriter, _ *http.Request, _ caller) {
		http.Error(w, "down", http.StatusServiceUnavailable)
	}
	e := edgeOf(t, check(t, m), "front", "back")
	if e.State != EdgeOK || e.Calls != 1 || e.Answers == 0 || e.Failures["HTTP 503"] != e.Answers {
		t.Errorf("%+v", e)
	}
	if e := edgeOf(t, check(t, dispatchMesh(t)), "front", "route"); e.Answers < 6 || len(e.Failures) > 0 {
		t.Errorf("where none fails: %+v", e)
	}
}

// TestCheckOfAStaleAddress: where the request went is told, and where sidecars listen.
func TestCheckOfAStaleAddress(t *testing.T) {
	m := dispatchMesh(t)
	for i := range m.topology.Services {
		m.topology.Services[i].Inbound = fmt.Sprintf("192.0.2.%d:80", i+1)
	}
	front, _ := m.topology.Service("front")
	gone := httptest.NewServer(nil)
	gone.Close()
	c := m.config(spec(fetch("GET", gone.URL)))
	c.ReportTimeout = 20 * time.Millisecond
	got, err := Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(got.Problems, "\n")
	for _, want := range []string{"no answer: refused; it was sent to " + gone.URL, "front " + front.Inbound} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	const told = " refused the connection"
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), gone.URL+told) || !strings.Contains(err.Error(), "front "+front.Inbound) {
		t.Errorf("run says %v", err)
	}
	if strings.Contains(text, "no sidecar saw") {
		t.Errorf("it asks why no sidecar saw what nobody took:\n%s", text)
	}
}

func TestCheckThatSeesNoCall(t *testing.T) {
	m := newMesh(t, map[string]application{"front": plain, "back": plain}, map[string][]string{"front": {"back"}})
	got := check(t, m)
	if got.OK() || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "nothing that a campaign could fault") {
		t.Errorf("%+v", got)
	}
}

func TestPlanInjectsNothing(t *testing.T) {
	m := dispatchMesh(t)
	m.topology.Services = append(m.topology.Services, topology.Service{Name: "unrelated"})
	got, err := Plan(t.Context(), m.config(spec(fetch("GET", m.url("front")))))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Services) != 4 || len(got.Services[0].Sidecars) != 1 {
		t.Errorf("services are %+v", got.Services)
	}
	if got.Trials == 0 || got.Trials != len(got.Candidates) || got.CleanRuns != 3 {
		t.Errorf("%d trials, %d candidates, %d clean runs", got.Trials, len(got.Candidates), got.CleanRuns)
	}
	// Of a finding: two control runs, a confirmation, three contrasts, and an abort in each half
	// right after a clean run.
	if want := 1 + got.Trials/maxPending + 2 + 1 + 3 + 2; got.Controls != want {
		t.Errorf("%d controls, want %d", got.Controls, want)
	}
	if got.OneRun <= 0 || got.Duration < time.Duration(got.Trials)*got.OneRun {
		t.Errorf("a run takes %s, all take %s", got.OneRun, got.Duration)
	}
	if got.Coverage.GetReached() != 0 || got.Coverage.GetSpace() == 0 {
		t.Errorf("coverage: %v", got.Coverage)
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
}

// past sends a client's requests to the application of a service, past its sidecar.
func past(t *testing.T, m *mesh, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(m.sidecars[name].serveApp))
	t.Cleanup(s.Close)
	return s.URL
}

func TestCheckFindsAnEntryThatIsPassedBy(t *testing.T) {
	m := dispatchMesh(t)
	c := m.config(spec(fetch("GET", past(t, m, "front"))))
	got, err := Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := "no request of the client was seen at the sidecar of the entry service front: does the URL go to its inbound address (" +
		m.sidecars["front"].server.Listener.Addr().String() + ")?"
	if got.OK() || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], want) {
		t.Errorf("%+v", got)
	}

	told := &logged{t: t}
	c.Progress = told
	if _, err := Plan(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(told.updates, func(u Update) bool { return u.Warning && strings.Contains(u.Text, want) }) {
		t.Errorf("no warning says %q", want)
	}
}

func TestPlanSaysWhyThereIsNothing(t *testing.T) {
	lonely := newMesh(t, map[string]application{"front": plain, "back": plain}, map[string][]string{"front": {"back"}})
	called := dispatchMesh(t)
	other := spec(fetch("GET", called.url("front")))
	other.Faults = &campaignv1.FaultModel{Callees: []string{"front"}}
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{lonely.config(spec(fetch("GET", lonely.url("front")))), "no call between services was seen"},
		{called.config(other), "faults.callees allows only calls to front, and the clean runs called customer, driver, route"},
		{called.config(spec(fetch("GET", called.url("front")))), ""},
	} {
		got, err := Plan(t.Context(), tc.config)
		if err != nil {
			t.Fatal(err)
		}
		if (tc.want == "") != (got.Nothing == "") || !strings.Contains(got.Nothing, tc.want) {
			t.Errorf("%q, want %q", got.Nothing, tc.want)
		}
	}
}
