package protoyaml

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

func TestUnmarshal(t *testing.T) {
	const text = `
name: x
workload:
  steps:
    - http: &get
        url: http://a/b
        timeout: 1m30s
        headers: {A: "1"}
    - http: *get
faults:
  phases: [req, PHASE_RESP]
  placement: callee
  faults:
    - {name: broken, fault: {abort: }}
    - name: late
      fault: {delay: {fixed: 500ms}}
budget: {clean_runs: 3, duration: 1h}
`
	request := &campaignv1.HttpRequest{Url: "http://a/b", Timeout: &durationpb.Duration{Seconds: 90}, Headers: map[string]string{"A": "1"}}
	want := &campaignv1.CampaignSpec{
		Name: "x",
		Workload: &campaignv1.Workload{Steps: []*campaignv1.Step{
			{Action: &campaignv1.Step_Http{Http: request}}, {Action: &campaignv1.Step_Http{Http: request}},
		}},
		Faults: &campaignv1.FaultModel{
			Phases:    []tfiv1.Phase{tfiv1.Phase_PHASE_REQ, tfiv1.Phase_PHASE_RESP},
			Placement: tfiv1.Placement_PLACEMENT_CALLEE,
			Faults: []*campaignv1.NamedFault{
				{Name: "broken", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}},
				{Name: "late", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{
					Distribution: &tfiv1.Delay_Fixed{Fixed: &durationpb.Duration{Nanos: 500_000_000}},
				}}}},
			},
		},
		Budget: &campaignv1.Budget{CleanRuns: 3, Duration: &durationpb.Duration{Seconds: 3600}},
	}
	var got campaignv1.CampaignSpec
	lines, err := Unmarshal([]byte(text), &got, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for path, want := range map[string]int{
		"workload.steps[0].http.timeout": 7, "faults.phases[1]": 11, "faults.faults[1].fault.delay": 16,
		`workload.steps[0].http.headers["A"]`: 8, "budget.cleanRuns": 17, "budget.trials": 17, "oracle": 2,
	} {
		if got := lines.Of(path); got != want {
			t.Errorf("%s is said to be in line %d, is in %d", path, got, want)
		}
	}
}

func TestUnmarshalReportsEverything(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"must be one YAML document"}},
		{"not YAML", "a: [", []string{"must be YAML: "}},
		{"a list", "- a", []string{"must have fields (name, workload"}},
		{"unknown field", "nam: x", []string{`nam: is no field (did you mean "name"?); there are name, workload`}},
		{"no guess", "somethingelse: x", []string{"somethingelse: is no field; there are"}},
		{"twice", "budget: {cleanRuns: 1, clean_runs: 2}", []string{"budget.cleanRuns: must be given once"}},
		{"both of a oneof", "workload: {steps: [{http: {}, command: {}}]}", []string{"workload.steps[0].command: must stand alone: http is given too"}},
		{"map key twice", "workload: {steps: [{http: {headers: {a: b, a: c}}}]}", []string{`workload.steps[0].http.headers["a"]: must be given once`}},
		{"wrong kinds", `
name: 1
topology: null
workload: {steps: {}, parallelism: -1, isolated: maybe, before: [x]}
faults: {phases: [request], faults: [{fault: {delay: {fixed: soon}, error: }}]}
budget: {trials: many, duration: [1]}
oracle: {ignore: a, invariants: 3}
`, []string{
			"name: must be text (put it in quotes), not \"1\" (line 2)",
			"topology: must be text (put it in quotes), not nothing (line 3)",
			"workload.steps: must be a list, not a mapping (line 4)",
			"workload.parallelism: must be a whole number from 0, not \"-1\"",
			"workload.isolated: must be true or false",
			"workload.before[0]: must have fields (name, http, command), not \"x\"",
			"faults.phases[0]: must be one of req, resp, not \"request\" (line 5)",
			"faults.faults[0].fault.delay.fixed: must be a duration like 10s",
			"faults.faults[0].fault.error: must stand alone",
			"budget.trials: must be a whole number",
			"budget.duration: must be a duration like 10s, 500ms or 2m, not a list",
			"oracle.ignore: must be a list, not \"a\"",
			"oracle.invariants: must be a list",
		}},
		{"headers as a list", "workload: {steps: [{http: {headers: [a]}}]}", []string{"workload.steps[0].http.headers: must map names to values"}},
		{"bytes", "faults: {faults: [{fault: {error: {body: '?'}}}]}", []string{"faults.faults[0].fault.error.body: must be bytes in base64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Unmarshal([]byte(test.text), &campaignv1.CampaignSpec{}, Options{})
			var invalid *valid.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if len(invalid.Problems) != len(test.want) {
				t.Fatalf("%d problems, want %d:\n%v", len(invalid.Problems), len(test.want), err)
			}
			for i, want := range test.want {
				if got := invalid.Problems[i].String(); !strings.HasPrefix(got, want) {
					t.Errorf("problem %d is %q, want %q", i, got, want)
				}
			}
		})
	}
}

// TestAliasesDoNotMultiply feeds the document known as a billion laughs.
func TestAliasesDoNotMultiply(t *testing.T) {
	var b strings.Builder
	b.WriteString("a: &a {all_of: {guards: []}}\n")
	for c := 'b'; c < 'n'; c++ {
		b.WriteString(string(c) + ": &" + string(c) + " {all_of: {guards: [")
		b.WriteString(strings.Repeat("*"+string(c-1)+",", 9))
		b.WriteString("]}}\n")
	}
	b.WriteString("guard: *m\n")
	_, err := Unmarshal([]byte(b.String()), &tfiv1.Tfic{}, Options{})
	if err == nil {
		t.Fatal("a document of a billion values was read")
	}
}

func TestMarshal(t *testing.T) {
	m := &campaignv1.Trial{
		Id:       "0011",
		Verdict:  campaignv1.Verdict_VERDICT_EFFECTIVE,
		Start:    timestamppb.New(timestamppb.Now().AsTime().Truncate(1)),
		Duration: &durationpb.Duration{Seconds: 120},
		Answers:  []*campaignv1.Answer{{Status: 200, Body: []byte("null"), Headers: map[string]string{"b": "true", "a": "x: y"}}},
		Reason:   "two\nlines\n",
		Tfics:    []*tfiv1.Tfic{{Id: "t", Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}}}},
	}
	m.Start = timestamppb.New(timestamppb.New(m.Start.AsTime()).AsTime())
	m.Start.Seconds, m.Start.Nanos = 1_769_860_800, 0
	got, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `id: "0011"
tfics:
  - id: t
    fault:
      abort: {}
verdict: effective
answers:
  - status: 200
    headers:
      a: 'x: y'
      b: "true"
    body: bnVsbA==
start: "2026-01-31T12:00:00Z"
duration: 2m
reason: |
  two
  lines
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	list, err := Sequence([]*campaignv1.Answer{{Step: "a"}, {}})
	if err != nil || string(list) != "- step: a\n- {}\n" {
		t.Errorf("a list is %q, %v", list, err)
	}
}

func TestRoundTrip(t *testing.T) {
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "null", "1", "a\nb", " x\n", "- a", "\ttab\n", "yes", "2026-01-31"}))
	rapid.Check(t, func(t *rapid.T) {
		m := &campaignv1.CampaignSpec{
			Name: texts.Draw(t, "name"),
			Workload: &campaignv1.Workload{
				Isolated: rapid.Bool().Draw(t, "isolated"),
				Steps: []*campaignv1.Step{{Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{
					Body:    texts.Draw(t, "body"),
					Headers: rapid.MapOf(texts, texts).Draw(t, "headers"),
					Timeout: &durationpb.Duration{Seconds: rapid.Int64Range(0, 1e9).Draw(t, "s"), Nanos: rapid.Int32Range(0, 999_999_999).Draw(t, "ns")},
				}}}},
			},
			Faults: &campaignv1.FaultModel{
				Phases:  []tfiv1.Phase{tfiv1.Phase(rapid.Int32Range(0, 2).Draw(t, "phase"))},
				Callees: rapid.SliceOf(texts).Draw(t, "callees"),
				Faults: []*campaignv1.NamedFault{{Fault: &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{
					Body: rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"), HttpStatus: rapid.Uint32().Draw(t, "status"),
				}}}}},
			},
		}
		b, err := Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var back campaignv1.CampaignSpec
		if _, err := Unmarshal(b, &back, Options{}); err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
		if !proto.Equal(m, &back) {
			t.Fatalf("differs:\n%s%s", b, cmp.Diff(m, &back, protocmp.Transform()))
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte("name: x\nworkload: {steps: [{http: {url: http://a}}]}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = Unmarshal(b, &campaignv1.CampaignReport{}, Options{})
	})
}

func TestFromJSON(t *testing.T) {
	got, err := FromJSON([]byte(`{"z":"a: b","a":["x","1",true,2],"t":"\ttab\n","n":null,"e":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := "z: 'a: b'\na:\n  - x\n  - \"1\"\n  - true\n  - 2\nt: \"\\ttab\\n\"\nn: null\ne: []\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := FromJSON([]byte("{")); err == nil {
		t.Error("half a document was read")
	}
}
