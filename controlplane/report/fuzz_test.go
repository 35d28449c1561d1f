package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// FuzzReadJSON: a report.json from anywhere is read or refused. What is read can be written and
// is the same then, and can be shown in every form without harm to where it is shown.
func FuzzReadJSON(f *testing.F) {
	for _, r := range []*campaignv1.CampaignReport{hotrod(), busy(), {}} {
		var b bytes.Buffer
		if err := JSON(&b, r); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	// Small ones, of which more can be made in the same time.
	for _, seed := range []string{
		`{"findings":[{"id":"F1","signature":{"class":"OUTCOME_CLASS_FINDING","summary":"s"},"witnesses":[{"id":"00","verdict":3,"reason":"not checked: r"}]}]}`,
		`{"trials":[{"purpose":"candidate","tfics":[{"id":"a","target":{"caller":"x","callee":"y","api":"GET /","phase":1,"k":1},"guard":{"allOf":{"guards":[{"atom":{"count":1}}]}},"fault":{"delay":{"fixed":"1s"}}}]}]}`,
		`{"clean":[{"answers":[{"status":200,"body":"e30=","duration":"0.1s"}],"events":[{"position":1,"op":{"observer":"x","role":2}},{"position":2,"cause":1,"fired":"a"}]}]}`,
		`{"coverage":{"space":9,"reached":1,"rows":[{"caller":"x","unreached":"no"}],"unreached":{"no":8}},"sidecars":[{"service":"x","nack":"n"}],"start":"2026-11-29T12:00:00Z","duration":"1s"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadJSON(b)
		if err != nil {
			return
		}
		var written, html, junit, text bytes.Buffer
		if err := errors.Join(JSON(&written, r), HTML(&html, r), JUnit(&junit, r), Terminal(&text, r, TerminalOptions{})); err != nil {
			t.Fatal(err)
		}
		again, err := ReadJSON(written.Bytes())
		if err != nil || !proto.Equal(r, again) {
			t.Fatalf("what was written is another report: %v\n%s", err, written.Bytes())
		}
		var suites struct{}
		if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
			t.Errorf("junit.xml is not XML: %v", err)
		}
		if i := strings.IndexFunc(text.String(), func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || r == 0x202e) }); i >= 0 {
			t.Errorf("a control character reaches the terminal: %q", text.String()[max(0, i-20):i+1])
		}
		if strings.Contains(html.String(), "<script") {
			t.Error("the page has a script")
		}
	})
}
