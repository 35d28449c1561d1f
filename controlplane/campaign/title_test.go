package campaign

import (
	"net/http"
	"strings"
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// TestTitleNamesAllStatuses: one outcome may have several, and its witnesses keep theirs.
func TestTitleNamesAllStatuses(t *testing.T) {
	for _, tt := range []struct {
		name, summary, want string
		steps               []string
		statuses            [][]uint32
	}{
		{"one", "Refused with HTTP 503, with nothing left behind.", "Refused with HTTP 503, with nothing left behind.", []string{"1"}, [][]uint32{{503}, {503}}},
		{"two", "Refused with HTTP 503, with nothing left behind.", "Refused with HTTP 502 or 503, with nothing left behind.", []string{"1"}, [][]uint32{{503}, {502}, {502}}},
		{"three", "HTTP 503, because the application gave no answer.", "HTTP 500, 502 or 503, because the application gave no answer.", []string{"1"}, [][]uint32{{503}, {502}, {500}}},
		{"the second step", "Step pay: refused with HTTP 503; x.", "Step pay: refused with HTTP 502 or 503; x.", []string{"cart", "pay"}, [][]uint32{{200, 503}, {200, 502}}},
		{"another step's", "Step pay: refused with HTTP 503; x.", "Step pay: refused with HTTP 503; x.", []string{"cart", "pay"}, [][]uint32{{200, 503}, {201, 503}}},
		{"no answer's", "The probe orders differs from clean runs: refused with HTTP 500.", "The probe orders differs from clean runs: refused with HTTP 500.", []string{"1"}, [][]uint32{{500}, {502}}},
		{"no status", "No answer within 1s.", "No answer within 1s.", []string{"1"}, [][]uint32{{500}, {502}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f findings
			first := tt.summary
			for _, statuses := range tt.statuses {
				w := &campaignv1.Trial{Signature: &campaignv1.OutcomeSignature{Id: "x", Summary: first, Class: campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED}}
				for i, status := range statuses {
					w.Answers = append(w.Answers, &campaignv1.Answer{Step: tt.steps[i], Status: status})
				}
				f.add(w)
			}
			for range 2 { // the second time it stays so
				if _, degraded := f.split(); len(degraded) != 1 || degraded[0].GetSignature().GetSummary() != tt.want {
					t.Errorf("got  %v\nwant %q", degraded, tt.want)
				}
			}
			for _, w := range f.list[0].Witnesses {
				if w.GetSignature().GetSummary() != first {
					t.Errorf("a witness came to %q", w.GetSignature().GetSummary())
				}
			}
		})
	}
}

func TestCampaignNamesAllStatuses(t *testing.T) {
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		switch status, _ := call(http.MethodGet, "back", "/"); status {
		case http.StatusOK:
			reply(w, 1)
		case 0:
			http.Error(w, "gone", http.StatusBadGateway)
		default:
			http.Error(w, "sorry", http.StatusServiceUnavailable)
		}
	}
	m := newMesh(t, map[string]application{"front": front, "back": plain}, map[string][]string{"front": {"back"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if d := report.GetDegraded(); len(d) != 1 || !strings.HasPrefix(d[0].GetSignature().GetSummary(), "Refused with HTTP 502 or 503, ") {
		t.Errorf("degraded are %v", d)
	}
}
