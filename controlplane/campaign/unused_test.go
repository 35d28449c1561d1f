package campaign

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// forgetful has a service in the middle that does not forward trace context.
func forgetful(t *testing.T) *mesh {
	forget := func(w http.ResponseWriter, r *http.Request, call caller) {
		r.Header.Del("traceparent")
		call(http.MethodGet, "back", "/")
		reply(w, 1)
	}
	return newMesh(t, map[string]application{"front": relay("mid", "/"), "mid": forget, "back": plain, "deep": plain},
		map[string][]string{"front": {"mid"}, "mid": {"back"}, "back": {"deep"}})
}

// warnings are those of a text that runs of a configuration gave.
func warnings(told *logged, text string) []string {
	var out []string
	for _, u := range told.updates {
		if u.Warning && strings.Contains(u.Text, text) {
			out = append(out, u.Text)
		}
	}
	return out
}

func TestUnusedEdgesAreTold(t *testing.T) {
	const want = "back → deep, mid → back: the workload may need none, or trace context is lost"
	m := forgetful(t)
	c := m.config(spec(fetch("GET", m.url("front"))))
	told := &logged{t: t}
	c.Progress = told
	report := runCampaign(t, c)
	if got := warnings(told, want); len(got) != 1 {
		t.Errorf("run warns %q", got)
	}
	if s := report.GetCoverage().GetStatement(); !report.GetCoverage().GetExhausted() || !strings.Contains(s, ", without the declared back → deep, mid → back, over which no run made a call") {
		t.Errorf("the fault space is %q", s)
	}
	told = &logged{t: t}
	c.Progress = told
	if _, err := Plan(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := warnings(told, want); len(got) != 1 {
		t.Errorf("plan warns %q", got)
	}
}

// TestEdgesOfTrialsAreUsed: what only runs with faults use is part of the fault space.
func TestEdgesOfTrialsAreUsed(t *testing.T) {
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		if status, _ := call(http.MethodGet, "back", "/"); status != http.StatusOK {
			call(http.MethodGet, "backup", "/")
		}
		reply(w, 1)
	}
	m := newMesh(t, map[string]application{"front": front, "back": plain, "backup": plain}, map[string][]string{"front": {"back", "backup"}})
	c := m.config(spec(fetch("GET", m.url("front"))))
	told := &logged{t: t}
	c.Progress = told
	report := runCampaign(t, c)
	if got := warnings(told, "front → backup"); len(got) != 1 {
		t.Errorf("it warns %q", got)
	}
	if s := report.GetCoverage().GetStatement(); strings.Contains(s, "without the declared") {
		t.Errorf("the fault space is %q", s)
	}
}

// TestNoEdgeUnused: beyond the workload's reach nothing is told of.
func TestNoEdgeUnused(t *testing.T) {
	m := newMesh(t, map[string]application{"front": relay("back", "/"), "back": plain, "other": plain},
		map[string][]string{"front": {"back"}, "other": {"back"}})
	c := m.config(spec(fetch("GET", m.url("front"))))
	told := &logged{t: t}
	c.Progress = told
	report := runCampaign(t, c)
	if got := warnings(told, "clean runs made no call"); len(got) > 0 || strings.Contains(report.GetCoverage().GetStatement(), "without the declared") {
		t.Errorf("it warns %q and says %q", got, report.GetCoverage().GetStatement())
	}
}

func TestManyUnusedEdges(t *testing.T) {
	many := slices.Repeat(unused{{Caller: "a", Callee: "b"}}, 7)
	if got, want := many.String(), "a → b, a → b, a → b, a → b, a → b, 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
