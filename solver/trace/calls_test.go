package trace_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

// attempts is a call of a to b that b's sidecar saw once for each status, of which
// the caller got the answer with the index got; trace.None: none of them.
func attempts(t *testing.T, got int, statuses ...int) *tracev1.TracesData {
	t.Helper()
	r := tracetest.New("attempts")
	root := r.Send("", "a", "GET /").Receive()
	c := r.Send("a", "b", "GET /b")
	var seen []*tracev1.Span
	var answers []*commonv1.AnyValue
	for i, status := range statuses {
		c.Receive().Answer(status)
		each(r.Traces(), func(s *tracev1.Span) {
			if get(s, span.Service).GetStringValue() != "b" {
				return
			}
			s = proto.CloneOf(s)
			s.SpanId = []byte{'a', 't', 't', 'e', 'm', 'p', 't', byte('0' + i)}
			if i > 0 {
				set(s, span.Retry, &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: true}})
			}
			seen = append(seen, s)
			answers = append(answers, get(s, span.RespSeq))
		})
	}
	c.Get().Deliver()
	root.Answer(200)
	td := r.Traces()
	for _, rs := range td.ResourceSpans {
		spans := &rs.ScopeSpans[0].Spans
		if get((*spans)[0], span.Service).GetStringValue() == "b" {
			*spans = seen
		}
		for _, s := range *spans {
			if get(s, span.Service).GetStringValue() != "a" || get(s, span.Role).GetStringValue() != "client" {
				continue
			}
			if set(s, span.RespFromSeq, number(0)); got >= 0 {
				set(s, span.RespFromSeq, answers[got])
			}
		}
	}
	return td
}

func TestAttemptWhoseAnswerCounts(t *testing.T) {
	for _, tt := range []struct {
		name     string
		got      int
		statuses []int
		want     uint32
	}{
		{"the last", 2, []int{503, 502, 200}, 200},
		{"the first, though others were under way", 0, []int{503, 502, 200}, 503},
		{"one in between", 1, []int{503, 502, 200}, 502},
		{"none: the first", trace.None, []int{503, 502, 200}, 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, err := trace.Build("", attempts(t, tt.got, tt.statuses...))
			if err != nil {
				t.Fatal(err)
			}
			if len(x.Calls) != 2 || x.Calls[1].Attempts != len(tt.statuses) || len(x.Calls[1].Spans) != len(tt.statuses)+1 {
				t.Fatalf("calls %+v", x.Calls)
			}
			c := &x.Calls[1]
			if e := &x.Events[c.ServerResp]; e.Status != tt.want || e.Request != c.ServerReq {
				t.Errorf("the answer that counts has status %d, and its request is event %d, not %d", e.Status, e.Request, c.ServerReq)
			}
			for i := range x.Events {
				if e := &x.Events[i]; e.Op.API == "GET /b" && e.Call != 1 {
					t.Errorf("event %d belongs to call %d", i, e.Call)
				}
			}
		})
	}
}

// TestRefusedAttempt: the callee's sidecar itself has answered the second attempt.
func TestRefusedAttempt(t *testing.T) {
	td := attempts(t, trace.None, 503, 502)
	var refused *tracev1.Span
	each(td, func(s *tracev1.Span) {
		if get(s, span.Service).GetStringValue() == "b" && get(s, span.Retry) != nil {
			refused = s
		}
	})
	each(td, func(s *tracev1.Span) {
		if get(s, span.Role).GetStringValue() == "client" {
			set(s, span.RespFromSeq, get(refused, span.ReqSeq))
		}
	})
	for _, name := range []string{span.RespSeq, span.RespTime, span.Status, span.Outcome} {
		set(refused, name, nil)
	}
	x, err := trace.Build("", td)
	if err != nil {
		t.Fatal(err)
	}
	c := &x.Calls[1]
	if c.Attempts != 2 || c.ServerResp != trace.None || x.Events[c.ClientResp].Cause != c.ServerReq {
		t.Errorf("the answer comes from event %d; call %+v", x.Events[c.ClientResp].Cause, c)
	}
}

// TestAttemptsOfACallerThatDidNotReport: they are one call nevertheless.
func TestAttemptsOfACallerThatDidNotReport(t *testing.T) {
	td := attempts(t, 1, 503, 200)
	for _, rs := range td.ResourceSpans {
		rs.ScopeSpans[0].Spans = slices.DeleteFunc(rs.ScopeSpans[0].Spans, func(s *tracev1.Span) bool {
			return get(s, span.Role).GetStringValue() == "client"
		})
	}
	x, err := trace.Build("", td)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Calls) != 2 || x.Calls[1].Attempts != 2 || x.Calls[1].Caller != "a" || len(x.UnmatchedReceives) != 2 || x.Complete(nil) {
		t.Errorf("calls %+v, receives %v", x.Calls, x.UnmatchedReceives)
	}
}

// TestReportsOfOneCallAddUp: whatever a sidecar's several reports of a call each
// leave out, and in whatever order they come, together they tell all of it.
func TestReportsOfOneCallAddUp(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Receive().Answer(200).FailAnswer("f1", "abort") })
	whole := r.Traces()
	flag := &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: true}}
	each(whole, func(s *tracev1.Span) {
		if get(s, span.Fired) != nil {
			set(s, span.LetGo, flag)
			set(s, span.DeliveredSeq, number(9))
			set(s, span.DeliveredTime, number(9))
			set(s, span.Judged, text("t1=k,t2=guard"))
			set(s, span.Retry, flag)
			set(s, span.K, number(1))
		}
	})
	want, err := trace.Build("", whole)
	if err != nil {
		t.Fatal(err)
	}
	parts := [][]string{
		{span.RespSeq, span.RespTime, span.RespFromInstance, span.RespFromSeq, span.Status, span.Outcome},
		{span.DeliveredSeq, span.DeliveredTime},
		{span.Fired, span.FiredPhase, span.Fault},
		{span.Judged},
		{span.Bytes, span.Chunks, span.ContentType, span.Length},
		{span.K},
		{span.LetGo},
		{span.Retry},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		td := proto.CloneOf(whole)
		for _, rs := range td.ResourceSpans {
			spans := &rs.ScopeSpans[0].Spans
			for _, s := range slices.Clone(*spans) {
				// Each part is in one report at least, and the finished call's is among them.
				early := proto.CloneOf(s)
				set(early, span.Kind, text("decision"))
				for i, part := range parts {
					from := [...]*tracev1.Span{s, early}[random.IntN(2)]
					if i == 0 {
						from = early
					}
					for _, name := range part {
						set(from, name, nil)
					}
				}
				*spans = append(*spans, early)
			}
			random.Shuffle(len(*spans), func(i, j int) { (*spans)[i], (*spans)[j] = (*spans)[j], (*spans)[i] })
		}
		got, err := trace.Build("", td)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
}
