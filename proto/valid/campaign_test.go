package valid

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

const goodCampaign = `{
  "name":"checkout-1",
  "topology":"topology.yaml",
  "workload":{
    "before":[{"name":"reset","command":{"argv":["./reset.sh","-v"],"env":{"A":"b"},"timeout":"5s"}}],
    "steps":[
      {"name":"order","http":{"method":"POST","url":"http://127.0.0.1:8080/orders","headers":{"X-User":"${trial.id}"},"body":"{}",
        "timeout":"5s","capture":{"order":"answer.json.id"}}},
      {"http":{"url":"http://127.0.0.1:${trial.id}/orders/${order}"}}],
    "after":[{"name":"count","http":{"url":"http://127.0.0.1:8080/count"}}],
    "parallelism":2,"isolated":true},
  "oracle":{
    "invariants":[{"name":"paid once","cel":"probes.size() == 1"}],
    "stateChanging":["pay.Pay/Charge"],"harmless":["POST /search"],
    "maxDuration":"5s","ignore":["$","$.items[*].id","$.a[0]"]},
  "faults":{
    "faults":[{"name":"error","fault":{"error":{}}},{"name":"slow","fault":{"delay":{"fixed":"1s"}}}],
    "phases":["PHASE_REQ","PHASE_RESP"],"placement":"PLACEMENT_CALLER","callees":["pay"]},
  "budget":{"trials":10,"duration":"60s","cleanRuns":5,"confirmations":2}
}`

func TestCampaignSpec(t *testing.T) {
	type spec = campaignv1.CampaignSpec
	http := func(m *spec) *campaignv1.HttpRequest { return m.Workload.Steps[0].GetHttp() }
	command := func(m *spec) *campaignv1.Command { return m.Workload.Before[0].GetCommand() }
	long := durationpb.New(MaxTimeout + 1)
	for _, test := range []struct {
		name string
		edit func(*spec)
		want []string
	}{
		{"good", func(*spec) {}, nil},
		{"least", func(m *spec) { m.Oracle, m.Faults, m.Budget, m.Topology = nil, nil, nil, "" }, nil},
		{"no name", func(m *spec) { m.Name = "" }, []string{"name: 1 to 64 characters"}},
		{"name in upper case", func(m *spec) { m.Name = "A" }, []string{"name: of [a-z0-9-]"}},
		{"long name", func(m *spec) { m.Name = strings.Repeat("a", 65) }, []string{"name: 1 to 64"}},
		{"no workload", func(m *spec) { m.Workload = nil }, []string{"workload: must say what a trial runs"}},
		{"topology with a NUL", func(m *spec) { m.Topology = "a\x00" }, []string{"topology: path of a topology file"}},
		{"too parallel", func(m *spec) { m.Workload.Parallelism = 65 }, []string{"workload.parallelism: at most 64"}},
		{"parallel but not isolated", func(m *spec) { m.Workload.Isolated = false }, []string{"workload.parallelism: must be 1 unless isolated"}},
		{"no steps", func(m *spec) { m.Workload.Steps = nil }, []string{"workload.steps: at least one"}},
		{"too many steps", func(m *spec) {
			for range 256 {
				m.Workload.After = append(m.Workload.After, &campaignv1.Step{Action: m.Workload.After[0].Action})
			}
		}, []string{"workload.after: at most 256 (got 257)"}},
		{"step name twice", func(m *spec) { m.Workload.After[0].Name = "order" }, []string{"workload.after[0].name: must be unique in the workload (workload.steps[0]"}},
		{"step named like one without a name", func(m *spec) { m.Workload.After[0].Name = "3" }, []string{`workload.after[0].name: must be unique in the workload (workload.steps[1] is called "3" too)`}},
		{"one without a name called like another", func(m *spec) { m.Workload.Steps[0].Name = "3" }, []string{"workload.steps[1].name: must be unique"}},
		{"step name with a space", func(m *spec) { m.Workload.After[0].Name = "a b" }, []string{"workload.after[0].name: at most 64 characters"}},
		{"no action", func(m *spec) { m.Workload.After[0].Action = nil }, []string{"workload.after[0]: must have one of http and command"}},
		{"bad method", func(m *spec) { http(m).Method = "G ET" }, []string{"workload.steps[0].http.method: HTTP method"}},
		{"no URL", func(m *spec) { http(m).Url = "" }, []string{"workload.steps[0].http.url: absolute URL"}},
		{"relative URL", func(m *spec) { http(m).Url = "/orders" }, []string{"workload.steps[0].http.url: absolute URL"}},
		{"URL of another scheme", func(m *spec) { http(m).Url = "ftp://a/b" }, []string{"workload.steps[0].http.url: absolute URL"}},
		{"URL of a captured base", func(m *spec) { m.Workload.Steps[1].GetHttp().Url = "${order}/x" }, nil},
		{"open placeholder", func(m *spec) { http(m).Url = "http://a/${x" }, []string{
			"workload.steps[0].http.url: absolute URL", "workload.steps[0].http.url: must close",
		}},
		{"unknown placeholder", func(m *spec) { http(m).Body = "${nope}" }, []string{"workload.steps[0].http.body: must use only ${trial.id} and values that an earlier step captures (got ${nope})"}},
		{"placeholder before its capture", func(m *spec) { http(m).Headers = map[string]string{"A": "${order}"} }, []string{`workload.steps[0].http.headers["A"]: must use only`}},
		{"bad header", func(m *spec) { http(m).Headers = map[string]string{"a b": "c"} }, []string{`workload.steps[0].http.headers["a b"]: must be a header name`}},
		{"header with a line break", func(m *spec) { http(m).Headers = map[string]string{"a": "b\r\nc: d"} }, []string{`workload.steps[0].http.headers["a"]: no line break`}},
		{"traceparent", func(m *spec) { http(m).Headers = map[string]string{"Traceparent": "x"} }, []string{`workload.steps[0].http.headers["Traceparent"]: must be left out`}},
		{"trace headers of all formats", func(m *spec) {
			http(m).Headers = map[string]string{"tracestate": "x", "B3": "x", "X-B3-TraceId": "x", "x-b3-flags": "1", "Uber-Trace-Id": "x", "x-b3": "fine", "uber-trace": "fine"}
		}, []string{
			`workload.steps[0].http.headers["B3"]: must be left out: SequenceFI sets it`, `workload.steps[0].http.headers["Uber-Trace-Id"]: must be left out`,
			`workload.steps[0].http.headers["X-B3-TraceId"]: must be left out`, `workload.steps[0].http.headers["tracestate"]: must be left out`,
			`workload.steps[0].http.headers["x-b3-flags"]: must be left out`,
		}},
		{"trace variables", func(m *spec) {
			command(m).Env = map[string]string{"TRACEPARENT": "x", "X_B3_TRACEID": "x", "traceparent": "fine", "TRACE": "fine"}
		}, []string{
			`workload.before[0].command.env["TRACEPARENT"]: must be left out: SequenceFI sets it`, `workload.before[0].command.env["X_B3_TRACEID"]: must be left out`,
		}},
		{"header of ours", func(m *spec) { http(m).Headers = map[string]string{"X-Fic-Evidence": "x"} }, []string{`workload.steps[0].http.headers["X-Fic-Evidence"]: must be left out`}},
		{"timeout", func(m *spec) { http(m).Timeout = long }, []string{"workload.steps[0].http.timeout: from 0s to 1h0m0s"}},
		{"capture with a bad name", func(m *spec) { http(m).Capture["1x"] = "a" }, []string{`workload.steps[0].http.capture["1x"]: letters, digits`}},
		{"capture of nothing", func(m *spec) { http(m).Capture["order"] = " " }, []string{`workload.steps[0].http.capture["order"]: must be a CEL`}},
		{"no program", func(m *spec) { command(m).Argv = nil }, []string{"workload.before[0].command.argv: must begin with a program"}},
		{"argument with a NUL", func(m *spec) { command(m).Argv[1] = "\x00" }, []string{"workload.before[0].command.argv[1]: no NUL"}},
		{"bad variable", func(m *spec) { command(m).Env = map[string]string{"A=B": ""} }, []string{`workload.before[0].command.env["A=B"]: must be the name`}},
		{"variable with a NUL", func(m *spec) { command(m).Env = map[string]string{"A": "\x00"} }, []string{`workload.before[0].command.env["A"]: no NUL`}},
		{"command timeout", func(m *spec) { command(m).Timeout = long }, []string{"workload.before[0].command.timeout: from 0s"}},
		{"nameless invariant", func(m *spec) { m.Oracle.Invariants[0].Name = "" }, []string{"oracle.invariants[0].name: 1 to 128"}},
		{"invariant twice", func(m *spec) { m.Oracle.Invariants = append(m.Oracle.Invariants, m.Oracle.Invariants[0]) }, []string{"oracle.invariants[1].name: must be unique"}},
		{"invariant of nothing", func(m *spec) { m.Oracle.Invariants[0].Cel = "" }, []string{"oracle.invariants[0].cel: must be a CEL"}},
		{"bad state-changing op", func(m *spec) { m.Oracle.StateChanging[0] = "x" }, []string{"oracle.stateChanging[0]: must be"}},
		{"bad harmless op", func(m *spec) { m.Oracle.Harmless[0] = "" }, []string{"oracle.harmless[0]: must be"}},
		{"both", func(m *spec) { m.Oracle.Harmless[0] = "pay.Pay/Charge" }, []string{"oracle.harmless[0]: must not be among stateChanging"}},
		{"negative duration", func(m *spec) { m.Oracle.MaxDuration = durationpb.New(-1) }, []string{"oracle.maxDuration: from 0s"}},
		{"fault without a name", func(m *spec) { m.Faults.Faults[0].Name = "" }, []string{"faults.faults[0].name: 1 to 32"}},
		{"fault name twice", func(m *spec) { m.Faults.Faults[0].Name = "slow" }, []string{"faults.faults[1].name: must be unique"}},
		{"fault of no kind", func(m *spec) { m.Faults.Faults[0].Fault = nil }, []string{"faults.faults[0].fault: must have one of"}},
		{"phase twice", func(m *spec) { m.Faults.Phases[1] = tfiv1.Phase_PHASE_REQ }, []string{"faults.phases[1]: must be unique"}},
		{"no phase", func(m *spec) { m.Faults.Phases[1] = 0 }, []string{"faults.phases[1]: must be PHASE_REQ or"}},
		{"bad placement", func(m *spec) { m.Faults.Placement = 8 }, []string{"faults.placement: must be"}},
		{"callee twice", func(m *spec) { m.Faults.Callees = []string{"a", "a"} }, []string{"faults.callees[1]: must be unique"}},
		{"too long", func(m *spec) { m.Budget.Duration = durationpb.New(MaxBudget + 1) }, []string{"budget.duration: from 0s"}},
		{"too many clean runs", func(m *spec) { m.Budget.CleanRuns = 1001 }, []string{"budget.cleanRuns: at most 1000"}},
		{"too many confirmations", func(m *spec) { m.Budget.Confirmations = 1001 }, []string{"budget.confirmations: at most 1000"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m spec
			fromJSON(t, goodCampaign, &m)
			test.edit(&m)
			expect(t, CampaignSpec(&m), test.want...)
		})
	}
}

func TestJSONPaths(t *testing.T) {
	for _, bad := range []string{"", "a", "$a", "$.", "$..a", "$[", "$[]", "$[x]", "$.a[*", "$.a]"} {
		t.Run(bad, func(t *testing.T) {
			m := &campaignv1.Oracle{Ignore: []string{bad}}
			if bad == "$.a]" { // a name may hold a bracket
				expect(t, Oracle(m))
				return
			}
			expect(t, Oracle(m), "ignore[0]: must be a JSON path")
		})
	}
}

func TestParts(t *testing.T) {
	expect(t, Workload(nil), "steps: at least one")
	expect(t, FaultModel(nil))
	expect(t, FaultModel(&campaignv1.FaultModel{Callees: []string{""}}), "callees[0]: must name")
	expect(t, Budget(nil))
	expect(t, Oracle(nil))
}

func TestSolverRequests(t *testing.T) {
	key := "01020304050607"
	tfic := func(id string) *tfiv1.Tfic {
		var m tfiv1.Tfic
		fromJSON(t, goodTFIC, &m)
		m.Id = id
		return &m
	}
	twice := []*tfiv1.Tfic{tfic("a"), tfic("a")}
	var many []*tfiv1.Tfic
	for i := range MaxTFICs + 1 {
		many = append(many, tfic(fmt.Sprint("t", i)))
	}
	for _, test := range []struct {
		name string
		got  []Problem
		want []string
	}{
		{"start", StartSessionRequest(&solverv1.StartSessionRequest{MaxFaults: 2, Leaves: []string{"db"}}), nil},
		{"start with too many faults", StartSessionRequest(&solverv1.StartSessionRequest{MaxFaults: 9}), []string{"maxFaults: at most 8"}},
		{"start with a bad model", StartSessionRequest(&solverv1.StartSessionRequest{
			Faults: &campaignv1.FaultModel{Phases: []tfiv1.Phase{0}},
		}), []string{"faults.phases[0]: must be"}},
		{"start with a nameless leaf", StartSessionRequest(&solverv1.StartSessionRequest{Leaves: []string{""}}), []string{"leaves[0]: must name"}},
		{"traces", AddTracesRequest(&solverv1.AddTracesRequest{Session: "s", Trials: []*solverv1.RecordedTrial{{Id: key}}}), nil},
		{"traces of nothing", AddTracesRequest(&solverv1.AddTracesRequest{}), []string{"session: 1 to 64", "trials: at least one"}},
		{"traces with a bad id", AddTracesRequest(&solverv1.AddTracesRequest{Session: "s", Trials: []*solverv1.RecordedTrial{{Id: "xy"}}}), []string{"trials[0].id: 14 hex digits"}},
		{"results", AddResultsRequest(&solverv1.AddResultsRequest{Session: "s", Results: []*solverv1.Result{{
			Candidate: "c", Verdict: campaignv1.Verdict_VERDICT_MISSED, Recorded: &solverv1.RecordedTrial{Id: key},
		}}}), nil},
		{"results of nothing", AddResultsRequest(&solverv1.AddResultsRequest{Session: "s"}), []string{"results: at least one"}},
		{"bad results", AddResultsRequest(&solverv1.AddResultsRequest{Session: "s", Results: []*solverv1.Result{
			{Recorded: &solverv1.RecordedTrial{Id: "0"}},
			{Candidate: "c", Verdict: 99},
		}}), []string{"results[0].candidate: id of a candidate", "results[0].verdict: what the trial", "results[0].recorded.id: 14 hex", "results[1].verdict: got 99"}},
		{"results that say too much", AddResultsRequest(&solverv1.AddResultsRequest{Session: "s", Results: []*solverv1.Result{
			{Candidate: "c", Verdict: campaignv1.Verdict_VERDICT_MISSED, Signature: strings.Repeat("x", 257), Fired: []string{"a", "a b"}},
		}}), []string{"results[0].signature: at most 256", "results[0].fired[1]: 1 to 64"}},
		{"next", NextCandidatesRequest(&solverv1.NextCandidatesRequest{Session: "s"}), nil},
		{"next of no session", NextCandidatesRequest(nil), []string{"session: 1 to 64"}},
		{"statistics of no session", GetStatisticsRequest(nil), []string{"session: 1 to 64"}},
		{"end of no session", EndSessionRequest(nil), []string{"session: 1 to 64"}},
		{"candidate of nothing", Candidate(nil), []string{"id: 1 to 256", "tfics: at least one"}},
		{"candidate with a bad TFIC", Candidate(&solverv1.Candidate{Id: "c", Tfics: []*tfiv1.Tfic{{}}}), []string{
			"tfics[0].id: 1 to 64", "tfics[0].target: must say", "tfics[0].fault: must say",
		}},
		{"candidate with an id twice", Candidate(&solverv1.Candidate{Id: "c", Tfics: twice}), []string{"tfics[1].id: must be unique"}},
		{"candidate too large", Candidate(&solverv1.Candidate{Id: "c", Tfics: many}), []string{"tfics: at most 64 (got 65)"}},
		{"traces too large", AddTracesRequest(&solverv1.AddTracesRequest{Session: "s", Trials: []*solverv1.RecordedTrial{
			{TracesData: make([]byte, MaxTracesData+1)},
		}}), []string{fmt.Sprintf("trials[0].tracesData: at most %d", MaxTracesData)}},
	} {
		t.Run(test.name, func(t *testing.T) { expect(t, test.got, test.want...) })
	}
}

func TestReplay(t *testing.T) {
	good := `{"spec":` + goodCampaign + `,"topology":{},"tfics":[` + goodTFIC + `],"signature":{"id":"0123456789abcdef"}}`
	for _, test := range []struct {
		name string
		edit func(*campaignv1.Replay)
		want []string
	}{
		{"good", func(*campaignv1.Replay) {}, nil},
		{"bad spec", func(m *campaignv1.Replay) { m.Spec.Name = "" }, []string{"spec.name: 1 to 64"}},
		{"no topology", func(m *campaignv1.Replay) { m.Topology = nil }, []string{"topology: content of a topology file"}},
		{"no TFIC", func(m *campaignv1.Replay) { m.Tfics = nil }, []string{"tfics: at least one"}},
		{"bad TFIC", func(m *campaignv1.Replay) { m.Tfics[0].Fault = nil }, []string{"tfics[0].fault: must say what"}},
		{"TFIC twice", func(m *campaignv1.Replay) { m.Tfics = append(m.Tfics, m.Tfics[0]) }, []string{"tfics[1].id: must be unique"}},
		{"no signature", func(m *campaignv1.Replay) { m.Signature = nil }, []string{"signature.id: outcome to reproduce"}},
		{"no hash", func(m *campaignv1.Replay) { m.Signature.Id = "0123456789abcdeF" }, []string{"signature.id: 16 hex digits"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m campaignv1.Replay
			fromJSON(t, good, &m)
			test.edit(&m)
			expect(t, Replay(&m), test.want...)
		})
	}
}
