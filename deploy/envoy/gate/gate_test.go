package gate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, a *anypb.Any) {
	t.Helper()
	raw, err := protojson.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer // protojson's own spacing varies on purpose
	if err := json.Indent(&got, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", path, got.Bytes())
	}
}

func policy() *tfiv1.Policy {
	return &tfiv1.Policy{
		Service: "cart", Version: "v7", TraceHeader: "x-request-trace",
		Activations: []*tfiv1.Activation{{Key: []byte{1, 2, 3, 4, 5, 6, 7}, Remaining: durationpb.New(time.Minute), Services: []string{"cart"}}},
		EdgeRules: []*tfiv1.EdgeRule{
			{Key: []byte{1, 2, 3, 4, 5, 6, 7}, Identities: []*tfiv1.Identity{
				{Source: &tfiv1.Identity_Path{Path: true}, Match: &tfiv1.Identity_Exact{Exact: "/edge"}},
				{Source: &tfiv1.Identity_Header{Header: "x-tenant"}, Match: &tfiv1.Identity_Prefix{Prefix: "red-"}},
				{Source: &tfiv1.Identity_Query{Query: "item"}, Match: &tfiv1.Identity_Exact{Exact: "42"}},
			}},
			// An empty prefix is more than a matcher can say; so all may enter.
			{Key: []byte{1, 2, 3, 4, 5, 6, 7}, Identities: []*tfiv1.Identity{
				{Source: &tfiv1.Identity_Header{Header: "x-tenant"}, Match: &tfiv1.Identity_Prefix{}},
			}},
		},
	}
}

func TestExtension(t *testing.T) {
	for name, p := range map[string]gate.Plugin{
		"local":   {Module: gate.Module{Filename: "/etc/sequencefi.wasm"}},
		"wrapped": {Module: gate.Module{Filename: "/etc/sequencefi.wasm"}, Wrapped: true},
		"remote":  {Module: gate.Module{URI: "http://plane:18001/module/m.wasm", SHA256: strings.Repeat("a", 64)}},
	} {
		a, err := gate.Extension(p, policy())
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, a)
		b, err := gate.Extension(p, policy())
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(a, b) || !bytes.Equal(a.GetValue(), b.GetValue()) {
			t.Error("equal policies give other bytes: Envoy would load them anew")
		}
	}
}

func TestDefault(t *testing.T) {
	a, err := gate.Default(gate.Plugin{
		Module:          gate.Module{URI: "http://plane/m.wasm", SHA256: strings.Repeat("a", 64), Cluster: "own"},
		VMConfiguration: gate.GCOff, Wrapped: true,
	}, "cart")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "default", a)
	golden(t, "inert", gate.Inert())
	if urls := gate.TypeURLs(); len(urls) != 3 || urls[0] != gate.Inert().GetTypeUrl() || urls[1] != a.GetTypeUrl() {
		t.Errorf("type URLs %v", urls)
	}
}

// Formats that no trial uses cost no look-up.
func TestTraceFormats(t *testing.T) {
	b3 := tfiv1.TraceFormat_TRACE_FORMAT_B3
	for _, tc := range []struct {
		formats []tfiv1.TraceFormat
		want    string
	}{
		{nil, "traceparent tracestate b3 x-b3-traceid uber-trace-id x-own"},
		{[]tfiv1.TraceFormat{tfiv1.TraceFormat_TRACE_FORMAT_W3C}, "traceparent tracestate x-own"},
		{[]tfiv1.TraceFormat{tfiv1.TraceFormat_TRACE_FORMAT_B3_MULTI, b3}, "b3 x-b3-traceid x-own"},
		{[]tfiv1.TraceFormat{tfiv1.TraceFormat_TRACE_FORMAT_JAEGER}, "uber-trace-id x-own"},
	} {
		a, err := gate.Extension(gate.Plugin{}, &tfiv1.Policy{TraceHeader: "x-own", TraceFormats: tc.formats})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := protojson.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range headerName.FindAllStringSubmatch(string(raw), -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%v: looks at %q, want %q", tc.formats, got, tc.want)
		}
	}
}

var headerName = regexp.MustCompile(`"headerName":\s*"([^"]*)"`)

func TestModuleValidate(t *testing.T) {
	for _, m := range []gate.Module{{}, {Filename: "f", URI: "u", SHA256: strings.Repeat("a", 64)}, {URI: "u"}, {URI: "u", SHA256: strings.Repeat("A", 64)}} {
		if err := m.Validate(); !errors.Is(err, gate.ErrModule) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, m := range []gate.Module{{Filename: "f"}, {URI: "u", SHA256: strings.Repeat("a", 64)}} {
		if err := m.Validate(); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
