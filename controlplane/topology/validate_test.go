package topology

import (
	"strings"
	"testing"
)

// TestTraceHeader: a trial's requests carry it, so it can be none that has another meaning.
func TestTraceHeader(t *testing.T) {
	for header, want := range map[string]string{
		"":               "",
		"x-trace":        "",
		"x-request-id":   "",
		"X-Trace":        "in lower case",
		"x-fic-evidence": "SequenceFI's",
		"traceparent":    "nothing: traceparent is understood without",
		"x-b3-traceid":   "nothing: x-b3-traceid is understood without",
		"host":           "requests need host for something else",
		"content-length": "requests need content-length",
	} {
		top := Topology{Services: []Service{{Name: "a"}}, TraceHeader: header}
		var got []string
		for _, p := range top.Validate() {
			got = append(got, p.String())
		}
		if text := strings.Join(got, "; "); (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%q: %q, want %q", header, text, want)
		}
	}
}
