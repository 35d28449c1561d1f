package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestASystemThatIsGone ends each command long before sidecars would have had their time.
func TestASystemThatIsGone(t *testing.T) {
	dir := t.TempDir()
	gone := freeAddress(t)
	write(t, filepath.Join(dir, "topology.yaml"), fmt.Sprintf("services: [{name: shop, app: '%s', inbound: '%s'}]\n", freeAddress(t), gone))
	file := write(t, filepath.Join(dir, "campaign.yaml"), fmt.Sprintf("name: a\nworkload: {steps: [{http: {url: 'http://%s/'}}]}\n", gone))
	flags := []string{"--xds", "127.0.0.1:0", "--otlp", "127.0.0.1:0", "--plugin", plugin(t, dir)}
	for _, args := range [][]string{
		{"run", file, "--out", filepath.Join(dir, "out")},
		{"check", file},
		{"replay", "testdata/replay.yaml", "--campaign", file},
	} {
		t.Run(args[0], func(t *testing.T) {
			begun := time.Now()
			call(t, append(args, flags...)...).expect(t, exitIncomplete, "nothing listens at any address of the topology ("+gone+", ")
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	// Who gives a time to wait is waited for.
	call(t, append([]string{"check", file, "--wait", "50ms"}, flags...)...).expect(t, exitIncomplete, "no sidecar at all is connected")
}

func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up") }))
	defer server.Close()
	up, gone := strings.TrimPrefix(server.URL, "http://"), freeAddress(t)
	request := func(address string) *campaignv1.Workload {
		return &campaignv1.Workload{Steps: []*campaignv1.Step{{Action: &campaignv1.Step_Http{Http: &campaignv1.HttpRequest{Url: "http://" + address + "/x"}}}}}
	}
	command := &campaignv1.Workload{Steps: []*campaignv1.Step{{Action: &campaignv1.Step_Command{Command: &campaignv1.Command{Argv: []string{"true"}}}}}}
	for name, tc := range map[string]struct {
		service topology.Service
		work    *campaignv1.Workload
		nobody  bool
	}{
		"all gone":              {topology.Service{Inbound: gone, App: gone, Calls: []topology.Call{{Listen: gone}}}, request(gone), true},
		"an application is up":  {topology.Service{Inbound: gone, App: up}, request(gone), false},
		"a listener is up":      {topology.Service{Inbound: gone, Calls: []topology.Call{{Listen: up}}}, request(gone), false},
		"the request is served": {topology.Service{Inbound: gone}, request(up), false},
		"no addresses":          {topology.Service{}, request(gone), false},
		"a command":             {topology.Service{Inbound: gone}, command, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := nobodyListens(t.Context(), &topology.Topology{Services: []topology.Service{tc.service}}, tc.work)
			if (got != "") != tc.nobody || tc.nobody && !strings.Contains(got, gone) {
				t.Errorf("it says %q", got)
			}
		})
	}
}

func TestFirstOfManyAddresses(t *testing.T) {
	if got := firstOf([]string{"a:1", "b:1", "c:1", "d:1", "e:1", "f:1"}); got != "a:1, b:1, c:1, d:1 and 2 more" {
		t.Errorf("it lists %q", got)
	}
}
