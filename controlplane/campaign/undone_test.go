package campaign

import (
	"net/http"
	"slices"
	"testing"
)

// TestOneUndoingOfTwoCharges: a shop that charges twice and then is refused undoes both, or
// writes one note.
func TestOneUndoingOfTwoCharges(t *testing.T) {
	const taken = "pay POST /charge taken as undone by "
	for _, tt := range []struct {
		name, path      string
		times           int
		found, degraded []string
	}{
		{"both undone", "/charges/17/void", 2, nil, []string{taken + "POST /charges/{id}/void 2 times"}},
		{"a note", "/note", 1, []string{taken + "POST /note", "+1 pay POST /charge"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shop := func(w http.ResponseWriter, _ *http.Request, call caller) {
				call(http.MethodPost, "pay", "/charge")
				call(http.MethodPost, "pay", "/charge")
				if status, _ := call(http.MethodGet, "stock", "/items"); status != http.StatusOK {
					for range tt.times {
						call(http.MethodPost, "pay", tt.path)
					}
					http.Error(w, "sorry", http.StatusBadGateway)
					return
				}
				reply(w, 1)
			}
			m := newMesh(t, map[string]application{"shop": shop, "pay": plain, "stock": plain}, map[string][]string{"shop": {"pay", "stock"}})
			report := runCampaign(t, m.config(spec(fetch("POST", m.url("shop")))))
			var found []string
			for _, f := range report.GetFindings() {
				if s := f.GetSignature(); slices.Equal(s.GetAnswers(), []string{"refusal"}) {
					found = append(found, s.GetEffects()...)
				}
			}
			if !slices.Equal(found, tt.found) {
				t.Errorf("found %q, want %q", found, tt.found)
			}
			var degraded []string
			for _, f := range report.GetDegraded() {
				degraded = append(degraded, f.GetSignature().GetEffects()...)
			}
			if !slices.Equal(degraded, tt.degraded) {
				t.Errorf("degraded are %q, want %q", degraded, tt.degraded)
			}
		})
	}
}
