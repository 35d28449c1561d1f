package campaign

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

func TestSmallest(t *testing.T) {
	const w3c, b3, b3multi, jaeger = topology.FormatW3C, topology.FormatB3, topology.FormatB3Multi, topology.FormatJaeger
	all := topology.Formats()
	for _, tc := range []struct {
		name    string
		formats []string
		// reach has the edges of each format; 3 of them are wanted.
		reach map[string]string
		want  []string
	}{
		{"all alike", all, map[string]string{w3c: "abc", b3: "abc", b3multi: "abc", jaeger: "abc"}, []string{w3c}},
		{"one of the last", all, map[string]string{w3c: "a", b3: "a", b3multi: "abc", jaeger: "a"}, []string{b3multi}},
		{"whole ids before B3", all, map[string]string{b3: "abc", b3multi: "abc", jaeger: "abc"}, []string{jaeger}},
		{"B3 in one header before several", all, map[string]string{b3: "abc", b3multi: "abc"}, []string{b3}},
		{"two together", all, map[string]string{w3c: "ab", b3: "a", b3multi: "bc", jaeger: "a"}, []string{w3c, b3multi}},
		{"two together, with w3c", all, map[string]string{w3c: "ab", b3: "ab", b3multi: "c", jaeger: "c"}, []string{w3c, jaeger}},
		{"one rather than two", all, map[string]string{w3c: "ab", b3: "abc", jaeger: "c"}, []string{b3}},
		{"three", all, map[string]string{w3c: "a", b3: "b", b3multi: "a", jaeger: "c"}, []string{w3c, b3, jaeger}},
		{"not even all", all, map[string]string{w3c: "a", b3: "b", b3multi: "b", jaeger: "b"}, nil},
		{"of few, in any order", []string{jaeger, w3c}, map[string]string{w3c: "ab", jaeger: "bc", b3: "abc"}, []string{w3c, jaeger}},
	} {
		got := smallest(tc.formats, func(set []string) bool {
			var union strings.Builder
			for _, format := range set {
				union.WriteString(tc.reach[format])
			}
			return !slices.ContainsFunc([]string{"a", "b", "c"}, func(edge string) bool { return !strings.Contains(union.String(), edge) })
		})
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestSteadyPassages(t *testing.T) {
	edge := func(callee, api string) passage { return passage{"front", callee, api, true, true} }
	all, unsteady := steady([]passages{
		{edge("a", ""): 3, edge("a", "GET /1"): 2, edge("a", "GET /2"): 1, edge("b", ""): 4, edge("c", ""): 1},
		{edge("a", ""): 3, edge("a", "GET /1"): 3, edge("b", ""): 5, edge("d", ""): 1},
	})
	want := passages{edge("a", ""): 3, edge("a", "GET /1"): 1, edge("b", ""): 1}
	if len(all.lacking(want)) > 0 || len(want.lacking(all)) > 0 {
		t.Errorf("%v, want %v", all, want)
	}
	if !slices.Equal(unsteady, []passage{edge("c", ""), edge("d", "")}) {
		t.Errorf("unsteady: %v", unsteady)
	}
}

// TestLostCalls: what follows from a loss further up is not told.
func TestLostCalls(t *testing.T) {
	entry, mid := passage{"", "front", "", false, true}, passage{"front", "mid", "", true, true}
	one, two, back := mid, mid, passage{"mid", "back", "", true, true}
	one.api, two.api = "GET /1", "GET /2"
	all := passages{entry: 1, mid: 3, one: 1, two: 2, back: 1}
	for _, tc := range []struct {
		name string
		run  passages
		want []LostCall
	}{
		{"none", all, nil},
		{"more", passages{entry: 2, mid: 4, one: 1, two: 3, back: 1}, nil},
		{"an edge, and what is beyond", passages{entry: 1}, []LostCall{{"front", "mid", "", 0, 3}}},
		{"an API", passages{entry: 1, mid: 2, two: 2, back: 1}, []LostCall{{"front", "mid", "GET /1", 0, 1}}},
		{"a call", passages{entry: 1, mid: 2, one: 1, two: 1, back: 1}, []LostCall{{"front", "mid", "GET /2", 1, 2}}},
		{"between two sidecars", passages{entry: 1, {"front", "mid", "", true, false}: 3}, []LostCall{{"front", "mid", "", 0, 3}}},
		{"everything", passages{}, []LostCall{{"", "front", "", 0, 1}}},
	} {
		if got := all.lost(tc.run); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// keeping is an application that calls callees, each with the headers that it is given only.
func keeping(calls ...[]string) application {
	return func(w http.ResponseWriter, r *http.Request, call caller) {
		all := r.Header.Clone()
		for _, c := range calls {
			clear(r.Header)
			passing(c[2:]...)(all, r.Header)
			call(http.MethodGet, c[0], c[1])
		}
		_, _ = io.WriteString(w, "1")
	}
}

// inB3 calls right in B3, in whichever format it was called.
func inB3(w http.ResponseWriter, r *http.Request, call caller) {
	if id := r.Header.Get("traceparent"); id != "" {
		clear(r.Header)
		r.Header.Set("b3", id[3:52]+"-1")
	}
	call(http.MethodGet, "right", "/")
	_, _ = io.WriteString(w, "1")
}

// TestCheckTellsWhichFormatsAreForwarded: what it says to write into the topology passes.
func TestCheckTellsWhichFormatsAreForwarded(t *testing.T) {
	everything := []string{"traceparent", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "uber-trace-id", "x-trace"}
	multi := everything[2:5]
	left := func(path string, names ...string) []string { return append([]string{"left", path}, names...) }
	right := func(path string, names ...string) []string { return append([]string{"right", path}, names...) }
	for _, tc := range []struct {
		name        string
		front, left application
		propagation []string
		traceHeader string
		// lost has, by format, the first call that is; all others survive.
		lost map[string]LostCall
		want []string
		why  string
		// headers and how many of them are left.
		headers, fewer int
	}{
		{
			name: "w3c", front: keeping(left("/", "traceparent"), right("/", "traceparent")),
			lost: map[string]LostCall{
				"b3": {"front", "left", "", 0, 1}, "b3multi": {"front", "left", "", 0, 1}, "jaeger": {"front", "left", "", 0, 1},
			},
			want: []string{"w3c"}, headers: 5, fewer: 2,
		},
		{
			name: "b3multi", front: keeping(left("/", multi...), right("/", multi...)),
			lost: map[string]LostCall{
				"w3c": {"front", "left", "", 0, 1}, "b3": {"front", "left", "", 0, 1}, "jaeger": {"front", "left", "", 0, 1},
			},
			want: []string{"b3multi"}, headers: 5, fewer: 1,
		},
		{
			name: "all", front: keeping(left("/", everything...), right("/", everything...)),
			want: []string{"w3c"}, headers: 5, fewer: 2,
		},
		{
			name: "mixed services", front: keeping(left("/", "traceparent"), right("/", multi...)),
			lost: map[string]LostCall{
				"w3c": {"front", "right", "", 0, 1}, "b3": {"front", "left", "", 0, 1},
				"b3multi": {"front", "left", "", 0, 1}, "jaeger": {"front", "left", "", 0, 1},
			},
			want: []string{"w3c", "b3multi"}, headers: 5, fewer: 3,
		},
		{
			name:  "mixed calls of an edge",
			front: keeping(left("/a", "traceparent"), left("/b", "traceparent", "uber-trace-id"), left("/c", "uber-trace-id")),
			lost: map[string]LostCall{
				"w3c": {"front", "left", "GET /c", 0, 1}, "b3": {"front", "left", "", 0, 3},
				"b3multi": {"front", "left", "", 0, 3}, "jaeger": {"front", "left", "GET /a", 0, 1},
			},
			want: []string{"w3c", "jaeger"}, headers: 5, fewer: 3,
		},
		{
			name: "each is needed", front: keeping(left("/", "traceparent"), right("/", "b3")), propagation: []string{"b3", "w3c"},
			lost: map[string]LostCall{"w3c": {"front", "right", "", 0, 1}, "b3": {"front", "left", "", 0, 1}},
			why:  "each of them is needed",
		},
		{
			name: "within what the topology has", front: keeping(left("/", everything...)), propagation: []string{"jaeger", "b3"},
			want: []string{"jaeger"}, headers: 2, fewer: 1,
		},
		{
			name: "an own header is always there", front: keeping(left("/", "x-trace"), right("/", "b3")), traceHeader: "x-trace",
			lost: map[string]LostCall{
				"w3c": {"front", "left", "", 0, 1}, "b3": {"front", "left", "", 0, 1}, "b3multi": {"front", "left", "", 0, 1},
				"jaeger": {"front", "left", "", 0, 1}, "x-trace": {"front", "right", "", 0, 1},
			},
			want: []string{"b3"}, headers: 6, fewer: 2,
		},
		{
			name: "passed on in another format", front: keeping(left("/", "traceparent")), left: inB3,
			lost: map[string]LostCall{
				"b3": {"front", "left", "", 0, 1}, "b3multi": {"front", "left", "", 0, 1}, "jaeger": {"front", "left", "", 0, 1},
			},
			want: []string{"w3c", "b3"}, headers: 5, fewer: 3,
		},
		{
			name: "passed on in the only other format", front: keeping(left("/", "traceparent")), left: inB3, propagation: []string{"w3c", "b3"},
			lost: map[string]LostCall{"b3": {"front", "left", "", 0, 1}},
			why:  "w3c seemed enough, but where sidecars look for nothing else calls of left to right are lost",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.left == nil {
				tc.left = plain
			}
			m := newMesh(t, map[string]application{"front": tc.front, "left": tc.left, "right": plain},
				map[string][]string{"front": {"left", "right"}, "left": {"right"}})
			m.narrow = true
			m.topology.Propagation, m.topology.TraceHeader, m.forward = tc.propagation, tc.traceHeader, passing(everything...)
			got := check(t, m)
			f := got.Formats
			if !got.OK() || f == nil {
				t.Fatalf("%+v", got)
			}
			for _, one := range f.Each {
				lost, is := tc.lost[one.Name]
				if len(one.Lost) > 0 != is || is && one.Lost[0] != lost || one.Unknown != "" {
					t.Errorf("%+v, want %+v", one, lost)
				}
			}
			if !slices.Equal(f.Enough, tc.want) || f.Headers != tc.headers || f.Left != tc.fewer || !strings.HasPrefix(f.Why, tc.why) {
				t.Errorf("%v of %d and %d headers, because %q", f.Enough, f.Headers, f.Left, f.Why)
			}
			if !slices.Equal(m.topology.Propagation, tc.propagation) {
				t.Errorf("the topology has changed: %v", m.topology.Propagation)
			}
			if tc.want == nil {
				return
			}
			m.topology.Propagation = tc.want
			again := check(t, m)
			if !again.OK() || (again.Formats == nil) != (len(tc.want) == 1) {
				t.Errorf("once it is written: %+v", again)
			}
			for _, e := range got.Edges {
				if now := edgeOf(t, again, e.Caller, e.Callee); now.State != e.State || now.Calls != e.Calls {
					t.Errorf("once it is written: %+v, was %+v", now, e)
				}
			}
		})
	}
}

// TestCheckOfFormatsWhereAnswersDiffer: what the system itself did not do in a run says nothing
// of the format.
func TestCheckOfFormatsWhereAnswersDiffer(t *testing.T) {
	m := relayMesh(t)
	sound, runs := m.sidecars["front"].app, 0
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		if runs++; runs == 3 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		sound(w, r, call)
	}
	f := check(t, m).Formats
	if f == nil || f.Enough != nil || f.Each[0].Unknown != "step 1: HTTP 503, and HTTP 200 before" || f.Each[1].Unknown != "" {
		t.Errorf("%+v", f)
	}
}

// TestCheckOfFormatsOfACommand: what it sends beside is its own affair, and said.
func TestCheckOfFormatsOfACommand(t *testing.T) {
	m := relayMesh(t)
	m.forward = passing("traceparent", "b3")
	c := m.config(spec(named("first", "GET", m.url("front")), &campaignv1.Step{
		Name: "test", Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
			Argv: []string{os.Args[0], "-test.run=^TestAstrayChild$"}, Env: map[string]string{"ASTRAY_TARGET": m.url("front")},
		}},
	}))
	c.ReportTimeout = 50 * time.Millisecond
	got, err := Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	f := got.Formats
	if f == nil || !slices.Equal(f.Commands, []string{"test"}) || !slices.Equal(f.Enough, []string{"w3c"}) ||
		len(f.Each[1].Lost) > 0 || len(f.Each[2].Lost) == 0 {
		t.Errorf("%+v, problems %q", f, got.Problems)
	}
}

// TestCheckOfOneFormat: there is nothing to find out, and the requests are sent no more than twice.
func TestCheckOfOneFormat(t *testing.T) {
	for _, tc := range []struct {
		propagation []string
		runs        int
	}{{[]string{"w3c"}, 2}, {[]string{"w3c", "b3"}, 2 + 2 + 1}, {nil, 2 + 4 + 1}} {
		m := relayMesh(t)
		m.topology.Propagation = tc.propagation
		runs, sound := 0, m.sidecars["front"].app
		m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
			runs++
			sound(w, r, call)
		}
		if got := check(t, m); !got.OK() || (got.Formats == nil) != (tc.runs == 2) || runs != tc.runs {
			t.Errorf("%v: %d runs, %+v", tc.propagation, runs, got.Formats)
		}
	}
}

// TestCheckOfFormatsOfABrokenSystem: where a campaign could not begin, nothing is advised.
func TestCheckOfFormatsOfABrokenSystem(t *testing.T) {
	m := relayMesh(t)
	sound := m.sidecars["front"].app
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		sound(&statusOnly{w, http.StatusBadGateway}, r, call)
	}
	if got := check(t, m); !got.OK() || got.Formats != nil || got.Answers[0].GetStatus() != http.StatusBadGateway {
		t.Errorf("refused: %+v", got)
	}

	m = relayMesh(t)
	c := m.config(spec(fetch(http.MethodGet, m.url("front"))))
	c.Spec.Oracle = &campaignv1.Oracle{Invariants: []*campaignv1.Invariant{{Name: "created", Cel: "answer.status == 201"}}}
	got, err := Check(t.Context(), c)
	if err != nil || got.Formats != nil || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], `"created" in run 1`) {
		t.Errorf("an invariant that does not hold: %+v, %v", got, err)
	}
}

// statusOnly is an answer with another status.
type statusOnly struct {
	http.ResponseWriter
	status int
}

func (w *statusOnly) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }

func (w *statusOnly) Write(b []byte) (int, error) {
	w.WriteHeader(0)
	return w.ResponseWriter.Write(b)
}

// TestCheckBrokenOff: what was found out before is told.
func TestCheckBrokenOff(t *testing.T) {
	m := relayMesh(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs, sound := 0, m.sidecars["front"].app
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		if runs++; runs == 4 {
			cancel()
		}
		sound(w, r, call)
	}
	got, err := Check(ctx, m.config(spec(fetch(http.MethodGet, m.url("front")))))
	if !errors.Is(err, context.Canceled) || got == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if f := got.Formats; len(got.Edges) == 0 || f == nil || len(f.Each) != 1 || f.Enough != nil || !strings.Contains(f.Why, "broken off") {
		t.Errorf("%+v, %+v", got, f)
	}
}
