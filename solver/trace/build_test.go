package trace_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func build(t testing.TB, r *tracetest.Run) *trace.Trial {
	t.Helper()
	x, err := trace.Build(r.Key(), r.Traces())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestRepeats: a call that is made again out of the same span is told from calls that only
// look alike.
func TestRepeats(t *testing.T) {
	r := tracetest.New("repeats")
	root := r.Send("", tracetest.Front, tracetest.DispatchAPI).Receive()
	first := r.Send(tracetest.Front, "route", tracetest.RouteAPI).FailRequest("x", "abort")
	r.Send(tracetest.Front, "route", tracetest.RouteAPI).Done()
	first.Again().Done()
	root.Answer(200)
	x := build(t, r.End())
	ranks := make(map[uint32][]uint32)
	for i := range x.Calls {
		for _, j := range x.Repeats(i) {
			ranks[x.Calls[i].K] = append(ranks[x.Calls[i].K], x.Calls[j].K)
		}
	}
	if diff := cmp.Diff(map[uint32][]uint32{1: {3}}, ranks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i := range x.Calls {
		x.Calls[i].Parent = ""
		if got := x.Repeats(i); got != nil {
			t.Errorf("call %d: %v though its span is not known", i, got)
		}
	}
}

func TestDispatch(t *testing.T) {
	x := build(t, tracetest.Dispatch(1, nil))
	if !x.Complete(nil) || len(x.Retries)+len(x.Warnings)+len(x.Problems) > 0 || x.Assumed {
		t.Errorf("gaps %v, sends %v, receives %v, retries %v, warnings %v", x.Gaps, x.UnmatchedSends, x.UnmatchedReceives, x.Retries, x.Warnings)
	}
	// Two events of the entry, five of each other call.
	if len(x.Calls) != 13 || len(x.Events) != 2+12*5 {
		t.Errorf("%d calls, %d events; want 13 and 62", len(x.Calls), len(x.Events))
	}
	if d := cmp.Diff([]string{"customer", "driver", "frontend", "route"}, x.Services()); d != "" {
		t.Error(d)
	}
	ranks := []uint32{}
	for i := range x.Calls {
		c := &x.Calls[i]
		if c.Caller == "" {
			continue
		}
		if !slices.IsSorted([]int{c.ClientReq, c.ServerReq, c.ServerResp, c.ClientResp, c.Delivered}) {
			t.Errorf("%s: events out of order", c.Describe())
		}
		if c.Callee == "route" {
			ranks = append(ranks, c.K)
		}
	}
	if d := cmp.Diff([]uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, ranks); d != "" {
		t.Error(d)
	}
	if x.Ended["none"] != 0 || len(x.Ended) != 4 {
		t.Errorf("ended: %v", x.Ended)
	}
}

// happened is who came before whom, by names that do not depend on the order.
func happened(x *trace.Trial) map[[2]string]bool {
	past, out := x.Past(), map[[2]string]bool{}
	name := func(i int) string { return x.Events[i].Instance + "/" + string(rune('0'+x.Events[i].Seq)) }
	for i := range x.Events {
		for j := range i {
			if past.Includes(i, j) {
				out[[2]string{name(j), name(i)}] = true
			}
		}
	}
	return out
}

func TestSkewedClocksChangeNoCausality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64Range(0, 50).Draw(t, "seed")
		exact := tracetest.Dispatch(seed, nil)
		a, err := trace.Build(exact.Key(), exact.Traces())
		if err != nil {
			t.Fatal(err)
		}
		r := tracetest.New("skewed")
		for _, s := range []string{tracetest.Front, "customer", "driver", "route"} {
			r.Skew(s, time.Duration(rapid.Int64Range(-3_600_000, 3_600_000).Draw(t, s))*time.Millisecond)
		}
		skewed := tracetest.DispatchOf(r, seed, nil)
		b, err := trace.Build(skewed.Key(), skewed.Traces())
		if err != nil {
			t.Fatal(err)
		}
		if want, got := happened(a), happened(b); !maps.Equal(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
		for i := range b.Events {
			if c := b.Events[i].Cause; c >= i {
				t.Fatalf("event %d comes before its cause %d", i, c)
			}
		}
	})
}

// each calls f with every span of td.
func each(td *tracev1.TracesData, f func(*tracev1.Span)) {
	for _, rs := range td.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				f(s)
			}
		}
	}
}

func TestOrderOfReportsDoesNotMatter(t *testing.T) {
	r := tracetest.Dispatch(7, nil)
	want := build(t, r)
	td := r.Traces()
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		random.Shuffle(len(td.ResourceSpans), func(i, j int) {
			td.ResourceSpans[i], td.ResourceSpans[j] = td.ResourceSpans[j], td.ResourceSpans[i]
		})
		for _, rs := range td.ResourceSpans {
			s := rs.ScopeSpans[0].Spans
			random.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		}
		// Exporters repeat batches.
		twice := &tracev1.TracesData{ResourceSpans: append(slices.Clone(td.ResourceSpans), td.ResourceSpans...)}
		got, err := trace.Build(r.Key(), twice)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
}

func set(s *tracev1.Span, name string, v *commonv1.AnyValue) {
	s.Attributes = slices.DeleteFunc(s.Attributes, func(kv *commonv1.KeyValue) bool { return kv.Key == name })
	if v != nil {
		s.Attributes = append(s.Attributes, &commonv1.KeyValue{Key: name, Value: v})
	}
}

func text(s string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}
}

func number(n int64) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: n}}
}

func get(s *tracev1.Span, name string) *commonv1.AnyValue {
	for _, kv := range s.Attributes {
		if kv.Key == name {
			return kv.Value
		}
	}
	return nil
}

// twoServices is a -> b, inside a call from outside to a.
func twoServices(change func(c *tracetest.Call), leaves ...string) *tracetest.Run {
	r := tracetest.New("two")
	for _, l := range leaves {
		r.Leaf(l)
	}
	root := r.Send("", "a", "GET /").Receive()
	c := r.Send("a", "b", "GET /b")
	change(c)
	root.Answer(200)
	return r
}

func TestDecisionAndCallAreOne(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Receive().Answer(200).FailAnswer("f1", "abort") })
	td := r.Traces()
	want := build(t, r)
	if d := cmp.Diff([]string{"f1"}, want.Fired()); d != "" {
		t.Error(d)
	}
	// The decision is reported early and knows less.
	for _, rs := range td.ResourceSpans {
		var early []*tracev1.Span
		for _, s := range rs.ScopeSpans[0].Spans {
			if get(s, span.Fired) == nil {
				continue
			}
			d := proto.CloneOf(s)
			set(d, span.Kind, text("decision"))
			set(d, span.Bytes, nil)
			set(d, span.Length, nil)
			early = append(early, d)
		}
		rs.ScopeSpans[0].Spans = append(early, rs.ScopeSpans[0].Spans...)
	}
	got, err := trace.Build(r.Key(), td)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Calls {
		got.Calls[i].Spans = want.Calls[i].Spans
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestBothHalvesOfACallMayFire: a request is delayed and its answer aborted. The
// call's span tells of the answer; of the request tells the early decision.
func TestBothHalvesOfACallMayFire(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := twoServices(func(c *tracetest.Call) { c.Receive().Answer(200).FailAnswer("answer", "abort") })
		td := r.Traces()
		for _, rs := range td.ResourceSpans {
			spans := &rs.ScopeSpans[0].Spans
			for _, s := range *spans {
				if get(s, span.Fired) == nil {
					continue
				}
				d := proto.CloneOf(s)
				set(d, span.Kind, text("decision"))
				set(d, span.Fired, text("request"))
				set(d, span.FiredPhase, text("req"))
				set(d, span.Fault, text("delay"))
				for _, later := range []string{span.RespSeq, span.RespFromInstance, span.RespFromSeq, span.Outcome} {
					set(d, later, nil)
				}
				if *spans = append(*spans, d); !late {
					slices.Reverse(*spans)
				}
				break
			}
		}
		x, err := trace.Build(r.Key(), td)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"request", "answer"}, x.Fired()); d != "" {
			t.Errorf("decision late %v: %s", late, d)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		run      *tracetest.Run
		gaps     int
		missing  []string
		receives int
		leaf     bool
	}{
		{name: "nothing", run: twoServices(func(c *tracetest.Call) { c.Done() })},
		{
			name: "the caller's report", run: twoServices(func(c *tracetest.Call) { c.DropClient = true; c.Done() }),
			gaps: 1, receives: 1,
		},
		{
			name: "the callee's report", run: twoServices(func(c *tracetest.Call) { c.DropServer = true; c.Done() }),
			gaps: 1, missing: []string{"b"}, receives: 1,
		},
		{
			name: "a callee without sidecar", run: twoServices(func(c *tracetest.Call) { c.Receive().Answer(200).Get() }, "b"),
			missing: []string{"b"}, leaf: true,
		},
		{name: "a request that a fault stopped", run: twoServices(func(c *tracetest.Call) { c.FailRequest("f", "error") })},
		{
			name: "a request that a fault delayed is still to come", run: twoServices(func(c *tracetest.Call) { c.FailRequest("f", "delay") }),
			missing: []string{"b"},
		},
		{
			name: "a delayed request whose caller left",
			run:  twoServices(func(c *tracetest.Call) { c.FailRequest("f", "delay").Unsent = true }),
		},
		{name: "a dropped request whose caller left", run: twoServices(func(c *tracetest.Call) { c.FailRequest("f", "drop") })},
		{
			name: "a request that was sent on before its caller left", run: twoServices(func(*tracetest.Call) {}),
			missing: []string{"b"},
		},
		{
			name: "a delayed request that was sent on before its caller left",
			run:  twoServices(func(c *tracetest.Call) { c.FailRequest("f", "delay").Receive().Answer(200) }),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := build(t, tt.run)
			if len(x.Gaps) != tt.gaps || len(x.UnmatchedReceives) != tt.receives {
				t.Errorf("gaps %v, receives %v", x.Gaps, x.UnmatchedReceives)
			}
			if d := cmp.Diff(tt.missing, x.Missing(nil)); d != "" {
				t.Error(d)
			}
			if whole := tt.gaps+tt.receives+len(tt.missing) == 0; x.Complete(nil) != whole {
				t.Errorf("complete: %v", x.Complete(nil))
			}
			if tt.leaf && !x.Complete(map[string]bool{"b": true}) {
				t.Error("a declared leaf is still missed")
			}
		})
	}
}

func TestFinalCountShowsGap(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Done() })
	later := r.Send("a", "b", "GET /later")
	later.DropClient = true
	r.End()
	x := build(t, r)
	want := []trace.Gap{{Service: "a", Instance: x.Gaps[0].Instance, First: 6, Last: 6}}
	if d := cmp.Diff(want, x.Gaps); d != "" {
		t.Error(d)
	}
}

func TestRetryByTheMeshIsOneCall(t *testing.T) {
	r := tracetest.New("retry")
	root := r.Send("", "a", "GET /").Receive()
	c := r.Send("a", "b", "GET /b").Receive().Answer(503)
	td := r.Traces() // the first attempt, as b saw it
	var first *tracev1.Span
	each(td, func(s *tracev1.Span) {
		if get(s, span.Service).GetStringValue() == "b" {
			first = proto.CloneOf(s)
		}
	})
	c.Receive().Answer(200).Get().Deliver()
	root.Answer(200)
	td = r.Traces()
	for _, rs := range td.ResourceSpans {
		for _, s := range rs.ScopeSpans[0].Spans {
			if get(s, span.Service).GetStringValue() == "b" {
				set(s, span.Retry, &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: true}})
				s.SpanId = []byte("retried!")
				rs.ScopeSpans[0].Spans = append(rs.ScopeSpans[0].Spans, first)
				break
			}
		}
	}
	x, err := trace.Build(r.Key(), td)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Calls) != 2 || !x.Complete(nil) {
		t.Fatalf("%d calls, gaps %v", len(x.Calls), x.Gaps)
	}
	if d := cmp.Diff([]trace.Retry{{Call: 1, Attempts: 2}}, x.Retries); d != "" {
		t.Error(d)
	}
	got := x.Calls[1]
	if x.Events[got.ServerResp].Status != 200 || x.Events[got.ClientResp].Cause != got.ServerResp {
		t.Errorf("the answer that counts is %+v", x.Events[got.ServerResp])
	}
}

func TestOtherTrialsAreLeftAside(t *testing.T) {
	a, b := tracetest.Dispatch(1, nil), tracetest.Dispatch(2, nil)
	both := &tracev1.TracesData{ResourceSpans: append(a.Traces().ResourceSpans, b.Traces().ResourceSpans...)}
	for _, id := range []string{b.Key(), strings.ToUpper(b.Key())} {
		got, err := trace.Build(id, both)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(build(t, b), got); d != "" {
			t.Errorf("%s: %s", id, d)
		}
	}
	all, err := trace.Trials(both)
	if err != nil || len(all) != 2 {
		t.Errorf("%d trials, %v", len(all), err)
	}
	none, err := trace.Build("00000000000000", both)
	if err != nil || len(none.Events) != 0 || none.ID != "00000000000000" {
		t.Errorf("a trial without reports: %+v, %v", none, err)
	}
	if _, err := trace.Trials(&tracev1.TracesData{}); !errors.Is(err, trace.ErrNoEvents) {
		t.Errorf("no spans: %v", err)
	}
}

func TestProblemsAreKept(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Done() })
	td := r.Traces()
	s := &tracev1.Span{}
	for name, v := range map[string]string{
		span.Kind: "problem", span.Key: r.Key(), span.Service: "b", span.Instance: "00", span.Problem: "table_full",
	} {
		set(s, name, text(v))
	}
	td.ResourceSpans[0].ScopeSpans[0].Spans = append(td.ResourceSpans[0].ScopeSpans[0].Spans, s, s)
	x, err := trace.Build(r.Key(), td)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]trace.Problem{{Service: "b", Instance: "00", What: "table_full"}}, x.Problems); d != "" {
		t.Error(d)
	}
}

func TestBadSpansAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		field string
		value *commonv1.AnyValue
		err   error
	}{
		{"no instance", span.Instance, nil, trace.ErrSpan},
		{"no service", span.Service, nil, trace.ErrSpan},
		{"no api", span.API, text(""), trace.ErrSpan},
		{"role", span.Role, text("proxy"), trace.ErrSpan},
		{"no role", span.Role, nil, trace.ErrSpan},
		{"kind", span.Kind, text("odd"), trace.ErrSpan},
		{"type", span.K, text("3"), trace.ErrSpan},
		{"negative", span.ReqSeq, number(-1), trace.ErrSpan},
		{"zero", span.ReqSeq, number(0), trace.ErrSpan},
		{"answer before request", span.RespSeq, number(1), trace.ErrSpan},
		{"outcome", span.Outcome, text("maybe"), trace.ErrSpan},
		{"no outcome", span.Outcome, nil, trace.ErrSpan},
		{"flag", span.Retry, text("yes"), trace.ErrSpan},
		{"list", span.Judged, number(1), trace.ErrSpan},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := twoServices(func(c *tracetest.Call) { c.Done() })
			td := r.Traces()
			var bad *tracev1.Span
			each(td, func(s *tracev1.Span) {
				if bad == nil && get(s, span.Role).GetStringValue() == "client" {
					bad = s
				}
			})
			if tt.field == span.RespSeq {
				tt.value = get(bad, span.ReqSeq)
			}
			set(bad, tt.field, tt.value)
			_, err := trace.Build(r.Key(), td)
			if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.field) || !strings.Contains(err.Error(), "5f1c"+r.Key()) {
				t.Errorf("error %v: want span and %s named", err, tt.field)
			}
		})
	}
}

func TestContradictionIsAnError(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Done() })
	td := r.Traces()
	// The request claims to have been sent by its own answer.
	each(td, func(s *tracev1.Span) {
		if get(s, span.ReqFromSeq) != nil {
			set(s, span.ReqFromSeq, number(3))
		}
	})
	if _, err := trace.Build(r.Key(), td); !errors.Is(err, trace.ErrCausality) {
		t.Errorf("error %v, want ErrCausality", err)
	}
}

func TestNumberUsedTwiceIsSaid(t *testing.T) {
	r := twoServices(func(c *tracetest.Call) { c.Done() })
	td := r.Traces()
	each(td, func(s *tracev1.Span) {
		if get(s, span.DeliveredSeq) != nil {
			set(s, span.DeliveredSeq, number(5)) // a's answer to the client has it too
		}
	})
	x, err := trace.Build(r.Key(), td)
	if err != nil || len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], "number 5") {
		t.Errorf("%v, warnings %v", err, x.Warnings)
	}
}

// TestClocksThatContradict: of an application's spans a server's may begin before
// the client's that called it, on one and the same clock. That costs a message
// its sender, and no more time than other spans, however many there are.
func TestClocksThatContradict(t *testing.T) {
	// Ten times as many calls take ten times as long, where they took a hundred times. Both
	// are built as busy as the machine is, so that there is no limit in seconds.
	few, many := contradict(t, 3_000), contradict(t, 30_000)
	if many > 50*few {
		t.Errorf("3,000 calls took %v, 30,000 took %v", few, many)
	}
}

// contradict builds so many calls of which each answers before it was asked, and says how
// long that took.
func contradict(t *testing.T, calls int) time.Duration {
	t.Helper()
	scope := &tracev1.ScopeSpans{}
	id := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for i := range calls {
		at := uint64(1 + i*10)
		client := &tracev1.Span{
			TraceId: make([]byte, 16), SpanId: id(2*i + 1), Kind: tracev1.Span_SPAN_KIND_CLIENT,
			StartTimeUnixNano: at + 1, EndTimeUnixNano: at + 9,
			Attributes: []*commonv1.KeyValue{{Key: "http.method", Value: text("GET")}, {Key: "http.route", Value: text("/a")}},
		}
		server := proto.CloneOf(client)
		server.SpanId, server.ParentSpanId, server.Kind = id(2*i+2), client.SpanId, tracev1.Span_SPAN_KIND_SERVER
		server.StartTimeUnixNano, server.EndTimeUnixNano = at, at+8
		scope.Spans = append(scope.Spans, client, server)
	}
	start := time.Now()
	x, err := trace.Build("", &tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{ScopeSpans: []*tracev1.ScopeSpans{scope}}}})
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	// Without its sender the server's end is a call from outside.
	if len(x.Events) != 4*calls || len(x.Calls) != 2*calls {
		t.Errorf("%d events, %d calls", len(x.Events), len(x.Calls))
	}
	if want := fmt.Sprint("and ", calls-1, " others"); len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], want) {
		t.Errorf("%d warnings, want one of the first %s", len(x.Warnings), want)
	}
	return took
}
