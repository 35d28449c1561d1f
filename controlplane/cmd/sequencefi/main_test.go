package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is what a call of the program came to.
type result struct {
	code        int
	out, errors string
}

// call runs the program, which is told to stop after half a minute.
func call(t *testing.T, args ...string) result {
	t.Helper()
	return callWithin(t, 30*time.Second, args...)
}

// callWithin is call for a program that may take longer.
func callWithin(t *testing.T, limit time.Duration, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	code := doMain(ctx, args, &out, &errs)
	return result{code, out.String(), errs.String()}
}

// expect fails unless the program came to this code and said these words.
func (r result) expect(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.errors)
	}
	for _, w := range words {
		if !strings.Contains(r.out+r.errors, w) {
			t.Errorf("it does not say %q:\n%s%s", w, r.out, r.errors)
		}
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// commands lists all commands that people see, as their words.
func commands(c *cobra.Command) [][]string {
	var list [][]string
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "completion" || sub.Name() == "help" {
			continue
		}
		list = append(list, strings.Fields(sub.CommandPath())[1:])
		list = append(list, commands(sub)...)
	}
	return list
}

// TestErrorsAreSafeForATerminal has an error that quotes what others wrote.
func TestErrorsAreSafeForATerminal(t *testing.T) {
	r := call(t, "run", "no\x1b[2Jsuch\nfile")
	r.expect(t, exitUsage, "no·[2Jsuch\nfile")
	if strings.Contains(r.errors, "\x1b") {
		t.Errorf("an escape sequence went through: %q", r.errors)
	}
}

func TestReach(t *testing.T) {
	for address, open := range map[string]bool{
		"127.0.0.1:18000": false, "127.8.0.1:1": false, "[::1]:18000": false, "[::ffff:127.0.0.1]:1": false,
		"0.0.0.0:18000": true, "[::]:18000": true, "192.0.2.10:18000": true,
	} {
		if warned := reach(address) != ""; warned != open {
			t.Errorf("%s: warned %v", address, warned)
		}
	}
}

func TestHelp(t *testing.T) {
	root := (&app{stdout: io.Discard, stderr: io.Discard}).root()
	var all strings.Builder
	for _, words := range append([][]string{nil}, commands(root)...) {
		r := call(t, append(words, "--help")...)
		r.expect(t, exitNothing, "Examples:\n")
		for line := range strings.Lines(r.out) {
			// Lines of flags are cobra's own.
			if n := len([]rune(line)); n > 84 && !strings.HasPrefix(strings.TrimSpace(line), "-") && !strings.Contains(line, "sequencefi ") {
				t.Errorf("%v: a line of %d: %s", words, n, line)
			}
		}
		fmt.Fprintf(&all, "$ sequencefi %s\n%s\n", strings.Join(append(words, "--help"), " "), r.out)
	}
	path := "testdata/help.txt"
	if *update {
		write(t, path, all.String())
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("run go test -update; -want +got:\n%s", diff)
	}
}

func TestWrongCalls(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: a}]\n")
	bad := write(t, filepath.Join(dir, "bad.yaml"), "name: A\nworkload: {steps: []}\n")
	good := write(t, filepath.Join(dir, "good.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	lost := write(t, filepath.Join(dir, "lost.yaml"), "name: a\ntopology: none.yaml\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	cel := write(t, filepath.Join(dir, "cel.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\noracle: {invariants: [{name: x, cel: 'answer.'}]}\n")
	text := write(t, filepath.Join(dir, "text.json"), "hello")
	empty := write(t, filepath.Join(dir, "empty.yaml"), "\n")
	const another = "---\nname: b\n"
	replay, err := os.ReadFile("testdata/replay.yaml")
	if err != nil {
		t.Fatal(err)
	}
	twoReplays := write(t, filepath.Join(dir, "replays.yaml"), string(replay)+another)
	twoCampaigns := write(t, filepath.Join(dir, "campaigns.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n"+another)
	twoTopologies := write(t, filepath.Join(dir, "topologies.yaml"), "services: [{name: a}]\n"+another)
	none := filepath.Join(dir, "none")
	for _, test := range []struct {
		args  []string
		words []string
	}{
		{[]string{"nonsense"}, []string{`unknown command "nonsense"`, "sequencefi --help shows"}},
		{[]string{"run"}, []string{"want one campaign file, got 0", "sequencefi run --help shows"}},
		{[]string{"run", "--what"}, []string{"unknown flag: --what", "sequencefi run --help shows"}},
		{[]string{"run", none}, []string{"sequencefi init writes one"}},
		{[]string{"run", bad}, []string{"name: must be 1 to 64", "(line 1)", "workload.steps: must have at least one"}},
		{[]string{"run", cel}, []string{"oracle.invariants[0].cel"}},
		{[]string{"run", lost}, []string{"none.yaml", "--topology names another"}},
		{[]string{"run", good, "--plugin", none}, []string{"no plugin at", "make plugin builds it", "sidecar: tfiproxy in the topology has none"}},
		{[]string{"run", good, "--plugin", text, "--xds", "127.0.0.1:0", "--traces", "http://x"}, []string{"jaeger://"}},
		{[]string{"plan", bad}, []string{"workload.steps"}},
		{[]string{"check", bad}, []string{"workload.steps"}},
		{[]string{"replay", none}, []string{"no such file"}},
		{[]string{"replay", text}, []string{"not a replay file"}},
		{[]string{"replay", bad}, []string{"bad.yaml is a campaign file, not a replay file: sequencefi run, check and plan take it"}},
		{[]string{"run", "testdata/replay.yaml"}, []string{"testdata/replay.yaml is a replay file, not a campaign file: sequencefi replay takes it"}},
		{[]string{"check", filepath.Join(dir, "topology.yaml")}, []string{"is a topology file, not a campaign file"}},
		{[]string{"report", bad}, []string{"is a campaign file, not a campaign's report"}},
		{[]string{"report", dir}, []string{"no report.json", "sequencefi run campaign.yaml --out " + dir + " writes one"}},
		{[]string{"report", empty}, []string{empty + ": not a campaign's report: it is empty"}},
		{[]string{"replay", empty}, []string{empty + ": not a replay file: it is empty"}},
		{[]string{"replay", twoReplays}, []string{"not a replay file: must be one YAML document"}},
		{[]string{"plan", twoCampaigns}, []string{"must be one YAML document: another one has line 4"}},
		{[]string{"serve", "--topology", twoTopologies}, []string{"must be one YAML document"}},
		{[]string{"replay", good, "--times", "0"}, []string{"--times must be at least 1"}},
		{[]string{"replay", "testdata/replay.yaml", "--campaign", bad}, []string{"workload.steps: must have"}},
		{[]string{"replay", "testdata/replay.yaml", "--topology", none}, []string{"none"}},
		{[]string{"serve", "--topology", none}, []string{"--topology names another"}},
		{[]string{"solve"}, []string{"at least 1 arg"}},
		{[]string{"solve", none}, []string{"no such file"}},
		{[]string{"solve", text}, []string{"not traces"}},
		{[]string{"solve", text, "--fault", "explode"}, []string{`--fault "explode" must be a fault like`}},
		{[]string{"solve", text, "--phase", "x"}, []string{"--phase must be req or resp"}},
		{[]string{"solve", text, "--leaf", "a b"}, []string{"leaves[0]"}},
		{[]string{"solve", text, "-o", "xml"}, []string{"--output must be yaml or json"}},
		{[]string{"envoy", "bootstrap"}, []string{"want one service"}},
		{[]string{"envoy", "bootstrap", "b", "--topology", filepath.Join(dir, "topology.yaml")}, []string{"b"}},
		{[]string{"envoy", "bootstrap", "a", "-o", "xml"}, []string{"--output must be yaml or json"}},
		{[]string{"init", "--curl", "curl", "--har", "x"}, []string{"only one of --curl"}},
		{[]string{"init", "--curl", "wget x", "--dir", dir}, []string{"must begin with curl"}},
		{[]string{"init", "--har", none}, []string{"no such file"}},
		{[]string{"init", "--dir", dir}, []string{"topology.yaml", "--force overwrites it"}},
		{[]string{"report", text}, []string{"not a report.json"}},
		{[]string{"version", "x"}, []string{`unknown command "x"`}},
	} {
		t.Run(strings.ReplaceAll(strings.Join(test.args, " "), dir, ""), func(t *testing.T) {
			call(t, test.args...).expect(t, exitUsage, append(test.words, "sequencefi: ")...)
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "campaign.yaml")); err == nil {
		t.Error("init wrote one of two files")
	}
}

func TestInit(t *testing.T) {
	dir := t.TempDir()
	cart := write(t, filepath.Join(dir, "cart.json"), `{"cart": 7}`)
	for name, args := range map[string][]string{
		"example": nil,
		"curl":    {"--curl", "curl http://shop.example/checkout -H 'content-type: application/json' -d @" + cart, "--name", "mine"},
		"har":     {"--har", "../../importer/testdata/shop.har", "--match", "checkout"},
		"jaeger":  {"--jaeger", "../../importer/testdata/ride.json", "--trace-id", "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(dir, name, "deep")
			args := append([]string{"init", "--dir", to}, args...)
			call(t, args...).expect(t, exitNothing, "wrote "+filepath.Join(to, "campaign.yaml"), "next: ")
			spec, err := campaignfile.Load(filepath.Join(to, "campaign.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := topology.Load(campaignfile.TopologyPath(filepath.Join(to, "campaign.yaml"), spec)); err != nil {
				t.Fatal(err)
			}
			if name == "curl" && (spec.GetName() != "mine" || spec.GetWorkload().GetSteps()[0].GetHttp().GetBody() != `{"cart": 7}`) {
				t.Errorf("got %v", spec)
			}
			call(t, args...).expect(t, exitUsage, "--force overwrites it")
			call(t, append(args, "--force")...).expect(t, exitNothing)
		})
	}
}

// TestInitIsEasyToComplete: what is known stands in the topology, what is not is only to be
// uncommented, and then a sidecar can be set up by it.
func TestInitIsEasyToComplete(t *testing.T) {
	for name, url := range map[string]string{"local": "http://localhost:8080/buy", "elsewhere": "http://shop.example/buy"} {
		dir := t.TempDir()
		call(t, "init", "--curl", "curl "+url, "--dir", dir).expect(t, exitNothing, "wrote "+filepath.Join(dir, schemaName))
		path := filepath.Join(dir, "topology.yaml")
		if name == "local" {
			call(t, "envoy", "bootstrap", "frontend", "--topology", path).expect(t, exitNothing, "static_resources:")
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, services, _ := strings.Cut(string(b), "services:\n")
		write(t, path, head+"services:\n"+strings.ReplaceAll(services, "# ", ""))
		for _, service := range []string{"frontend", "backend"} {
			call(t, "envoy", "bootstrap", service, "--topology", path).expect(t, exitNothing, "static_resources:")
		}
		if !strings.Contains(head, "sidecar: tfiproxy\n") {
			t.Errorf("nothing says that there is a sidecar other than Envoy:\n%s", head)
		}
		named, err := os.ReadFile(filepath.Join(dir, schemaName))
		if err != nil || !json.Valid(named) {
			t.Errorf("the campaign names a schema: %v", err)
		}
	}
}

func TestBootstrapOfTheExample(t *testing.T) {
	dir := t.TempDir()
	call(t, "init", "--dir", dir).expect(t, exitNothing)
	r := call(t, "envoy", "bootstrap", "shop", "--topology", filepath.Join(dir, "topology.yaml"), "-o", "json")
	r.expect(t, exitNothing, "sequencefi_xds", "127.0.0.1")
	if !json.Valid([]byte(r.out)) {
		t.Error("it is not JSON")
	}
	call(t, "__complete", "envoy", "bootstrap", "--topology", filepath.Join(dir, "topology.yaml"), "").expect(t, exitNothing, "pay\nshop\n")
	call(t, "envoy", "bootstrap", "pay", "--topology", filepath.Join(dir, "topology.yaml")).expect(t, exitNothing, "static_resources:")
}

func TestSolve(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		r := call(t, "solve", "testdata/traces.json", "-o", format, "--fault", "abort", "--fault", "error 500")
		r.expect(t, exitNothing, "candidates from 2 runs", "assumed", "post-effect", "error-500")
		if format == "json" && !json.Valid([]byte(r.out)) {
			t.Errorf("not JSON: %s", r.out)
		}
	}
	r := call(t, "solve", "testdata/traces.json", "--phase", "req", "--limit", "1")
	r.expect(t, exitNothing, "1 candidate")
	if strings.Contains(r.out, "phase: resp") {
		t.Errorf("a phase that was not asked for:\n%s", r.out)
	}
	call(t, "solve", t.TempDir()).expect(t, exitUsage, "is a directory")
	call(t, "solve", "/dev/zero").expect(t, exitUsage, "must be a regular file")
}

// TestSolveReadsOnce: a file's runs are read together, not the whole file for each of them.
func TestSolveReadsOnce(t *testing.T) {
	dir := t.TempDir()
	solve := func(runs int) float64 {
		all := &tracev1.TracesData{}
		for seed := range uint64(runs) {
			one := tracetest.DispatchOf(tracetest.New(fmt.Sprintf("run %d", seed)), seed, nil).Traces()
			all.ResourceSpans = append(all.ResourceSpans, one.GetResourceSpans()...)
		}
		b, err := proto.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		file := write(t, filepath.Join(dir, fmt.Sprint(runs)), string(b))
		return testing.AllocsPerRun(1, func() {
			call(t, "solve", file, "--limit", "1").expect(t, exitNothing, fmt.Sprintf("1 candidate from %d runs", runs))
		})
	}
	// Four times as many, if a run costs the same; sixteen times if it costs a whole file.
	if few, many := solve(16), solve(64); many > 6*few {
		t.Errorf("%.0f allocations for 16 runs, %.0f for 64", few, many)
	}
}

func TestSmallCommands(t *testing.T) {
	call(t, "version").expect(t, exitNothing, "sequencefi ", "go1.")
	if r := call(t, "schema"); !json.Valid([]byte(r.out)) {
		t.Error("the schema is not JSON")
	}
	call(t, "completion", "bash").expect(t, exitNothing, "__start_sequencefi")
	call(t).expect(t, exitNothing, "Exit codes:", "Available Commands:")
	call(t, "envoy").expect(t, exitNothing, "bootstrap")

	dir := t.TempDir()
	r := &campaignv1.CampaignReport{
		Spec:     &campaignv1.CampaignSpec{Name: "shop"},
		Findings: []*campaignv1.Finding{{Id: "F1", Signature: &campaignv1.OutcomeSignature{Summary: "it broke"}}},
	}
	if err := report.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	call(t, "report", dir).expect(t, exitNothing, "shop: 1 finding", "it broke")
	again := filepath.Join(dir, "again")
	call(t, "report", filepath.Join(dir, report.JSONFile), "--out", again).expect(t, exitNothing, "shop: 1 finding", "it broke", report.HTMLFile)
	if _, err := os.Stat(filepath.Join(again, report.HTMLFile)); err != nil {
		t.Error(err)
	}
}

// plugin makes a file that stands for the plugin where no sidecar loads it.
func plugin(t *testing.T, dir string) string {
	t.Helper()
	return write(t, filepath.Join(dir, pluginName), "\x00asm\x01\x00\x00\x00")
}

// TestNoSidecars runs what needs sidecars where there are none.
func TestNoSidecars(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}, {name: pay}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	flags := []string{"--wait", "50ms", "--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--plugin", plugin(t, dir)}
	for _, command := range []string{"run", "check", "plan"} {
		t.Run(command, func(t *testing.T) {
			args := append([]string{command, file}, flags...)
			if command == "run" {
				args = append(args, "--out", filepath.Join(dir, "out"))
			}
			call(t, args...).expect(t, exitIncomplete, "shop: no sidecar is connected", "pay: no sidecar is connected", "bootstrap name this control plane")
		})
	}
	call(t, append([]string{"run", file, "--solver", "127.0.0.1:1", "--out", filepath.Join(dir, "none")}, flags...)...).
		expect(t, exitIncomplete, "no solver answers at 127.0.0.1:1: start one by solver --listen 127.0.0.1:1, or leave --solver out")
	b, err := os.ReadFile(filepath.Join(dir, "out", report.SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"findings": 0`) {
		t.Errorf("summary.json is %s", b)
	}
}

// TestElsewhere: flags that lead away from the topology's addresses are named first.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\nxds: 127.0.0.1:18000\notlp: 127.0.0.1:18001\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	r := call(t, "check", file, "--wait", "50ms", "--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--plugin", plugin(t, dir))
	r.expect(t, exitIncomplete, "sequencefi: by the topology, sidecars connect to 127.0.0.1:18000, but --xds has this command listen at 127.0.0.1:0", "no sidecar is connected")

	top := &topology.Topology{OTLP: "127.0.0.1:18001"}
	silent := &campaign.Checked{Edges: []campaign.Edge{{Caller: "a", Callee: "b", State: campaign.EdgeUnseen}}}
	heard := &campaign.Checked{Edges: []campaign.Edge{{Caller: "a", Callee: "b", State: campaign.EdgeOK, Calls: 1}}}
	for name, tc := range map[string]struct {
		flags   planeFlags
		checked *campaign.Checked
		told    bool
	}{
		"another port":          {planeFlags{otlp: "127.0.0.1:18901"}, silent, true},
		"reports came":          {planeFlags{otlp: "127.0.0.1:18901"}, heard, false},
		"the same, all of them": {planeFlags{otlp: "0.0.0.0:18001"}, silent, false},
		"no flag":               {planeFlags{}, silent, false},
		"traces from elsewhere": {planeFlags{otlp: "127.0.0.1:18901", traces: "jaeger://127.0.0.1:16685"}, silent, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.flags.unreported(top, tc.checked)
			err := campaign.ErrSilent
			if tc.checked == heard {
				err = campaign.ErrClean
			}
			if first := tc.flags.unreached(top, err); !errors.Is(first, err) || tc.told != strings.HasPrefix(first.Error(), "by the topology") {
				t.Errorf("an error says %v", first)
			}
			if told := strings.Contains(got, "report to 127.0.0.1:18001, but --otlp"); told != tc.told || !told && got != "" {
				t.Errorf("it says %q", got)
			}
		})
	}
}

// TestUnwritableOut needs no plugin and no sidecar: it is seen before either is looked at.
func TestUnwritableOut(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	call(t, "run", file, "--out", file).expect(t, exitUsage, "--out: ", "not a directory")
}

// TestResultsAreShownThatCannotBeWritten fills in for a disk that is full at the end.
func TestResultsAreShownThatCannotBeWritten(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	r := &campaignv1.CampaignReport{
		Spec:     &campaignv1.CampaignSpec{Name: "shop"},
		Trials:   []*campaignv1.Trial{{Purpose: "candidate"}},
		Findings: []*campaignv1.Finding{{Id: "F1", Signature: &campaignv1.OutcomeSignature{Summary: "it broke"}}},
	}
	err := a.finish(r, nil, write(t, filepath.Join(t.TempDir(), "file"), ""))
	if err == nil || !strings.Contains(out.String(), "it broke") || strings.Contains(out.String(), report.HTMLFile) {
		t.Errorf("%v; it shows\n%s", err, &out)
	}
}

func TestAddressInUse(t *testing.T) {
	dir := t.TempDir()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	topo := write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\nmodule: "+l.Addr().String()+"\n")
	args := []string{"serve", "--topology", topo, "--plugin", plugin(t, dir)}
	for flag, more := range map[string][]string{
		"--xds":    {"--xds", l.Addr().String(), "--otlp", "127.0.0.1:0", "--module", "127.0.0.1:0"},
		"--otlp":   {"--otlp", l.Addr().String(), "--xds", "127.0.0.1:0", "--module", "127.0.0.1:0"},
		"--module": {"--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0"},
	} {
		t.Run(flag, func(t *testing.T) {
			call(t, append(args, more...)...).expect(t, exitIncomplete, "address already in use: another sequencefi is probably running", flag+" names another address, but sidecars keep")
		})
	}
}

// lines collects what is written and tells when a text is there.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-timeout:
			t.Fatalf("it never says %q:\n%s", text, l)
		}
	}
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	topo := write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\nmodule: 127.0.0.1:1\n")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, errs := newLines(), newLines()
	done := make(chan int, 1)
	go func() {
		done <- doMain(ctx, []string{
			"serve", "--topology", topo, "--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--module", "127.0.0.1:0", "--plugin", plugin(t, dir),
		}, out, errs)
	}()
	out.await(t, "0 sidecars")
	stop()
	if code := <-done; code != exitNothing {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"plugin at http://127.0.0.1:", "OTLP/HTTP on 127.0.0.1:", "xDS on 127.0.0.1:", "stopped"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}

// TestExitCodeOfWhatHadBegun: a file that goes in mid-campaign is not a wrong command line.
func TestExitCodeOfWhatHadBegun(t *testing.T) {
	if got := exitCode(fs.ErrNotExist); got != exitUsage {
		t.Errorf("before: exit code %d", got)
	}
	if got := exitCode(errors.Join(&incompleteError{fs.ErrNotExist}, fs.ErrPermission)); got != exitIncomplete {
		t.Errorf("exit code %d", got)
	}
}

// TestStopWhileWaiting ends a run before any sidecar has come.
func TestStopWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "topology.yaml"), "services: [{name: shop}]\n")
	file := write(t, filepath.Join(dir, "campaign.yaml"), "name: a\nworkload: {steps: [{http: {url: http://127.0.0.1:1/}}]}\n")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, errs := newLines(), newLines()
	done := make(chan int, 1)
	go func() {
		done <- doMain(ctx, []string{
			"run", file, "--out", filepath.Join(dir, "out"), "--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--plugin", plugin(t, dir),
		}, out, errs)
	}()
	errs.await(t, "waiting for sidecars of 1 service")
	stop()
	errs.await(t, "stopping: taking the activations back")
	if code := <-done; code != exitIncomplete {
		t.Errorf("exit code %d, want %d: %s", code, exitIncomplete, errs)
	}
	if !strings.Contains(out.String(), "stopped before its end") {
		t.Errorf("it does not say that it was stopped:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", report.HTMLFile)); err != nil {
		t.Error(err)
	}
}
