package trace_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
	"github.com/sequencefi/sequencefi/solver/trace/tracetest"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hexJSON writes spans the way OTLP's JSON wants ids.
func hexJSON(t testing.TB, td *tracev1.TracesData) []byte {
	t.Helper()
	b, err := protojson.Marshal(td)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(n any) {
		switch n := n.(type) {
		case []any:
			for _, e := range n {
				walk(e)
			}
		case map[string]any:
			for k, v := range n {
				s, ok := v.(string)
				if !ok {
					walk(v)
					continue
				}
				if k == "traceId" || k == "spanId" || k == "parentSpanId" {
					var raw []byte
					if err := json.Unmarshal([]byte(`"`+s+`"`), &raw); err != nil {
						t.Fatal(err)
					}
					n[k] = hex.EncodeToString(raw)
				}
			}
		}
	}
	walk(tree)
	b, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The same two runs of a real application, as it exported them and as a real
// Jaeger gave them back, must tell the same story.
func TestFormatsAgree(t *testing.T) {
	build := func(b []byte, want trace.Format) map[string]*trace.Trial {
		t.Helper()
		td, format, err := trace.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if format != want {
			t.Errorf("read as %v, want %v", format, want)
		}
		list, err := trace.Trials(td)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*trace.Trial{}
		for _, x := range list {
			x.Warnings = nil // they name spans by their place in the file
			for i := range x.Events {
				x.Events[i].Time = time.Time{} // Jaeger keeps microseconds
			}
			out[x.ID] = x
		}
		return out
	}
	want := build(file(t, "dispatch.otlp"), trace.FormatOTLP)
	if len(want) != 2 {
		t.Fatalf("%d trials, want 2", len(want))
	}
	td, _, err := trace.Read(file(t, "dispatch.otlp"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, build(hexJSON(t, td), trace.FormatOTLPJSON)); d != "" {
		t.Error("OTLP JSON: " + d)
	}
	lines := append(append(hexJSON(t, &tracev1.TracesData{ResourceSpans: td.GetResourceSpans()[:1]}), '\n'),
		hexJSON(t, &tracev1.TracesData{ResourceSpans: td.GetResourceSpans()[1:]})...)
	if d := cmp.Diff(want, build(lines, trace.FormatOTLPJSON)); d != "" {
		t.Error("OTLP JSON lines: " + d)
	}
	if d := cmp.Diff(want, build(file(t, "dispatch.jaeger.json"), trace.FormatJaeger)); d != "" {
		t.Error("Jaeger JSON: " + d)
	}
	v3 := build(file(t, "dispatch.v3.json"), trace.FormatOTLPJSON)
	if len(v3) != 1 {
		t.Fatalf("api_v3: %d trials, want 1", len(v3))
	}
	for id, x := range v3 {
		if d := cmp.Diff(want[id], x); d != "" {
			t.Error("Jaeger api_v3: " + d)
		}
	}
}

func TestApplicationSpans(t *testing.T) {
	td, _, err := trace.Read(file(t, "dispatch.otlp"))
	if err != nil {
		t.Fatal(err)
	}
	trials, err := trace.Trials(td)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range trials {
		if !x.Assumed {
			t.Error("not marked assumed")
		}
		got := map[string]int{}
		for i := range x.Calls {
			c := &x.Calls[i]
			got[c.Caller+" > "+c.Callee+" "+c.API]++
			if c.Caller == "" {
				continue
			}
			for _, pair := range [...][2]int{{c.ClientReq, c.ServerReq}, {c.ServerReq, c.ServerResp}, {c.ServerResp, c.ClientResp}} {
				if pair[0] == trace.None || pair[1] == trace.None || pair[0] >= pair[1] {
					t.Errorf("%s: events out of order: %v", c.Describe(), pair)
				}
			}
			if x.Events[c.ClientResp].Outcome != tfiv1.Outcome_OUTCOME_SUCCESS {
				t.Errorf("%s failed", c.Describe())
			}
			if c.GRPC != (c.Callee == "driver") {
				t.Errorf("%s: gRPC is %v", c.Describe(), c.GRPC)
			}
		}
		want := map[string]int{
			" > frontend GET /dispatch":                          1,
			"frontend > customer GET /customer":                  1,
			"frontend > driver driver.DriverService/FindNearest": 1,
			"frontend > route GET /route":                        10,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if !strings.Contains(strings.Join(x.Warnings, "\n"), "SQL SELECT") {
			t.Errorf("nothing is said of the database call: %v", x.Warnings)
		}
		if len(x.UnmatchedReceives)+len(x.Gaps) > 0 {
			t.Errorf("gaps %v, receives %v", x.Gaps, x.UnmatchedReceives)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	jaeger := func(span string) string {
		return `{"data":[{"traceID":"0a","spans":[` + span + `],"processes":{"p1":{"serviceName":"a"}}}]}`
	}
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", "empty"},
		{"text", "hello", "OTLP"},
		{"protobuf of something else", "\x08\x01", "resource_spans"},
		{"cut JSON", `{"resourceSpans":[`, "at byte"},
		{"other JSON", `{"a":1}`, "data, result or resourceSpans"},
		{"a list", `[1]`, "found array"},
		{"OTLP id", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}`, `traceId "xyz"`},
		{"OTLP type", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":"x"}]}]}]}`, "startTimeUnixNano"},
		{"Jaeger process", jaeger(`{"spanID":"1","processID":"p9"}`), `processID "p9"`},
		{"Jaeger id", jaeger(`{"spanID":"zz","processID":"p1"}`), "spanID"},
		{"Jaeger trace id", jaeger(`{"traceID":"` + strings.Repeat("1", 33) + `","spanID":"1","processID":"p1"}`), "traceID"},
		{"Jaeger time", jaeger(`{"spanID":"1","processID":"p1","startTime":-1}`), "startTime"},
		{"Jaeger duration", jaeger(`{"spanID":"1","processID":"p1","duration":-1}`), "duration"},
		{"Jaeger parent", jaeger(`{"spanID":"1","processID":"p1","references":[{"refType":"CHILD_OF","spanID":"q"}]}`), "references"},
		{"Jaeger tag", jaeger(`{"spanID":"1","processID":"p1","tags":[{"key":"n","type":"int64","value":"x"}]}`), "tag n: want an integer"},
		{"Jaeger tag type", jaeger(`{"spanID":"1","processID":"p1","tags":[{"key":"n","type":"odd","value":1}]}`), `type "odd"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := trace.Read([]byte(tt.in))
			if !errors.Is(err, trace.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// Sidecars' spans must come through a store that knows no lists or 64-bit numbers.
func TestSidecarSpansThroughJSON(t *testing.T) {
	td := tracetest.Dispatch(3, nil).Traces()
	want, err := trace.Trials(td)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := trace.Read(hexJSON(t, td))
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.Trials(again)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// digest reads bytes as a reader would and does all that is done with them.
func digest(t *testing.T, b []byte) {
	td, _, err := trace.Read(b)
	if err != nil {
		if !errors.Is(err, trace.ErrFormat) {
			t.Errorf("error of an unknown kind: %v", err)
		}
		return
	}
	trials, err := trace.Trials(td)
	if err != nil {
		return
	}
	for _, x := range trials {
		past := x.Past()
		for i := range x.Events {
			e := &x.Events[i]
			if e.Call < 0 || e.Call >= len(x.Calls) || e.Request < 0 || e.Request > i || e.Cause >= i {
				t.Fatalf("event %d refers to what is not there: %+v", i, e)
			}
			if !past.Includes(i, i) || e.Cause >= 0 && !past.Includes(i, e.Cause) {
				t.Fatalf("event %d does not know its past", i)
			}
		}
	}
}

// Seeds are small: the fuzzer spends its time on shrinking large ones.
func smallRun() *tracev1.TracesData {
	return twoServices(func(c *tracetest.Call) { c.Receive().Answer(200).FailAnswer("f1", "abort") }).Traces()
}

// smallApplications is a call with spans of its own.
const smallApplications = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a"}}]},"scopeSpans":[{"spans":[
{"traceId":"0000000000000000000000000000000a","spanId":"0000000000000001","kind":3,"startTimeUnixNano":"1","endTimeUnixNano":"9","attributes":[{"key":"http.request.method","value":{"stringValue":"GET"}},{"key":"url.full","value":{"stringValue":"http://b/x/1?q=2"}}]},
{"traceId":"0000000000000000000000000000000a","spanId":"0000000000000002","parentSpanId":"0000000000000001","kind":"SPAN_KIND_SERVER","startTimeUnixNano":"3","endTimeUnixNano":5}]}]}]}`

func FuzzReadOTLP(f *testing.F) {
	b, err := proto.Marshal(smallRun())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	td, _, err := trace.Read([]byte(smallApplications))
	if err != nil {
		f.Fatal(err)
	}
	if b, err = proto.Marshal(td); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(digest)
}

func FuzzReadOTLPJSON(f *testing.F) {
	f.Add(hexJSON(f, smallRun()))
	f.Add([]byte(smallApplications))
	f.Add([]byte(`{"result":` + smallApplications + `}`))
	f.Fuzz(digest)
}

func FuzzReadJaeger(f *testing.F) {
	f.Add([]byte(`{"data":[{"traceID":"a","spans":[{"spanID":"1","processID":"p","startTime":5,"duration":7,"tags":[{"key":"span.kind","type":"string","value":"server"},{"key":"http.method","value":"GET"},{"key":"http.target","value":"/x"},{"key":"http.status_code","type":"int64","value":200}]},{"spanID":"2","processID":"p","references":[{"refType":"CHILD_OF","spanID":"1"}],"tags":[{"key":"error","type":"bool","value":true},{"key":"f","type":"float64","value":1.5},{"key":"b","type":"binary","value":"AA=="}]}],"processes":{"p":{"serviceName":"s"}}}]}`))
	f.Fuzz(digest)
}
