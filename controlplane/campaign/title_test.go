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

// TestTitlesTellOutcomesApart: a body that lacks one thing is another outcome than one that
// lacks two.
func TestTitlesTellOutcomesApart(t *testing.T) {
	front := func(w http.ResponseWriter, _ *http.Request, call caller) {
		type cart struct {
			Items []int   `json:"items"`
			Note  *string `json:"note"`
		}
		note := "thanks"
		items, _ := call(http.MethodGet, "items", "/")
		prices, _ := call(http.MethodGet, "prices", "/")
		switch {
		case items != http.StatusOK:
			reply(w, cart{nil, &note})
		case prices != http.StatusOK:
			reply(w, cart{nil, nil})
		default:
			reply(w, cart{[]int{1, 2}, &note})
		}
	}
	m := newMesh(t, map[string]application{"front": front, "items": plain, "prices": plain}, map[string][]string{"front": {"items", "prices"}})
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(report.GetFindings()) != 2 {
		t.Fatalf("%d findings, want 2", len(report.GetFindings()))
	}
	one, two := report.GetFindings()[0].GetSignature().GetSummary(), report.GetFindings()[1].GetSignature().GetSummary()
	const also = " Also: $.note: was string, is null."
	if one == "" || two != one+also {
		t.Errorf("they read\n%s\n%s\nwant the second to add%s", one, two, also)
	}
	for _, trial := range report.GetTrials() {
		if strings.Contains(trial.GetSignature().GetSummary(), also) {
			t.Errorf("a trial came to %q", trial.GetSignature().GetSummary())
		}
	}
}

func TestTellApart(t *testing.T) {
	const summary = "Step a: refused with HTTP 503, with nothing left behind."
	outcome := func(id string, change func(s *campaignv1.OutcomeSignature)) *campaignv1.Trial {
		s := &campaignv1.OutcomeSignature{Id: id, Summary: summary, Class: campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED, Answers: []string{"refusal", "success"}}
		change(s)
		return &campaignv1.Trial{Signature: s, Answers: []*campaignv1.Answer{{Step: "a", Status: 503}, {Step: "b", Status: 503}}}
	}
	var f findings
	f.add(outcome("1", func(*campaignv1.OutcomeSignature) {}))
	check := func(want ...string) {
		t.Helper()
		for range 2 { // the second time it stays so
			_, all := f.split()
			for i, k := range all {
				if got := k.GetSignature().GetSummary(); got != summary+want[i] {
					t.Errorf("%s: got  %s\nwant %s", k.GetId(), got, summary+want[i])
				}
			}
		}
	}
	check("")
	f.add(outcome("2", func(s *campaignv1.OutcomeSignature) { s.Answers = []string{"refusal", "refusal"} }))
	check(" Also: step b ends in a success.", " Also: step b ends in a refusal.")
	f.add(outcome("3", func(s *campaignv1.OutcomeSignature) {
		s.Effects, s.Probes, s.Invariants = []string{"+1 x POST /y"}, []string{"p: $: was 1, is 2"}, []string{"? once"}
		s.Shape = []string{"b: $: was null, is bool"}
	}))
	check(" Also: step b ends in a success.", " Also: step b ends in a refusal.",
		" Also: step b ends in a success; step b, $: was null, is bool; effect +1 x POST /y; 2 more.")
	f.add(outcome("4", func(s *campaignv1.OutcomeSignature) { s.Summary += " X." }))
	if _, all := f.split(); all[3].GetSignature().GetSummary() != summary+" X." {
		t.Errorf("one that reads differently says %s", all[3].GetSignature().GetSummary())
	}
}
