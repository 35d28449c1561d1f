package campaign

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/workload/workloadtest"
)

// TestAstrayChild is not a test: it is the command of TestCheckTellsOfRequestsThatAreNotMarked.
func TestAstrayChild(t *testing.T) {
	c := workloadtest.NewClient(t)
	_ = c.Get(c.Target, "b3", os.Getenv("ASTRAY_B3")) // the certificate is not ours to judge
}

// TestCheckTellsOfRequestsThatAreNotMarked: what a command sends of traces of its own, or through
// TLS, would be no part of the trial, and nobody would see why.
func TestCheckTellsOfRequestsThatAreNotMarked(t *testing.T) {
	m := relayMesh(t)
	m.topology.Propagation, m.forward = []string{topology.FormatB3}, passing("b3")
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for _, tc := range []struct {
		name, target, b3, want string
	}{
		{"marked", m.url("front"), "", ""},
		{"sampling only", m.url("front"), "0", ""},
		{"foreign", m.url("front"), "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1", "step test: 1 requests of its command bear a trace of their own"},
		{"TLS", secure.URL, "", "step test: 1 requests of its command went through TLS"},
	} {
		command := workloadtest.Command("TestAstrayChild", tc.target, map[string]string{"ASTRAY_B3": tc.b3})
		command.Name = "test"
		told := &logged{t: t}
		c := m.config(spec(named("first", "GET", m.url("front")), command))
		c.ReportTimeout, c.Progress = 50*time.Millisecond, told
		got, err := Check(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got.Problems, "\n"); got.OK() != (tc.want == "") || !strings.Contains(text, tc.want) {
			t.Errorf("%s: incomplete %q, problems %q", tc.name, got.Incomplete, got.Problems)
		}
		if _, err := Plan(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		warned := false
		for _, u := range told.updates {
			warned = warned || u.Warning && tc.want != "" && strings.Contains(u.Text, tc.want)
		}
		if warned != (tc.want != "") {
			t.Errorf("%s: plan warns: %v", tc.name, warned)
		}
	}
}
