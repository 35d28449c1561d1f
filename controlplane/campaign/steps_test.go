package campaign

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// TestStepsOfSharedTraces: a call whose trace id no step has for itself, as B3's of 64 bits,
// belongs to the step whose request set it off.
func TestStepsOfSharedTraces(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	m := marks{of: map[string]int{"first": 0, "third": 2}, starts: []time.Time{at(0), at(10), at(20), at(30)}}
	type seen struct {
		entry bool
		trace string
		at    int
		want  int
	}
	for name, calls := range map[string][]seen{
		"the entries' traces are their own": {
			{true, "first", 1, 0}, {false, "shared", 1, 0}, {true, "third", 21, 2}, {false, "shared", 21, 2}, {false, "first", 22, 0},
		},
		"a clock that is wrong": {
			{true, "first", 500, 0}, {false, "shared", 500, 0}, {true, "third", -500, 2}, {false, "shared", -500, 2}, {true, "shared", -400, 2},
		},
		"all traces are shared": {
			{true, "shared", 1, 0}, {false, "shared", 9, 0}, {true, "shared", 10, 1}, {false, "shared", 25, 1}, {true, "shared", 99, 3},
		},
	} {
		trial := &trace.Trial{}
		var got, want []int
		for i, c := range calls {
			one := trace.Call{ClientReq: i, ServerReq: trace.None, Spans: []string{c.trace + "/1"}}
			role := tfiv1.Role_ROLE_CLIENT
			if c.entry {
				one.ClientReq, one.ServerReq, role = trace.None, i, tfiv1.Role_ROLE_SERVER
			}
			trial.Calls = append(trial.Calls, one)
			trial.Events = append(trial.Events, trace.Event{Op: trace.Op{Role: role}, Call: i, Request: i, Time: at(c.at)})
			want = append(want, c.want)
		}
		got, _ = m.assign(trial)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestStepsByTheCallersCount: calls that neither a trace nor a span names belong to the step that
// their caller was serving, whatever the clocks say of other services.
func TestStepsByTheCallersCount(t *testing.T) {
	m := marks{spans: map[string]int{"1": 0, "2": 1}, starts: []time.Time{time.Unix(10, 0), time.Unix(20, 0)}}
	const server, client = tfiv1.Role_ROLE_SERVER, tfiv1.Role_ROLE_CLIENT
	const req, resp = tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP
	type event struct {
		call  int
		role  tfiv1.Role
		phase tfiv1.Phase
		fired string
	}
	for _, tc := range []struct {
		name   string
		events []event
		want   []int
		unsure bool
	}{
		{"while it serves it", []event{
			{0, server, req, ""}, {2, client, req, ""}, {0, server, resp, ""}, {1, server, req, ""}, {3, client, req, ""}, {1, server, resp, ""},
		}, []int{0, 1, 0, 1}, false},
		{"after it has answered", []event{
			{0, server, req, ""}, {0, server, resp, ""}, {2, client, req, ""}, {1, server, req, ""}, {1, server, resp, ""}, {3, client, req, ""},
		}, []int{0, 1, 0, 1}, false},
		{"beside one that a fault took the place of", []event{
			{0, server, req, "f"}, {1, server, req, ""}, {2, client, req, ""}, {3, client, req, ""}, {1, server, resp, ""},
		}, []int{0, 1, 1, 1}, false},
		{"while it serves two", []event{
			{0, server, req, ""}, {1, server, req, ""}, {2, client, req, ""}, {1, server, resp, ""}, {3, client, req, ""}, {0, server, resp, ""},
		}, []int{0, 1, 1, 0}, true},
	} {
		trial := &trace.Trial{Calls: []trace.Call{
			{ClientReq: trace.None, Parent: "shared/1", Spans: []string{"shared/a"}},
			{ClientReq: trace.None, Parent: "shared/2", Spans: []string{"shared/b"}},
			{Parent: "shared/7", Spans: []string{"shared/c"}},
			{Parent: "shared/8", Spans: []string{"shared/d"}},
		}}
		requests := make(map[int]int)
		for i, e := range tc.events {
			if e.phase == req {
				requests[e.call] = i
			}
			trial.Events = append(trial.Events, trace.Event{
				Op: trace.Op{Role: e.role, Phase: e.phase}, Call: e.call, Request: requests[e.call], Seq: uint64(i + 1),
				Fired: e.fired, Time: time.Unix(99, 0),
			})
		}
		got, unsure := m.assign(trial)
		if diff := cmp.Diff(tc.want, got); diff != "" || (unsure != "") != tc.unsure {
			t.Errorf("%s: unsure %q; -want +got:\n%s", tc.name, unsure, diff)
		}
	}
}

func named(name, method, url string) *campaignv1.Step {
	step := fetch(method, url)
	step.Name = name
	return step
}

// anew is what a tracer does that reads B3 and makes a span of its own for each call.
func anew(in, out http.Header) {
	id := in.Get("x-b3-traceid")
	if single, _, ok := strings.Cut(in.Get("b3"), "-"); ok {
		id = single
	}
	if id != "" {
		out.Set("b3", fmt.Sprintf("%s-%016x-1", id, rand.Uint64()|1)) //nolint:gosec // a test's span id
	}
}

// b3Systems are those in which calls are known by B3's trace id, which all steps share.
var b3Systems = []struct {
	name    string
	formats []string
	forward func(in, out http.Header)
}{
	{"applications pass on b3", nil, passing("b3")},
	{"applications make spans of b3", nil, anew},
	{"b3", []string{topology.FormatB3}, passing("b3")},
	{"b3, and spans anew", []string{topology.FormatB3}, anew},
	{"b3multi", []string{topology.FormatB3Multi}, passing("x-b3-traceid", "x-b3-spanid", "x-b3-sampled")},
	{"b3multi, and spans anew", []string{topology.FormatB3Multi}, anew},
	{"b3 and b3multi", []string{topology.FormatB3, topology.FormatB3Multi}, passing("b3")},
}

// shop is a system with two entries: front charges, and web asks for prices.
func shop(t *testing.T) *mesh {
	return newMesh(t, map[string]application{
		"front": func(w http.ResponseWriter, _ *http.Request, call caller) {
			if status, _ := call(http.MethodPost, "bank", "/charge"); status != http.StatusOK {
				http.Error(w, "sorry", http.StatusServiceUnavailable)
				return
			}
			reply(w, map[string]int{"paid": 1})
		},
		"web": func(w http.ResponseWriter, _ *http.Request, call caller) {
			if status, _ := call(http.MethodGet, "prices", "/"); status != http.StatusOK {
				http.Error(w, "sorry", http.StatusServiceUnavailable)
				return
			}
			reply(w, map[string]int{"n": 1})
		},
		"bank": plain, "prices": plain,
	}, map[string][]string{"front": {"bank"}, "web": {"prices"}})
}

// TestCheckMissesAnyStep: where all steps share a trace id, a step that no sidecar has reported,
// or none can, is missed all the same.
func TestCheckMissesAnyStep(t *testing.T) {
	for _, system := range b3Systems {
		t.Run(system.name, func(t *testing.T) {
			for _, tc := range []struct {
				name string
				// lost service's reports do not come; past: the second step goes past its sidecar.
				lost string
				past bool
				want string
			}{
				{name: "sound"},
				{name: "lost", lost: "web", want: "no sidecar reported"},
				{name: "past", past: true, want: "step show: no sidecar saw its request; send it to a sidecar's inbound address"},
			} {
				m := newMesh(t, map[string]application{"front": relay("back", "/"), "back": plain, "web": plain},
					map[string][]string{"front": {"back"}})
				m.topology.Propagation, m.forward = system.formats, system.forward
				m.lose = func(r *tfi.Record) bool { return r.Service == tc.lost }
				url := m.url("web")
				if tc.past {
					url = past(t, m, "web")
				}
				c := m.config(spec(named("pay", "GET", m.url("front")), named("show", "GET", url)))
				c.ReportTimeout = 50 * time.Millisecond
				got, err := Check(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				text := got.Incomplete + "\n" + strings.Join(got.Problems, "\n")
				if got.OK() != (tc.want == "") || !strings.Contains(text, tc.want) {
					t.Errorf("%s: OK %v, incomplete %q, problems %q", tc.name, got.OK(), got.Incomplete, got.Problems)
				}
				if strings.Contains(text, "step pay") {
					t.Errorf("%s: it tells of the step that is sound: %s", tc.name, text)
				}
			}
		})
	}
}

// TestCheckOfSpansMadeOnTheWay: a proxy in front that has a tracer of its own leaves nothing by
// which steps could be told apart, and that is said.
func TestCheckOfSpansMadeOnTheWay(t *testing.T) {
	m := relayMesh(t)
	m.topology.Propagation, m.forward = []string{topology.FormatB3}, passing("b3")
	target, err := url.Parse(m.url("front"))
	if err != nil {
		t.Fatal(err)
	}
	gateway := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		anew(r.In.Header, r.Out.Header)
	}, Transport: oneShot})
	t.Cleanup(gateway.Close)
	for n, want := range map[int]string{1: "", 2: "no sidecar saw its request with the span that it was sent with"} {
		c := m.config(spec([]*campaignv1.Step{named("one", "GET", gateway.URL), named("two", "GET", gateway.URL)}[:n]...))
		c.ReportTimeout = 50 * time.Millisecond
		got, err := Check(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got.Problems, "\n"); got.OK() != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%d steps: incomplete %q, problems %q", n, got.Incomplete, got.Problems)
		}
	}
}

// TestRunWaitsForEachStep: a trial is not judged before its last step was reported, and says
// nothing if it never is.
func TestRunWaitsForEachStep(t *testing.T) {
	for _, system := range b3Systems {
		t.Run(system.name, func(t *testing.T) {
			m := shop(t)
			m.topology.Propagation, m.forward = system.formats, system.forward
			m.sidecars["front"].app = plain
			// web hides that it got no prices.
			m.sidecars["web"].app = func(w http.ResponseWriter, _ *http.Request, call caller) {
				if status, _ := call(http.MethodGet, "prices", "/"); status != http.StatusOK {
					reply(w, nil)
					return
				}
				reply(w, map[string]int{"n": 1})
			}
			var late sync.WaitGroup
			defer late.Wait()
			fired := make(map[tfi.Key]bool)
			m.lose = func(r *tfi.Record) bool {
				fired[r.Key] = fired[r.Key] || r.Fired != nil
				if r.Service != "web" || !fired[r.Key] {
					return false
				}
				record := *r
				late.Add(1)
				time.AfterFunc(400*time.Millisecond, func() {
					defer late.Done()
					m.keep(&span.Span{Record: &record, Epoch: m.sidecars["web"].start.UnixNano()})
				})
				return true
			}
			got := runCampaign(t, m.config(spec(named("pay", "GET", m.url("front")), named("show", "GET", m.url("web")))))
			if len(got.GetFindings()) != 1 {
				t.Fatalf("%d findings", len(got.GetFindings()))
			}
			for _, trial := range candidates(got) {
				if len(trial.GetFired()) != 1 || trial.GetVerdict() != campaignv1.Verdict_VERDICT_EFFECTIVE {
					t.Errorf("%s: fired %q, %v: %s", ids(trial), trial.GetFired(), trial.GetVerdict(), trial.GetReason())
				}
			}
		})
	}
}

// TestCallsCountToTheirStep: a charge that a step has made before another was refused is no
// effect that the refusal left, however wrong the clocks of the steps' services are.
func TestCallsCountToTheirStep(t *testing.T) {
	for _, system := range b3Systems {
		t.Run(system.name, func(t *testing.T) {
			for _, ahead := range []time.Duration{20 * time.Millisecond, -time.Minute} {
				m := shop(t)
				m.topology.Propagation, m.forward = system.formats, system.forward
				m.skew = map[string]time.Duration{"front": ahead}
				got := runCampaign(t, m.config(spec(named("pay", "POST", m.url("front")+"/pay"), named("show", "GET", m.url("web")+"/show"))))
				var outcomes []string
				for _, f := range slices.Concat(got.GetFindings(), got.GetDegraded()) {
					outcomes = append(outcomes, f.GetSignature().GetSummary())
				}
				slices.Sort(outcomes)
				if diff := cmp.Diff([]string{
					"Step pay: refused with HTTP 503, with nothing left behind.",
					"Step pay: refused with HTTP 503, yet bank POST /charge succeeded once and nothing undid it.",
					"Step show: refused with HTTP 503, with nothing left behind.",
				}, outcomes); diff != "" {
					t.Errorf("front is %v ahead: -want +got:\n%s", ahead, diff)
				}
			}
		})
	}
}
