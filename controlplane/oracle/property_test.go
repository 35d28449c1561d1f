package oracle

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// document draws a JSON document.
func document(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		most := 5
		if depth == 0 {
			most = 3
		}
		switch rapid.IntRange(0, most).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return float64(rapid.IntRange(-2, 2).Draw(t, "number"))
		case 3:
			return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "string")
		case 4:
			return rapid.SliceOfN(document(depth-1), 0, 3).Draw(t, "array")
		}
		return rapid.MapOfN(rapid.SampledFrom([]string{"x", "y", "z.w"}), document(depth-1), 0, 3).Draw(t, "object")
	})
}

func bodies(t *rapid.T) []string {
	docs := rapid.SliceOfN(document(3), 1, 5).Draw(t, "clean")
	out := make([]string, len(docs))
	for i, doc := range docs {
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(b)
	}
	return out
}

// What clean runs showed is clean, whatever they showed.
func TestCleanRunsAreClean(t *testing.T) {
	o := oracle(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		var runs []Observation
		for _, body := range bodies(rt) {
			runs = append(runs, run(answer(200, body)))
		}
		b, err := o.Learn(t.Context(), runs, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for _, clean := range runs {
			if s := b.Judge(t.Context(), clean); s.GetClass() != classClean || len(s.GetShape()) > 0 {
				rt.Fatalf("%s is judged %s", clean.Answers[0].Whole, text(s))
			}
		}
	})
}

// The order of clean runs says nothing.
func TestOrderOfCleanRuns(t *testing.T) {
	o := oracle(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		clean := bodies(rt)
		trial := bodies(rt)[0]
		judge := func() *campaignv1.OutcomeSignature {
			var runs []Observation
			for _, body := range clean {
				runs = append(runs, run(answer(200, body)))
			}
			b, err := o.Learn(t.Context(), runs, nil)
			if err != nil {
				rt.Fatal(err)
			}
			return b.Judge(t.Context(), run(answer(200, trial)))
		}
		before := judge()
		slices.Reverse(clean)
		if after := judge(); after.GetId() != before.GetId() || after.GetSummary() != before.GetSummary() {
			rt.Fatalf("%s became %s", text(before), text(after))
		}
	})
}
