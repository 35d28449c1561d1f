package campaign

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestAstrayChild is not a test: it is the command of TestCheckTellsOfRequestsThatAreNotMarked.
func TestAstrayChild(t *testing.T) {
	target := os.Getenv("ASTRAY_TARGET")
	if target == "" {
		t.Skip("run by TestCheckTellsOfRequestsThatAreNotMarked")
	}
	proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if trace := os.Getenv("ASTRAY_B3"); trace != "" {
		request.Header.Set("b3", trace)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	if response, err := client.Do(request); err == nil { // the certificate is not ours to judge
		_ = response.Body.Close()
	}
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
		command := &campaignv1.Step{Name: "test", Action: &campaignv1.Step_Command{Command: &campaignv1.Command{
			Argv: []string{os.Args[0], "-test.run=^TestAstrayChild$"},
			Env:  map[string]string{"ASTRAY_TARGET": tc.target, "ASTRAY_B3": tc.b3},
		}}}
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
