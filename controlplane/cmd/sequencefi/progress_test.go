package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestProgressLines(t *testing.T) {
	out := newLines()
	p := newProgress(out)
	signature := &campaignv1.OutcomeSignature{Summary: "it\x1b[31m broke", Class: campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING}
	p.Update(campaign.Update{Stage: campaign.StageFleet, Text: "waiting for 2"})
	p.Update(campaign.Update{Stage: campaign.StageLoad})
	for _, done := range []int{0, 2, 2} {
		p.Update(campaign.Update{Stage: campaign.StageLoad, Done: done, Planned: 4})
	}
	p.Update(campaign.Update{Stage: campaign.StageClean, Done: 1, Planned: 5})
	p.Update(campaign.Update{Stage: campaign.StageClean, Text: "odd", Warning: true})
	p.Update(campaign.Update{Stage: campaign.StageSearch, Done: 1, Planned: 9, Trial: &campaignv1.Trial{}})
	p.Update(campaign.Update{Stage: campaign.StageSearch, Done: 2, Planned: 9, Finding: &campaignv1.Finding{Id: "F1", Signature: signature}})
	p.Update(campaign.Update{Stage: campaign.StageSearch, Finding: &campaignv1.Finding{Id: "D1", Signature: &campaignv1.OutcomeSignature{
		Summary: "refused", Class: campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED,
	}}})
	p.Update(campaign.Update{Stage: campaign.StageDone, Text: "stopped"})
	p.close()
	got := regexp.MustCompile(`(?m)^ *\d+\.\ds  `).ReplaceAllString(out.String(), "")
	want := "waiting for 2\nloading the plugin into the sidecars\nloading the plugin into the sidecars: 2 of 4\nclean runs\nwarning: odd\ntrials\nfinding F1: it·[31m broke\ndegraded D1: refused\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSlowLoadingIsExplained, where there is an Envoy that loads anything.
func TestSlowLoadingIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		told  string
		since time.Duration
		done  int
		why   bool
	}{
		"slow":       {"", time.Minute, 0, true},
		"at first":   {"", 0, 1, false},
		"all loaded": {"", time.Minute, 4, false},
		"no Envoy":   {"giving the sidecars their first policy", time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			out := newLines()
			p := newProgress(out)
			p.Update(campaign.Update{Stage: campaign.StageLoad, Text: tc.told})
			p.entered, p.said = time.Now().Add(-tc.since), time.Time{}
			p.Update(campaign.Update{Stage: campaign.StageLoad, Done: tc.done, Planned: 4})
			p.close()
			if got := out.String(); strings.Contains(got, "4 to 6 s of CPU") != tc.why || !strings.Contains(got, "of 4") {
				t.Errorf("it says\n%s", got)
			}
		})
	}
}

// TestRateCountsTrials: control runs and those of a contrast are none.
func TestRateCountsTrials(t *testing.T) {
	p := newProgress(newLines())
	p.Update(campaign.Update{Stage: campaign.StageSearch, Planned: 40})
	p.searched = time.Now().Add(-10 * time.Second)
	for done := range 21 {
		p.Update(campaign.Update{Stage: campaign.StageSearch, Trial: &campaignv1.Trial{Purpose: "control"}})
		p.Update(campaign.Update{Stage: campaign.StageSearch, Trial: &campaignv1.Trial{}, Done: done, Planned: 40})
	}
	if got := p.rate(); got != ", 2.0 trials/s" {
		t.Errorf("20 trials in 10 s are %q", got)
	}
	p.Update(campaign.Update{Stage: campaign.StageContrast, Done: 1, Planned: 3})
	if got := p.rate(); got != "" {
		t.Errorf("a contrast has a rate: %q", got)
	}
	p.close()
}

func TestFindingsAreWritten(t *testing.T) {
	dir := t.TempDir()
	top, err := topology.Parse([]byte("services: [{name: shop}, {name: pay}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	witness := &campaignv1.Trial{Tfics: []*tfiv1.Tfic{{
		Id:     "x",
		Target: &tfiv1.StaticConfiguration{Caller: "shop", Callee: "pay", Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ},
		Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
	}}}
	r := &campaignv1.CampaignReport{
		Spec: &campaignv1.CampaignSpec{Name: "a", Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{{
			Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Url: "http://127.0.0.1:1/"}},
		}}}},
		Findings: []*campaignv1.Finding{{Id: "F1", Signature: &campaignv1.OutcomeSignature{Id: "00000000000000f1"}, Witnesses: []*campaignv1.Trial{witness}}},
		Degraded: []*campaignv1.Finding{
			{Id: "../D1", Signature: &campaignv1.OutcomeSignature{Id: "00000000000000d1"}, Witnesses: []*campaignv1.Trial{witness}},
			{Id: "D2"},
		},
	}
	old := write(t, filepath.Join(dir, findingsDir, "F7.yaml"), "old")
	kept := write(t, filepath.Join(dir, findingsDir, "notes.txt"), "mine")
	if err := writeFindings(r, top, dir, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("a finding of an earlier campaign is still there")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("a file that is not ours is gone")
	}
	for i, f := range append(r.GetFindings(), r.GetDegraded()[:1]...) {
		replay, _, err := campaign.LoadReplay(f.GetReplayFile())
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		if replay.GetSignature().GetId() != f.GetSignature().GetId() {
			t.Errorf("%s replays %s", f.GetReplayFile(), replay.GetSignature().GetId())
		}
	}
	if got := r.GetDegraded()[0].GetReplayFile(); filepath.Dir(got) != filepath.Join(dir, findingsDir) {
		t.Errorf("a replay file was written to %s", got)
	}
	if len(r.GetFindings()) != 1 || len(r.GetDegraded()) != 2 {
		t.Error("the report's lists changed")
	}
}

// TestAThrowawaySystemIsNotReplayedOn keeps the replay file, and shows no command with it.
func TestAThrowawaySystemIsNotReplayedOn(t *testing.T) {
	top, err := topology.Parse([]byte("services: [{name: shop}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, throwaway := range []bool{false, true} {
		dir := t.TempDir()
		var out strings.Builder
		a := &app{stdout: &out, stderr: io.Discard, throwaway: throwaway}
		trial := &campaignv1.Trial{Purpose: "candidate", Fired: []string{"x"}, Tfics: []*tfiv1.Tfic{{
			Id:     "x",
			Target: &tfiv1.StaticConfiguration{Caller: "shop", Callee: "pay", Api: "GET /", Phase: tfiv1.Phase_PHASE_REQ},
			Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
		}}}
		r := &campaignv1.CampaignReport{
			Spec: &campaignv1.CampaignSpec{Name: "a", Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{{
				Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Url: "http://127.0.0.1:1/"}},
			}}}},
			Trials:   []*campaignv1.Trial{trial},
			Findings: []*campaignv1.Finding{{Id: "F1", Signature: &campaignv1.OutcomeSignature{Id: "00000000000000f1"}, Witnesses: []*campaignv1.Trial{trial}}},
		}
		if err := a.finish(r, top, dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := campaign.LoadReplay(filepath.Join(dir, findingsDir, "F1.yaml")); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, report.HTMLFile))
		if err != nil {
			t.Fatal(err)
		}
		for where, text := range map[string]string{"terminal": out.String(), "page": string(page)} {
			if shown := strings.Contains(text, "sequencefi replay"); shown == throwaway {
				t.Errorf("throwaway %v: the %s shows a command: %v", throwaway, where, shown)
			}
		}
	}
}

// Where the new replay files cannot be written, those of an earlier campaign stay.
func TestFindingsSurviveAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	top, err := topology.Parse([]byte("services: [{name: shop}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	old := write(t, filepath.Join(dir, findingsDir, "F1.yaml"), "old")
	write(t, filepath.Join(dir, findingsDir, "F1.yaml.new", "in-the-way"), "") // a directory where the new file should be
	r := &campaignv1.CampaignReport{Findings: []*campaignv1.Finding{{Id: "F1", Witnesses: []*campaignv1.Trial{{}}}}}
	if err := writeFindings(r, top, dir, false); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "old" {
		t.Errorf("the earlier file has %q, %v", b, err)
	}
}

func TestExitCodeOfACampaign(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict     campaignv1.Verdict // unspecified: there is no trial
		findings    int
		interrupted string
		want        int
	}{
		"nothing to inject": {want: exitIncomplete},
		"nothing fired":     {verdict: campaignv1.Verdict_VERDICT_MISSED, want: exitIncomplete},
		"tolerated":         {verdict: campaignv1.Verdict_VERDICT_TOLERATED, want: exitNothing},
		"findings":          {verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, findings: 1, want: exitFindings},
		"stopped":           {verdict: campaignv1.Verdict_VERDICT_TOLERATED, interrupted: "stopped", want: exitIncomplete},
		"findings, stopped": {verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, findings: 1, interrupted: "stopped", want: exitIncomplete},
		"findings, broken":  {verdict: campaignv1.Verdict_VERDICT_EFFECTIVE, findings: 1, interrupted: "the solver is gone", want: exitIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			a := &app{stdout: io.Discard, stderr: io.Discard}
			r := &campaignv1.CampaignReport{Spec: &campaignv1.CampaignSpec{Name: "c"}, Interrupted: tc.interrupted}
			r.Findings = slices.Repeat([]*campaignv1.Finding{{Id: "F1"}}, tc.findings)
			if tc.verdict != campaignv1.Verdict_VERDICT_UNSPECIFIED {
				trial := &campaignv1.Trial{Verdict: tc.verdict}
				if tc.verdict != campaignv1.Verdict_VERDICT_MISSED {
					trial.Fired = []string{"f"}
				}
				r.Trials = append(r.Trials, trial)
			}
			if err := a.finish(r, &topology.Topology{}, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			if a.code != tc.want {
				t.Errorf("exit code %d, want %d", a.code, tc.want)
			}
		})
	}
}

// TestARunWithoutTrialsReplacesNothing: it is stopped early, or has no sidecars.
func TestARunWithoutTrialsReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	finding := write(t, filepath.Join(dir, findingsDir, "F1.yaml"), "earlier")
	page := write(t, filepath.Join(dir, report.HTMLFile), "earlier")
	spec := &campaignv1.CampaignSpec{Name: "c"}
	var out strings.Builder
	a := &app{stdout: &out, stderr: io.Discard}
	if err := a.finish(&campaignv1.CampaignReport{Spec: spec, Interrupted: "stopped"}, &topology.Topology{}, dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{finding, page} {
		if b, err := os.ReadFile(path); err != nil || string(b) != "earlier" {
			t.Errorf("%s is %q, %v", path, b, err)
		}
	}
	if got := out.String(); a.code != exitIncomplete || !strings.Contains(got, "left as they are") || strings.Contains(got, report.HTMLFile) {
		t.Errorf("exit code %d\n%s", a.code, got)
	}

	trials := []*campaignv1.Trial{{Verdict: campaignv1.Verdict_VERDICT_TOLERATED, Fired: []string{"f"}}}
	if err := a.finish(&campaignv1.CampaignReport{Spec: spec, Trials: trials}, &topology.Topology{}, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(finding); err == nil {
		t.Error("a run with trials leaves an earlier run's findings")
	}
	if !hasResults(dir) {
		t.Error("a report with trials counts for nothing")
	}
}

// TestAStoppedRunReplacesNoCompleteOne writes beside what a complete run found, and says so.
func TestAStoppedRunReplacesNoCompleteOne(t *testing.T) {
	dir := t.TempDir()
	spec := &campaignv1.CampaignSpec{Name: "c"}
	trials := []*campaignv1.Trial{{Verdict: campaignv1.Verdict_VERDICT_TOLERATED, Fired: []string{"f"}}}
	run := func(interrupted string) (said, kept, beside string) {
		var out strings.Builder
		a := &app{stdout: &out, stderr: io.Discard}
		r := &campaignv1.CampaignReport{Spec: spec, Trials: trials, Interrupted: interrupted}
		if err := a.finish(r, &topology.Topology{}, dir); err != nil {
			t.Fatal(err)
		}
		page := func(parts ...string) string {
			b, err := os.ReadFile(filepath.Join(append(append([]string{dir}, parts...), report.JSONFile)...))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return string(b)
		}
		return out.String(), page(), page(interruptedDir)
	}
	if _, kept, beside := run("stopped first"); !strings.Contains(kept, "stopped first") || beside != "" {
		t.Errorf("where nothing was: %q, beside it %q", kept, beside)
	}
	if _, kept, _ := run("stopped again"); !strings.Contains(kept, "stopped again") {
		t.Errorf("where a stopped run's was: %q", kept)
	}
	if _, kept, beside := run(""); strings.Contains(kept, "stopped") || beside != "" {
		t.Errorf("of a complete run: %q, beside it %q", kept, beside)
	}
	said, kept, beside := run("stopped late")
	if strings.Contains(kept, "stopped") || !strings.Contains(beside, "stopped late") {
		t.Errorf("where a complete run's was: %q, beside it %q", kept, beside)
	}
	if !strings.Contains(said, "is left as it is") || !strings.Contains(said, filepath.Join(dir, interruptedDir, report.HTMLFile)) {
		t.Errorf("it says\n%s", said)
	}
}

func TestShownTexts(t *testing.T) {
	var plan, check strings.Builder
	showPlan(&plan, &campaign.Planned{
		Services: []campaign.PlannedService{{Name: "shop", Calls: 1, Sidecars: []campaign.Sidecar{
			{Instance: "shop-1", Proxy: "envoy 1.40.0"}, {Instance: "shop-2", Proxy: "tfiproxy 1.0"}, {Instance: "shop-3", Proxy: "tfiproxy"},
		}}},
		Leaves: []string{"stock"}, CleanRuns: 5, Trials: 12, Controls: 3, BudgetTrials: 10,
		Coverage: &campaignv1.Coverage{Space: 48},
	}, true)
	for _, want := range []string{"shop", "1 call in a clean run", "shop-1 (envoy 1.40.0)", "stock", "no sidecar", "each of 1 Envoy", "94 MiB", "nothing is loaded into 2 native sidecars", "12 trials", "48 points", "the budget ends it earlier", "candidates"} {
		if !strings.Contains(plan.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, plan.String())
		}
	}
	plan.Reset()
	showPlan(&plan, &campaign.Planned{Nothing: "no call was seen"}, true)
	if got := plan.String(); !strings.Contains(got, "there is nothing to fault: no call was seen") || strings.Contains(got, "trials") {
		t.Errorf("a plan of nothing:\n%s", got)
	}
	showCheck(&check, &campaign.Checked{
		Edges: []campaign.Edge{
			{Callee: "shop", State: campaign.EdgeOK, Calls: 1},
			{Caller: "shop", Callee: "pay", State: campaign.EdgeLost, Calls: 2, Declared: true, Why: "headers are lost", Costs: "much"},
		},
		Sidecars: []campaign.Sidecar{{Service: "pay", Instance: "1", Connected: true, Refused: "too old"}, {Service: "shop", Instance: "1"}},
		Answers:  []*campaignv1.Answer{{Step: "a", Status: 200}, {Step: "b", Error: "timeout"}, {Step: "c", ExitCode: 2}},
		Problems: []string{"one\x1bmore", "step b: no answer: timeout"}, Incomplete: "a gap",
	})
	for _, want := range []string{"client → shop", "lost", "headers are lost", "it costs: much", "too old", "gone", "HTTP 200", "none: timeout", "exit code 2", "problem: one·more", "incomplete: a gap"} {
		if !strings.Contains(check.String(), want) {
			t.Errorf("the check does not say %q:\n%s", want, check.String())
		}
	}
	if strings.Contains(check.String(), "all is well") {
		t.Error("all is well, it says")
	}
	// c is a command that fails; b, which has no answer, is a problem by itself.
	if strings.Count(check.String(), "clean answers are") != 1 {
		t.Errorf("refusals:\n%s", check.String())
	}
	check.Reset()
	showCheck(&check, &campaign.Checked{Edges: []campaign.Edge{
		{Caller: "shop", Callee: "pay", State: campaign.EdgeOK, Calls: 1, Declared: true},
		{Caller: "shop", Callee: "stock", State: campaign.EdgeUnseen, Declared: true},
	}})
	if got := check.String(); strings.Contains(got, "all is well") || !strings.Contains(got, "unseen edges") {
		t.Errorf("an edge is unseen:\n%s", got)
	}
}

// TestShownFormats: what to write into the topology stands there as it is to be written.
func TestShownFormats(t *testing.T) {
	const all = "survives over every edge above that was used\n"
	lost := func(apis ...string) (out []campaign.LostCall) {
		for _, api := range apis {
			out = append(out, campaign.LostCall{Caller: "shop", Callee: "pay", API: api, Of: 1})
		}
		return out
	}
	for name, tc := range map[string]struct {
		formats *campaign.Formats
		state   campaign.EdgeState
		want    string
	}{
		"none": {nil, campaign.EdgeOK, ""},
		"enough": {
			&campaign.Formats{
				Each: []campaign.Format{
					{Name: "w3c"},
					{Name: "b3", Lost: lost("")},
					{Name: "b3multi", Lost: lost("GET /1", "GET /2", "GET /3", "GET /4", "GET /5")},
					{Name: "jaeger", Lost: []campaign.LostCall{{Callee: "shop", API: "GET /", Seen: 1, Of: 2}}, Unknown: "step a: HTTP 503, and HTTP 200 before"},
				},
				Enough: []string{"w3c", "b3multi"}, Headers: 5, Left: 3,
			}, campaign.EdgeOK,
			"trace formats\n" +
				"  w3c       " + all +
				"  b3        lost over shop → pay\n" +
				"  b3multi   lost over shop → pay GET /1, shop → pay GET /2, shop → pay GET /3, 2 more\n" +
				"  jaeger    not known: not seen over client → shop GET / (1 of 2 calls seen), but its run was another one: step a: HTTP 503, and HTTP 200 before\n" +
				"you may write `propagation: [w3c, b3multi]` into the topology: Envoys then look for 3 headers in every ordinary request instead of 5 (a run with that lost nothing)\n",
		},
		"unsure": {
			&campaign.Formats{
				Each: []campaign.Format{{Name: "w3c"}}, Enough: []string{"w3c"},
				Unsteady: []campaign.Edge{{Caller: "shop", Callee: "cache"}}, Commands: []string{"test", "more"},
			}, campaign.EdgeUnseen,
			"trace formats\n" +
				"  w3c       " + all +
				"  not known of shop → cache, which not every ordinary run used\n" +
				"  a command (step test, more) may send trace headers of its own making beside the one format of a run\n" +
				"you may write `propagation: [w3c]` into the topology: a trial's requests then carry no other format, and that is all: TFIProxies look for every one anyhow (a run with that lost nothing; the unseen edges may need more: see first why they are)\n",
		},
		"own header": {
			&campaign.Formats{Each: []campaign.Format{{Name: "w3c", Lost: lost("")}, {Name: "x-correlation-id"}}, Enough: []string{"w3c"}, Headers: 6, Left: 3},
			campaign.EdgeOK,
			"trace formats\n" +
				"  w3c               lost over shop → pay\n" +
				"  x-correlation-id  " + all +
				"you may write `propagation: [w3c]` into the topology: Envoys then look for 3 headers in every ordinary request instead of 6 (a run with that lost nothing: x-correlation-id is enough by itself, and one format is the least that a topology has)\n",
		},
		"nothing less": {
			&campaign.Formats{Each: []campaign.Format{{Name: "w3c"}}, Why: "each of them is needed"}, campaign.EdgeOK,
			"trace formats\n" +
				"  w3c       " + all +
				"  the topology's propagation stays as it is: each of them is needed\n",
		},
	} {
		var out strings.Builder
		showCheck(&out, &campaign.Checked{Edges: []campaign.Edge{{Caller: "shop", Callee: "pay", State: tc.state, Declared: true}}, Formats: tc.formats})
		_, got, _ := strings.Cut(out.String(), "0 calls\n")
		got, _, _ = strings.Cut(got, "all is well")
		got, _, _ = strings.Cut(got, "nothing is wrong")
		if got != tc.want {
			t.Errorf("%s: it says\n%s", name, got)
		}
	}
}

// TestShownPropagation: what the topology does not have requests carry may be what is missed.
func TestShownPropagation(t *testing.T) {
	const hint = "requests carried w3c and b3 only, by the topology's propagation: without that line check tries all formats\n"
	carried := []string{"w3c", "b3"}
	edge := func(state campaign.EdgeState) []campaign.Edge {
		return []campaign.Edge{{Caller: "shop", Callee: "pay", State: state, Declared: true}}
	}
	for name, tc := range map[string]struct {
		checked campaign.Checked
		want    bool
	}{
		"well":     {campaign.Checked{Carried: carried, Edges: edge(campaign.EdgeOK)}, false},
		"unseen":   {campaign.Checked{Carried: carried, Edges: edge(campaign.EdgeUnseen)}, true},
		"wrong":    {campaign.Checked{Carried: carried, Edges: edge(campaign.EdgeOK), Problems: []string{"no call"}}, true},
		"all sent": {campaign.Checked{Edges: edge(campaign.EdgeUnseen), Problems: []string{"no call"}}, false},
	} {
		var out strings.Builder
		showCheck(&out, &tc.checked)
		if got := strings.Contains(out.String(), hint); got != tc.want {
			t.Errorf("%s: it says\n%s", name, out.String())
		}
	}
}

// TestCallsThatFailAnyhow are told of at their edge, with what to do.
func TestCallsThatFailAnyhow(t *testing.T) {
	const advice = "is pay up, and does shop reach it?"
	for name, tc := range map[string]struct {
		edge campaign.Edge
		line string
		all  bool
	}{
		"both":      {campaign.Edge{Calls: 2, Answers: 4, Failures: map[string]int{"HTTP 503": 4}}, "2 calls, both HTTP 503\n", true},
		"all":       {campaign.Edge{Calls: 3, Answers: 3, Failures: map[string]int{"HTTP 503": 1, "no answer": 2}}, "3 calls, all HTTP 503 or no answer\n", true},
		"the one":   {campaign.Edge{Calls: 1, Answers: 2, Failures: map[string]int{"gRPC Unavailable": 2}}, "1 call, gRPC Unavailable\n", true},
		"some":      {campaign.Edge{Calls: 2, Answers: 4, Failures: map[string]int{"HTTP 500": 1}}, "2 calls, 1 of 4 answers in all runs: HTTP 500\n", false},
		"none":      {campaign.Edge{Calls: 2, Answers: 4}, "2 calls\n", false},
		"no report": {campaign.Edge{Calls: 2}, "2 calls\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.edge.Caller, tc.edge.Callee, tc.edge.State, tc.edge.Declared = "shop", "pay", campaign.EdgeOK, true
			var out strings.Builder
			showCheck(&out, &campaign.Checked{Edges: []campaign.Edge{tc.edge}})
			got := out.String()
			if !strings.Contains(got, tc.line) || strings.Contains(got, advice) != tc.all || strings.Contains(got, "all is well") == tc.all {
				t.Errorf("it says\n%s", got)
			}
		})
	}
}

// TestRefusedCleanRuns: a system that is down is told before any advice about edges.
func TestRefusedCleanRuns(t *testing.T) {
	const told = "step request: clean answers are HTTP 502: is the system up and the URL right?"
	answers := []*campaignv1.Answer{{Step: "request", Status: 502}}
	var check, plan, run strings.Builder
	showCheck(&check, &campaign.Checked{Answers: answers, Edges: []campaign.Edge{{Callee: "shop", State: campaign.EdgeOK, Calls: 1}}})
	if got := check.String(); strings.Contains(got, "all is well") || !strings.Contains(got, told) || strings.Index(got, told) > strings.Index(got, "client → shop") {
		t.Errorf("check says\n%s", got)
	}
	showPlan(&plan, &campaign.Planned{CleanAnswers: answers, Nothing: "no call was seen"}, false)
	if got := plan.String(); !strings.Contains(got, told) || strings.Index(got, told) > strings.Index(got, "no call was seen") {
		t.Errorf("plan says\n%s", got)
	}
	p := newProgress(&run)
	p.Update(campaign.Update{Stage: campaign.StageClean, Planned: 2})
	for n := range 2 {
		p.Update(campaign.Update{Stage: campaign.StageClean, Done: n + 1, Planned: 2, Trial: &campaignv1.Trial{Answers: answers}})
	}
	if got := run.String(); strings.Count(got, "warning: "+told) != 1 {
		t.Errorf("run says\n%s", got)
	}
	if len(p.warnings) != 1 || !strings.Contains(p.warnings[0], told) {
		t.Errorf("kept for the report: %q", p.warnings)
	}
	if got := refusals([]*campaignv1.Answer{{Status: 200}, {Status: 302}, {}}); got != nil {
		t.Errorf("what is not refused: %v", got)
	}
	// A probe that never answers, and a step of which check has said so already.
	silent := []*campaignv1.Answer{{Step: "charges", Error: "refused"}, {Step: "pay", Error: "refused"}}
	if got := refusals(silent, "step pay: no answer: refused; it was sent to there"); len(got) != 1 ||
		!strings.HasPrefix(got[0], "step charges: clean answers are none (refused): ") {
		t.Errorf("answers that never come: %q", got)
	}
}

// TestNothingToFault: a run that made no fault says what to do next, as plan does.
func TestNothingToFault(t *testing.T) {
	for name, tt := range map[string]struct {
		report *campaignv1.CampaignReport
		told   bool
	}{
		"nothing": {&campaignv1.CampaignReport{Coverage: &campaignv1.Coverage{}}, true},
		"a fault": {&campaignv1.CampaignReport{Coverage: &campaignv1.Coverage{}, Trials: []*campaignv1.Trial{{Purpose: "candidate", Fired: []string{"x"}}}}, false},
		"stopped": {&campaignv1.CampaignReport{Coverage: &campaignv1.Coverage{}, Interrupted: "stopped"}, false},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out, stderr: &out}
		tt.report.Spec = &campaignv1.CampaignSpec{Name: "shop"}
		if err := a.finish(tt.report, nil, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(out.String(), "sequencefi check shows edge by edge why"); told != tt.told {
			t.Errorf("%s: told %v:\n%s", name, told, &out)
		}
	}
}
