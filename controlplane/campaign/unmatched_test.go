package campaign

import (
	"net/http"
	"slices"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestUnmatchedOpsAreTold: a mistyped op would change nothing, and nobody would know. One
// that only a fault brings about is none.
func TestUnmatchedOpsAreTold(t *testing.T) {
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		if status, _ := call(http.MethodPost, "back", "/search"); status != http.StatusOK {
			call(http.MethodPost, "back", "/fallback")
		}
		reply(w, 1)
	}
	m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
	one := spec(fetch("GET", m.url("front")))
	one.Oracle = &campaignv1.Oracle{
		Harmless:      []string{"POST /search", "POST /fallback", "POST /serach"},
		StateChanging: []string{"GET /serach"},
	}
	c := m.config(one)
	told := &logged{t: t}
	c.Progress = told
	runCampaign(t, c)
	want := []string{
		`oracle.harmless: no run called "POST /serach", so it changes nothing; calls were: GET /, POST /fallback, POST /search`,
		`oracle.stateChanging: no run called "GET /serach", so it changes nothing; calls were: GET /, POST /fallback, POST /search`,
	}
	if got := warnings(told, "no run called"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
