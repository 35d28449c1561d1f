package trace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// appSpan is an application's span: `id parent service from-to kind`, and its
// attributes; numbers become integers.
type appSpan struct {
	id, parent byte
	service    string
	from, to   uint64
	kind       tracev1.Span_SpanKind
	failed     bool
	attrs      map[string]any
}

const (
	client = tracev1.Span_SPAN_KIND_CLIENT
	server = tracev1.Span_SPAN_KIND_SERVER
)

func appTraces(spans ...appSpan) *tracev1.TracesData {
	td := &tracev1.TracesData{}
	for _, a := range spans {
		s := &tracev1.Span{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte{0, 0, 0, 0, 0, 0, 0, a.id}, Kind: a.kind,
			StartTimeUnixNano: a.from, EndTimeUnixNano: a.to,
		}
		if a.parent != 0 {
			s.ParentSpanId = []byte{0, 0, 0, 0, 0, 0, 0, a.parent}
		}
		if a.failed {
			s.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR}
		}
		for k, v := range a.attrs {
			switch v := v.(type) {
			case string:
				set(s, k, text(v))
			case int:
				set(s, k, number(int64(v)))
			}
		}
		td.ResourceSpans = append(td.ResourceSpans, &tracev1.ResourceSpans{
			Resource:   &resourcev1.Resource{Attributes: []*commonv1.KeyValue{{Key: "service.name", Value: text(a.service)}}},
			ScopeSpans: []*tracev1.ScopeSpans{{Spans: []*tracev1.Span{s}}},
		})
	}
	return td
}

// callText is a call in a line: who, what, by which path, and how it ended.
func callText(x *trace.Trial, c *trace.Call) string {
	end := c.ClientResp
	if end == trace.None {
		end = c.ServerResp
	}
	e := &x.Events[end]
	grpc := ""
	if c.GRPC {
		grpc = " grpc"
	}
	ends := ""
	for i, n := range [...]int{c.ClientReq, c.ServerReq, c.ServerResp, c.ClientResp} {
		if n != trace.None {
			ends += string("CSsc"[i])
		}
	}
	return fmt.Sprintf("%s>%s %s #%d%s path=%s %s %d %s", c.Caller, c.Callee, c.API, c.K, grpc, c.Path,
		strings.ToLower(strings.TrimPrefix(e.Outcome.String(), "OUTCOME_")), e.Status, ends)
}

func TestApplicationCalls(t *testing.T) {
	type attrs = map[string]any
	for _, tt := range []struct {
		name     string
		spans    []appSpan
		want     []string
		warnings int
	}{
		{
			name: "the callee's route names both ends",
			spans: []appSpan{
				{id: 1, service: "a", from: 1, to: 9, kind: client, attrs: attrs{"http.request.method": "GET", "url.full": "http://b:80/x/7?q=1", "http.response.status_code": 200}},
				{id: 2, parent: 1, service: "b", from: 2, to: 8, kind: server, attrs: attrs{"http.request.method": "GET", "http.route": "GET /x/{name}", "http.response.status_code": 200}},
			},
			want: []string{"a>b GET /x/{name} #1 path=/x/7?q=1 success 200 CSsc"},
		},
		{
			name: "a callee that does not say what it serves",
			spans: []appSpan{
				{id: 1, service: "a", from: 1, to: 9, kind: client, attrs: attrs{"http.method": "PUT", "http.url": "http://b", "http.status_code": 404}},
				{id: 2, parent: 1, service: "b", from: 2, to: 8, kind: server},
			},
			want: []string{"a>b PUT / #1 path=/ failure 404 CSsc"},
		},
		{
			name: "ids in paths are folded",
			spans: []appSpan{
				{id: 1, service: "b", from: 1, to: 9, kind: server, attrs: attrs{"http.method": "GET", "url.path": "/o/17/v2/deadbee1", "url.query": "page=3", "http.status_code": 301}},
			},
			want: []string{">b GET /o/{id}/v2/{id} #1 path=/o/17/v2/deadbee1?page=3 success 301 Ss"},
		},
		{
			name: "gRPC by service and method, and by its full name",
			spans: []appSpan{
				{id: 1, service: "a", from: 1, to: 9, kind: client, attrs: attrs{"rpc.service": "p.S", "rpc.method": "M", "rpc.grpc.status_code": 0}},
				{id: 2, parent: 1, service: "b", from: 2, to: 8, kind: server, attrs: attrs{"rpc.method": "/p.S/M", "rpc.response.status_code": 14}},
			},
			want: []string{"a>b p.S/M #1 grpc path= success 0 CSsc"},
		},
		{
			name: "gRPC that failed",
			spans: []appSpan{
				{id: 1, service: "b", from: 1, to: 2, kind: server, attrs: attrs{"rpc.method": "p.S/M", "rpc.grpc.status_code": 200}},
			},
			want: []string{">b p.S/M #1 grpc path= failure 200 Ss"},
		},
		{
			name: "without a status the span's own tells",
			spans: []appSpan{
				{id: 1, service: "b", from: 1, to: 2, kind: server, failed: true, attrs: attrs{"http.method": "GET", "http.target": "/a?b"}},
				{id: 2, service: "b", from: 3, to: 4, kind: server, attrs: attrs{"http.method": "GET", "http.target": "/a", "http.status_code": -1}},
			},
			want: []string{">b GET /a #1 path=/a?b failure 0 Ss", ">b GET /a #2 path=/a success 0 Ss"},
		},
		{
			name: "a peer that reports no spans is known by name",
			spans: []appSpan{
				{id: 1, service: "a", from: 1, to: 2, kind: client, attrs: attrs{"http.method": "GET", "http.url": "http://m/x", "server.address": "m"}},
				{id: 2, service: "a", from: 3, to: 4, kind: client, attrs: attrs{"http.method": "GET", "http.url": "http://m/x"}},
				{id: 3, service: "a", from: 5, to: 6, kind: client, attrs: attrs{"db.system": "mysql", "peer.service": "mysql"}},
				{id: 4, service: "a", from: 7, to: 8, kind: server},
				{id: 5, service: "a", from: 7, to: 8, attrs: attrs{"http.method": "GET", "http.url": "http://m/x"}},
			},
			want:     []string{"a>m GET /x #1 path=/x success 0 Cc"},
			warnings: 3,
		},
		{
			name: "exported twice, and two children of one client",
			spans: []appSpan{
				{id: 1, service: "a", from: 1, to: 9, kind: client, attrs: attrs{"http.method": "GET", "http.url": "http://b/x"}},
				{id: 2, parent: 1, service: "b", from: 2, to: 3, kind: server, attrs: attrs{"http.method": "GET", "http.target": "/x"}},
				{id: 2, parent: 1, service: "b", from: 2, to: 3, kind: server, attrs: attrs{"http.method": "GET", "http.target": "/x"}},
				{id: 3, parent: 1, service: "b", from: 4, to: 5, kind: server, attrs: attrs{"http.method": "GET", "http.target": "/x"}},
			},
			want: []string{"a>b GET /x #1 path=/x success 0 CSsc", ">b GET /x #1 path=/x success 0 Ss"},
		},
		{
			name: "neither method nor path",
			spans: []appSpan{
				{id: 1, service: "b", from: 1, to: 2, kind: server, attrs: attrs{"http.method": "GET", "http.url": "/relative"}},
				{id: 2, service: "b", from: 1, to: 2, kind: server, attrs: attrs{"rpc.method": "M"}},
				{id: 3, service: "b", from: 1, to: 2, kind: server, attrs: attrs{"http.target": "/x"}},
			},
			warnings: 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, err := trace.Build("", appTraces(tt.spans...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range x.Calls {
				got = append(got, callText(x, &x.Calls[i]))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if len(x.Warnings) != tt.warnings || !x.Assumed {
				t.Errorf("%d warnings, want %d; assumed %v", len(x.Warnings), tt.warnings, x.Assumed)
			}
			for i := range x.Events {
				e := &x.Events[i]
				if e.K != x.Calls[e.Call].K {
					t.Errorf("event %d is of call %d, and its call of %d", i, e.K, x.Calls[e.Call].K)
				}
				if e.Op.Phase == tfiv1.Phase_PHASE_RESP && e.Op.Role == tfiv1.Role_ROLE_CLIENT && x.Calls[e.Call].ServerResp != trace.None && e.Cause != x.Calls[e.Call].ServerResp {
					t.Errorf("the answer at event %d comes from event %d", i, e.Cause)
				}
			}
		})
	}
}
