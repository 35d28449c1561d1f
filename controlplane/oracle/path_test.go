package oracle

import (
	"strings"
	"testing"

	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
)

// TestDeepDocument compares one whose paths, were each a copy, would take gigabytes.
func TestDeepDocument(t *testing.T) {
	const depth = 9000
	text := strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth)
	doc, ok := expr.DecodeJSON([]byte(text))
	if !ok {
		t.Fatal("it is not taken for JSON")
	}
	var s shape
	s.learn(doc)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			var c comparison
			c.compare(&s, doc, path{})
			if len(c.lines) > 0 {
				b.Fatalf("%d differences to itself", len(c.lines))
			}
		}
	})
	if got := result.AllocedBytesPerOp(); got > 8<<20 {
		t.Errorf("%d bytes for a document of %d", got, len(text))
	}
}

// TestPathsOfSiblings keeps apart what shares memory.
func TestPathsOfSiblings(t *testing.T) {
	base := path{}.member("a")
	for _, name := range []string{"b", "c"} {
		if got, want := base.member(name).element(3).String(), "$.a."+name+"[*]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
