package workload

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// traceHeaders are those headers of a request that carry trace context, in lower case.
func traceHeaders(h http.Header) map[string]string {
	out := make(map[string]string)
	for name, values := range h {
		if lower := strings.ToLower(name); valid.TraceHeader(lower) || lower == "x-trace" {
			out[lower] = strings.Join(values, "|")
		}
	}
	return out
}

var spanOf = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-01$`)

// everyFormat is what a request of testKey's trial carries if nothing narrows it.
func everyFormat(t *testing.T, traceparent string) map[string]string {
	t.Helper()
	m := spanOf.FindStringSubmatch(traceparent)
	if m == nil || !strings.HasPrefix(m[1], "5f1c01020304050607") {
		t.Fatalf("traceparent is %q", traceparent)
	}
	return map[string]string{
		"traceparent":   traceparent,
		"tracestate":    "sfi=01020304050607",
		"b3":            "5f1c010203040506-" + m[2] + "-1",
		"x-b3-traceid":  "5f1c010203040506",
		"x-b3-spanid":   m[2],
		"x-b3-sampled":  "1",
		"uber-trace-id": m[1] + ":" + m[2] + ":0:1",
		"x-trace":       m[1],
	}
}

// sent runs one request and returns its trace headers.
func sent(t *testing.T, p Propagation) (map[string]string, *Result) {
	t.Helper()
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r, "") }))
	defer server.Close()
	w, err := Compile(&campaignv1.Workload{Steps: []*campaignv1.Step{get("", server.URL)}}, p)
	if err != nil {
		t.Fatal(err)
	}
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return traceHeaders(got.headers[0]), result
}

func TestRequestsCarryEveryFormat(t *testing.T) {
	got, result := sent(t, Propagation{Header: "x-trace"})
	if diff := cmp.Diff(everyFormat(t, got["traceparent"]), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if id := result.Traces[0].String(); !strings.Contains(got["traceparent"], id) {
		t.Errorf("the run's trace is %s", id)
	}
	if diff := cmp.Diff([]TraceID{
		{8: 0x5f, 0x1c, 1, 2, 3, 4, 5, 6}, {0x5f, 0x1c, 1, 2, 3, 4, 5, 6, 7},
	}, result.Shared); diff != "" {
		t.Errorf("shared: -want +got:\n%s", diff)
	}
}

func TestPropagationIsNarrowed(t *testing.T) {
	for _, tc := range []struct {
		p    Propagation
		want string
		// id that the first sidecar reports; short: of 64 bits.
		short bool
	}{
		{Propagation{}, "b3 traceparent tracestate uber-trace-id x-b3-sampled x-b3-spanid x-b3-traceid", false},
		{Propagation{Formats: []string{topology.FormatW3C}}, "traceparent tracestate", false},
		{Propagation{Formats: []string{topology.FormatB3}}, "b3", true},
		{Propagation{Formats: []string{topology.FormatB3}, Header: "x-trace"}, "b3 x-trace", false},
		{Propagation{Formats: []string{topology.FormatB3Multi}}, "x-b3-sampled x-b3-spanid x-b3-traceid", true},
		{Propagation{Formats: []string{topology.FormatW3C, topology.FormatB3}}, "b3 traceparent tracestate", false},
		// Sidecars look at B3 first (plugin/tfi/tracecontext.go).
		{Propagation{Formats: []string{topology.FormatJaeger, topology.FormatB3}}, "b3 uber-trace-id", true},
		{Propagation{Formats: []string{topology.FormatJaeger}}, "uber-trace-id", false},
	} {
		got, result := sent(t, tc.p)
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != tc.want {
			t.Errorf("%v: sent %s, want %s", tc.p, names, tc.want)
		}
		if short := strings.HasPrefix(result.Traces[0].String(), "00000000000000005f1c010203040506"); short != tc.short {
			t.Errorf("%v: reported as %s", tc.p, result.Traces[0])
		}
		for _, name := range tc.p.Headers() {
			if got[name] == "" {
				t.Errorf("%v: %s is named and was not sent", tc.p, name)
			}
		}
	}
}

// TestOwnHeaderIsNotForTheCampaign: two would be sent otherwise, or the user's be lost.
func TestOwnHeaderIsNotForTheCampaign(t *testing.T) {
	step := get("", "http://x/")
	step.GetHttp().Headers = map[string]string{"X-Trace": "1"}
	_, err := Compile(&campaignv1.Workload{Steps: []*campaignv1.Step{step}}, Propagation{Header: "x-trace"})
	if !errors.Is(err, valid.ErrInvalid) || !strings.Contains(err.Error(), `steps[0].http.headers["X-Trace"]: must be left out: it is the topology's traceHeader`) {
		t.Errorf("got %v", err)
	}
	if _, err := Compile(&campaignv1.Workload{Steps: []*campaignv1.Step{step}}, Propagation{Header: "x-other"}); err != nil {
		t.Errorf("a header of no meaning: %v", err)
	}
}

func TestCommandGetsEveryFormat(t *testing.T) {
	const script = `echo "$TRACEPARENT|$TRACESTATE|$B3|$X_B3_TRACEID|$X_B3_SPANID|$X_B3_SAMPLED|$UBER_TRACE_ID|$SEQUENCEFI_TRACE_ID"`
	out := strings.Split(strings.TrimSpace(string(runStep(t, shell(script)).Answers[0].Whole)), "|")
	if len(out) != 8 {
		t.Fatalf("the command saw %q", out)
	}
	want := everyFormat(t, out[0])
	for i, name := range []string{"traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "uber-trace-id", "x-trace"} {
		if out[i] != want[name] {
			t.Errorf("of %s the command saw %q, want %q", name, out[i], want[name])
		}
	}
}

// TestProxyStampsWhatIsMissing: what a command's request brings is left as it is.
func TestProxyStampsWhatIsMissing(t *testing.T) {
	const parent = "00-5f1c0102030405060708090a0b0c0d0e-000000000000000a-01"
	all := everyFormat(t, parent)
	without := func(more map[string]string, names ...string) map[string]string {
		out := maps.Clone(all)
		for _, name := range names {
			delete(out, name)
		}
		maps.Copy(out, more)
		return out
	}
	const other = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	for _, tc := range []struct {
		name     string
		format   Propagation
		in, want map[string]string
		own      int
	}{
		{"nothing", Propagation{Header: "x-trace"}, nil, all, 0},
		{"a broken traceparent", Propagation{Header: "x-trace"}, map[string]string{"traceparent": "?"}, all, 0},
		{
			"a trace of its own",
			Propagation{Header: "x-trace"},
			map[string]string{"traceparent": other, "tracestate": "a=b"},
			without(map[string]string{"traceparent": other, "tracestate": "sfi=01020304050607,a=b"}), 1,
		},
		{
			"the trial's trace",
			Propagation{Header: "x-trace"},
			map[string]string{"traceparent": parent},
			without(nil, "tracestate"), 0,
		},
		{
			"B3 of its own",
			Propagation{Header: "x-trace"},
			map[string]string{"x-b3-traceid": "1234567890abcdef"},
			without(map[string]string{"x-b3-traceid": "1234567890abcdef"}, "b3", "x-b3-spanid", "x-b3-sampled"), 0,
		},
		{
			"a header of the application's",
			Propagation{Header: "x-trace"},
			map[string]string{"x-trace": "mine"},
			without(map[string]string{"x-trace": "mine"}), 0,
		},
		{
			"tracestate of another trial",
			Propagation{Header: "x-trace"},
			map[string]string{"traceparent": other, "tracestate": "a=b, sfi=0a0b0c0d0e0f10,c=d,sfi=01020304050607,"},
			without(map[string]string{"traceparent": other, "tracestate": "sfi=01020304050607,a=b,c=d"}), 1,
		},
		{
			"a traceparent whose span is none",
			Propagation{Header: "x-trace"},
			map[string]string{"traceparent": "00-0123456789abcdef0123456789abcdef-0000000000000000-01"},
			all, 0,
		},
		{
			"that B3 is not sampled",
			Propagation{Header: "x-trace"},
			map[string]string{"b3": "0"},
			without(map[string]string{"b3": strings.TrimSuffix(all["b3"], "1") + "0", "x-b3-sampled": "0"}), 0,
		},
		{
			"that B3 is not sampled, in several headers",
			Propagation{Formats: []string{topology.FormatB3Multi}},
			map[string]string{"x-b3-sampled": "false", "x-b3-parentspanid": "1234567890abcdef"},
			map[string]string{"x-b3-traceid": all["x-b3-traceid"], "x-b3-spanid": all["x-b3-spanid"], "x-b3-sampled": "0"},
			0,
		},
		{
			"that B3 is to be debugged",
			Propagation{Formats: []string{topology.FormatB3, topology.FormatB3Multi}},
			map[string]string{"x-b3-flags": "1"},
			map[string]string{
				"b3": strings.TrimSuffix(all["b3"], "1") + "d", "x-b3-traceid": all["x-b3-traceid"],
				"x-b3-spanid": all["x-b3-spanid"], "x-b3-sampled": "1", "x-b3-flags": "1",
			},
			0,
		},
		{
			"B3 that cannot be read",
			Propagation{Header: "x-trace"},
			map[string]string{"b3": "80f198ee56343ba864fe8b2a57d3eff7", "x-b3-traceid": "garbage", "x-b3-sampled": "?"},
			all, 0,
		},
		{
			"uber-trace-id that cannot be read",
			Propagation{Header: "x-trace"},
			map[string]string{"uber-trace-id": "garbage"},
			all, 0,
		},
		{
			"uber-trace-id of its own",
			Propagation{Header: "x-trace"},
			map[string]string{"uber-trace-id": "abc%3A1%3A0%3A1"},
			without(map[string]string{"uber-trace-id": "abc%3A1%3A0%3A1"}), 0,
		},
		{
			"formats that are not asked for",
			Propagation{Formats: []string{topology.FormatB3}},
			map[string]string{"traceparent": "?"},
			map[string]string{"traceparent": "?", "b3": all["b3"]},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &traceContext{
				key: testKey, span: [8]byte{7: 10}, format: tc.format,
				id: TraceID{0x5f, 0x1c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14},
			}
			p, h := &proxy{trace: c}, http.Header{}
			for name, value := range tc.in {
				h.Set(name, value)
			}
			p.stamp(h)
			if diff := cmp.Diff(tc.want, traceHeaders(h)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if p.unmarked != (Unmarked{}) {
				t.Errorf("unmarked: %+v", p.unmarked)
			}
			if len(p.seen) != tc.own {
				t.Errorf("%d traces of its own, want %d", len(p.seen), tc.own)
			}
		})
	}
}

// TestProxyTellsOfForeignTraces: a request that bears a trace of the command's own in all formats
// that the trial has is left as it is, and told of.
func TestProxyTellsOfForeignTraces(t *testing.T) {
	for _, tc := range []struct {
		format      string
		name, value string
		foreign     int
	}{
		{topology.FormatB3, "b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1", 1},
		{topology.FormatB3, "b3", "00000000000000005f1c010203040506-e457b5a2e4d86bd1-1", 0},
		{topology.FormatB3Multi, "x-b3-traceid", "1234567890abcdef", 1},
		{topology.FormatB3Multi, "x-b3-traceid", "5f1c010203040506", 0},
		{topology.FormatJaeger, "uber-trace-id", "abc:1:0:1", 1},
		{topology.FormatJaeger, "uber-trace-id", "5f1c0102030405060708090a0b0c0d0e%3A1%3A0%3A1", 0},
		{topology.FormatW3C, "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", 0}, // tracestate marks it
	} {
		h := http.Header{}
		h.Set(tc.name, tc.value)
		p := &proxy{trace: &traceContext{key: testKey, span: SpanID{7: 10}, format: Propagation{Formats: []string{tc.format}}}}
		p.stamp(h)
		if got := h.Get(tc.name); got != tc.value || p.unmarked.Foreign != tc.foreign {
			t.Errorf("%s %s: left as %s, %d are foreign, want %d", tc.name, tc.value, got, p.unmarked.Foreign, tc.foreign)
		}
	}
}

// TestTracestateStaysShort: one with more than 32 members would be dropped as a whole.
func TestTracestateStaysShort(t *testing.T) {
	var members []string
	for i := range 40 {
		members = append(members, fmt.Sprintf("m%d=1", i))
	}
	got := strings.Split(stateBeside(testKey, members), ",")
	if len(got) != 32 || got[0] != "sfi=01020304050607" || got[31] != "m30=1" {
		t.Errorf("%d members: %q", len(got), got)
	}
}

// TestStepsAroundARunSetTheirOwnHeader: nobody else sets it there.
func TestStepsAroundARunSetTheirOwnHeader(t *testing.T) {
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r, "") }))
	defer server.Close()
	around := get("", server.URL)
	around.GetHttp().Headers = map[string]string{"X-Trace": "mine"}
	w, err := Compile(&campaignv1.Workload{
		Before: []*campaignv1.Step{around}, Steps: []*campaignv1.Step{get("", server.URL)}, After: []*campaignv1.Step{around},
	}, Propagation{Header: "x-trace"})
	if err != nil {
		t.Fatal(err)
	}
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Probe(t.Context(), Trial{Key: testKey}, result); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"mine", result.Traces[0].String(), "mine"} {
		if text := got.headers[i].Get("x-trace"); text != want {
			t.Errorf("request %d has %q, want %q", i, text, want)
		}
	}
}

// TestCommandInheritsNoTrace: what SequenceFI's own environment has is none of the trial's.
func TestCommandInheritsNoTrace(t *testing.T) {
	for _, name := range []string{"TRACEPARENT", "TRACESTATE", "UBER_TRACE_ID", "X_B3_PARENTSPANID", "X_B3_TRACEID"} {
		t.Setenv(name, "of another")
	}
	t.Setenv("B3_OTHER", "stays")
	w, err := Compile(&campaignv1.Workload{Steps: []*campaignv1.Step{
		shell(`echo "$TRACEPARENT|$TRACESTATE|$UBER_TRACE_ID|$X_B3_PARENTSPANID|$X_B3_TRACEID|$B3_OTHER|$B3"; echo "$SEQUENCEFI_TRACE_ID"`),
	}}, Propagation{Formats: []string{topology.FormatB3}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := w.Run(t.Context(), Trial{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(result.Answers[0].Whole), "\n")
	if !strings.HasPrefix(lines[0], "|||||stays|5f1c010203040506-") {
		t.Errorf("the command saw %q", lines[0])
	}
	if lines[1] != result.Traces[0].String() {
		t.Errorf("SEQUENCEFI_TRACE_ID is %q, and the run's trace %s", lines[1], result.Traces[0])
	}
}
