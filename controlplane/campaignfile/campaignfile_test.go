package campaignfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

func TestExampleIsACampaign(t *testing.T) {
	spec, err := Parse(Example())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(spec.GetFaults().GetFaults()); n != 3 {
		t.Errorf("%d faults, want 3", n)
	}
	b, err := Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(b)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	if !proto.Equal(spec, back) {
		t.Errorf("written and read again it differs:\n%s", cmp.Diff(spec, back, protocmp.Transform()))
	}
}

// TestExampleShowsEveryField keeps the example complete.
func TestExampleShowsEveryField(t *testing.T) {
	for _, m := range []proto.Message{
		&campaignv1.CampaignSpec{}, &campaignv1.Workload{}, &campaignv1.Step{}, &campaignv1.HttpRequest{},
		&campaignv1.Command{}, &campaignv1.Oracle{}, &campaignv1.Invariant{}, &campaignv1.FaultModel{},
		&campaignv1.NamedFault{}, &campaignv1.Budget{},
	} {
		d := m.ProtoReflect().Descriptor()
		for i := range d.Fields().Len() {
			name := d.Fields().Get(i).JSONName()
			if name == "env" { // not worth a line
				continue
			}
			if !strings.Contains(string(Example()), name+":") {
				t.Errorf("the example does not show %s.%s", d.Name(), name)
			}
		}
	}
}

// TestExampleTellsDefaults: what the example does not mark as made up is what holds without it.
func TestExampleTellsDefaults(t *testing.T) {
	spec, err := Parse(Example())
	if err != nil {
		t.Fatal(err)
	}
	b := spec.GetBudget()
	for name, shown := range map[string]string{
		"trials": fmt.Sprint(b.GetTrials()), "clean_runs": fmt.Sprint(b.GetCleanRuns()), "confirmations": fmt.Sprint(b.GetConfirmations()),
		"duration": fmt.Sprint(b.GetDuration().AsDuration().Hours()) + " hour",
	} {
		if want := documentedDefault(t, name); shown != want {
			t.Errorf("the example shows %s for budget's %s, and %s is the default", shown, name, want)
		}
	}
	if w := spec.GetWorkload(); w.GetParallelism() != 1 || w.GetIsolated() {
		t.Errorf("parallelism %d, isolated %v", w.GetParallelism(), w.GetIsolated())
	}
	if spec.GetTopology() != DefaultTopology || spec.GetFaults().GetPlacement() != tfiv1.Placement_PLACEMENT_CALLER {
		t.Errorf("topology %s, placement %v", spec.GetTopology(), spec.GetFaults().GetPlacement())
	}
}

// documentedDefault gives what the contract says that 0 means in a field of the budget.
func documentedDefault(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../proto/sequencefi/campaign/v1/campaign.proto")
	if err != nil {
		t.Fatal(err)
	}
	_, budget, _ := strings.Cut(string(b), "message Budget {")
	found := regexp.MustCompile(`0 means ([0-9,]+(?: hour)?)\.\n +\S+ ` + name + ` = `).FindStringSubmatch(budget)
	if found == nil {
		t.Fatalf("the contract does not tell the default of %s", name)
	}
	return strings.ReplaceAll(found[1], ",", "")
}

func TestParseReportsLines(t *testing.T) {
	_, err := Parse([]byte("name: Shop\nworkload:\n  parallelism: 4\n  steps:\n    - http:\n        url: /orders\n"))
	var invalid *valid.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
	want := []string{"(line 1)", "(line 3)", "(line 6)"}
	if len(invalid.Problems) != len(want) {
		t.Fatalf("%d problems, want %d: %v", len(invalid.Problems), len(want), err)
	}
	for i, p := range invalid.Problems {
		if !strings.HasSuffix(p.Want, want[i]) {
			t.Errorf("%v, want %s", p, want[i])
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "sequencefi init") {
		t.Errorf("a missing file: %v", err)
	}
	path := filepath.Join(dir, "campaign.yaml")
	if err := os.WriteFile(path, []byte("name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, valid.ErrInvalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("an invalid file: %v", err)
	}
	if err := os.WriteFile(path, Example(), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := TopologyPath(path, spec), filepath.Join(dir, "topology.yaml"); got != want {
		t.Errorf("topology is %s, want %s", got, want)
	}
	spec.Topology = ""
	if got, want := TopologyPath("a/b.yaml", spec), "a/topology.yaml"; got != want {
		t.Errorf("topology is %s, want %s", got, want)
	}
	spec.Topology = "/x/y.yaml"
	if got := TopologyPath("a/b.yaml", spec); got != "/x/y.yaml" {
		t.Errorf("topology is %s, want /x/y.yaml", got)
	}
	if err := os.WriteFile(path, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, valid.ErrInvalid) {
		t.Errorf("a huge file: %v", err)
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]string{
		"error":       `name:"error" fault:{error:{}}`,
		"error 500":   `name:"error-500" fault:{error:{http_status:500}}`,
		"abort":       `name:"abort" fault:{abort:{}}`,
		"drop":        `name:"drop" fault:{drop:{}}`,
		"drop 5s":     `name:"drop-5s" fault:{drop:{limit:{seconds:5}}}`,
		"delay 200ms": `name:"delay-200ms" fault:{delay:{fixed:{nanos:200000000}}}`,
	} {
		f, err := ParseFault(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var expected campaignv1.NamedFault
		if err := prototext.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&expected, f, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
		if p := valid.FaultModel(&campaignv1.FaultModel{Faults: []*campaignv1.NamedFault{f}}); len(p) > 0 {
			t.Errorf("%s: %v", text, p)
		}
	}
	for _, bad := range []string{"", "explode", "delay", "delay soon", "error x", "abort 5s", "drop x"} {
		if f, err := ParseFault(bad); err == nil {
			t.Errorf("%q is read as %v", bad, f)
		}
	}
}
