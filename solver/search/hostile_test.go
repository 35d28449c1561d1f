package search

import (
	"context"
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// disturbed is a run of which some attributes are wrong, or belong elsewhere.
func disturbed(t *rapid.T, run *tracetest.Run) *solverv1.RecordedTrial {
	td := run.Traces()
	var spans []*tracev1.Span
	for _, rs := range td.ResourceSpans {
		spans = append(spans, rs.ScopeSpans[0].Spans...)
	}
	numbers := rapid.OneOf(rapid.Int64Range(0, 20), rapid.SampledFrom([]int64{-1, 1 << 31, 1 << 48, 1<<63 - 1}))
	texts := rapid.SampledFrom([]string{"", "a", "b", "GET /b", "x", "client", "server", "req", "resp", "failure", "call", "decision", "t=k", "\xff"})
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		s := rapid.SampledFrom(spans).Draw(t, "span")
		kv := rapid.SampledFrom(s.Attributes).Draw(t, "attribute")
		if kv.Key == span.Key {
			continue
		}
		switch value := kv.Value.GetValue().(type) {
		case *commonv1.AnyValue_IntValue:
			value.IntValue = numbers.Draw(t, "number")
		case *commonv1.AnyValue_StringValue:
			value.StringValue = texts.Draw(t, "text")
			if rapid.Bool().Draw(t, "as in another") {
				other := rapid.SampledFrom(spans).Draw(t, "other")
				for _, o := range other.Attributes {
					if o.Key == kv.Key {
						value.StringValue = o.GetValue().GetStringValue()
					}
				}
			}
		case *commonv1.AnyValue_BoolValue:
			value.BoolValue = !value.BoolValue
		}
	}
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(td)
	if err != nil {
		t.Skip("no longer a message")
	}
	return &solverv1.RecordedTrial{Id: run.Key(), TracesData: b}
}

// TestHostileTraces: whatever traces say, a search refuses them or goes on; it
// does not panic, and says the same of them twice.
func TestHostileTraces(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		p := program(t, 1)
		request := &solverv1.StartSessionRequest{MaxFaults: 2}
		clean := []*solverv1.RecordedTrial{p.Run("one", "a", 1).Recorded(), disturbed(t, p.Run("two", "a", 2))}
		late := disturbed(t, p.Run("three", "a", 3))
		verdict := campaignv1.Verdict(rapid.IntRange(1, 7).Draw(t, "verdict"))
		search := func() (said string) {
			s, err := New(request)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.AddTraces(context.Background(), clean); err != nil {
				return err.Error()
			}
			taken++
			for range 3 {
				list, err := s.Next(context.Background(), 5)
				if err != nil {
					return said + err.Error()
				}
				for _, c := range list {
					said += candidateText(c)
					r := &solverv1.Result{Candidate: c.GetId(), Verdict: verdict, Recorded: late}
					if err := s.AddResults(context.Background(), []*solverv1.Result{r}); err != nil {
						said += err.Error()
					}
				}
			}
			return said + s.coverage().String()
		}
		if first, second := search(), search(); first != second {
			t.Fatalf("%s\n\nand then\n\n%s", first, second)
		}
	})
	if taken == 0 {
		t.Error("no trace was taken")
	}
}
