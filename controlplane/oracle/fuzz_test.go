package oracle

import (
	"testing"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// FuzzParsePath: whatever the text, reading it ends. Where a campaign may have the path, none
// of it is lost, else it would cover more of an answer than was meant to be ignored.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"$", "$.items[*].id", "$[0]", "$.a-b[12].c", "$.a]", "$[007]", "$.a[99999999999999999999].b", "$.*", "$..a", "a[", "$[x]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := parsePath(text)
		_ = p.String()
		if _, err := Compile(&campaignv1.Oracle{Ignore: []string{text}}); err != nil {
			return
		}
		inner := parsePath(text + ".member")
		if len(inner) != len(p)+1 || !inner.matches([]path{p}) || p.matches([]path{inner}) {
			t.Errorf("%q is %v, and its member %v", text, p, inner)
		}
	})
}
