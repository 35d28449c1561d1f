package span_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
)

// decode returns the spans of a request, and the service that it is of.
func decode(t interface{ Fatal(args ...any) }, b []byte) (string, []*tracev1.Span) {
	var r collectorv1.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.ProtoReflect().GetUnknown()) != 0 || len(r.ResourceSpans) != 1 || len(r.ResourceSpans[0].ScopeSpans) != 1 {
		t.Fatal("not one resource with one scope", r.String())
	}
	scope := r.ResourceSpans[0].ScopeSpans[0]
	if scope.Scope.GetName() != span.Scope {
		t.Fatal("scope", scope.Scope)
	}
	resource := attributes(r.ResourceSpans[0].Resource.GetAttributes())
	return resource["service.name"].(string), scope.Spans
}

func attributes(kvs []*commonv1.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range kvs {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			m[kv.Key] = v.IntValue
		case *commonv1.AnyValue_BoolValue:
			m[kv.Key] = v.BoolValue
		default:
			m[kv.Key] = v
		}
	}
	return m
}

var (
	key   = tfi.Key{1, 2, 3, 4, 5, 6, 7}
	trace = tfi.NewTraceID(key, 9)
)

// clientCall is a record that has everything.
func clientCall() *tfi.Record {
	fired := &tfi.TFIC{ID: "t1", Target: tfi.Target{Phase: tfi.PhaseResp}, Fault: tfi.Fault{Kind: tfi.FaultDelay}}
	return &tfi.Record{
		Key: key, Trace: trace, Parent: tfi.SpanID{8}, Service: "shop", PolicyVersion: "v3", Instance: 0xabc,
		Role: tfi.RoleClient, Peer: []byte("pay"), API: []byte("POST /pay/{id}"), K: 2, Path: []byte("/pay/7?x=1"),
		Req:       tfi.EventRecord{Seq: 4, At: 100},
		Resp:      tfi.EventRecord{Seq: 5, From: 0xdef, FromSeq: 8, At: 300},
		Delivered: tfi.EventRecord{Seq: 6, At: 400},
		Status:    503, Outcome: tfi.OutcomeFailure, Made: true,
		Fired: fired, LetGo: true,
		Judged: []tfi.Judgement{
			{TFIC: &tfi.TFIC{ID: "t0"}, Phase: tfi.PhaseReq, Reason: tfi.ReasonGuard},
			{TFIC: &tfi.TFIC{ID: "t2"}, Phase: tfi.PhaseResp, Reason: tfi.ReasonOther},
		},
		Known: []tfi.Known{{Index: 0, Count: 3}, {Index: 12, Count: 1}},
		Bytes: 77, Chunks: 2, ContentType: []byte("text/plain"), Length: true,
	}
}

func TestAppend(t *testing.T) {
	const epoch = 1_700_000_000_000_000_000
	server := &tfi.Record{
		Key: key, Trace: trace, Service: "shop", Instance: 0xabc, GRPC: true, Retry: true,
		Role: tfi.RoleServer, API: []byte("p.S/M"), Path: []byte("/p.S/M"),
		Req:  tfi.EventRecord{Seq: 1, From: 0xfff, FromSeq: 3, At: 50},
		Resp: tfi.EventRecord{Seq: 2, At: 60}, Outcome: tfi.OutcomeFailure, Broken: true,
	}
	unsent := &tfi.Record{
		Key: key, Trace: trace, Service: "shop", Instance: 0xabc, Unsent: true,
		Role: tfi.RoleClient, Peer: []byte("pay"), API: []byte("GET /pay"), K: 1, Path: []byte("/pay"),
		Req:   tfi.EventRecord{Seq: 1, At: 50},
		Fired: &tfi.TFIC{ID: "t1", Target: tfi.Target{Phase: tfi.PhaseReq}, Fault: tfi.Fault{Kind: tfi.FaultDelay}},
	}
	decision := *clientCall()
	decision.Kind = tfi.KindDecision
	for _, tc := range []struct {
		name       string
		span       span.Span
		want       *tracev1.Span
		attributes map[string]any
	}{
		{
			name: "call at the caller", span: span.Span{Record: clientCall(), ID: tfi.SpanID{1, 2}, Epoch: epoch, End: 500},
			want: &tracev1.Span{
				TraceId: trace[:], SpanId: []byte{1, 2, 0, 0, 0, 0, 0, 0}, ParentSpanId: []byte{8, 0, 0, 0, 0, 0, 0, 0},
				Name: "POST /pay/{id}", Kind: tracev1.Span_SPAN_KIND_CLIENT, StartTimeUnixNano: epoch + 100, EndTimeUnixNano: epoch + 500,
				Status: &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR},
			},
			attributes: map[string]any{
				span.Kind: "call", span.Key: "01020304050607", span.Service: "shop", span.Instance: "000000000abc", span.PolicyVersion: "v3",
				span.Role: "client", span.Peer: "pay", span.API: "POST /pay/{id}", span.K: int64(2), span.Path: "/pay/7?x=1", span.Protocol: "http",
				span.ReqSeq: int64(4), span.ReqTime: int64(epoch + 100),
				span.RespSeq: int64(5), span.RespTime: int64(epoch + 300), span.RespFromInstance: "000000000def", span.RespFromSeq: int64(8),
				span.DeliveredSeq: int64(6), span.DeliveredTime: int64(epoch + 400),
				span.Status: int64(503), span.Outcome: "failure", span.Made: true,
				span.Bytes: int64(77), span.Chunks: int64(2), span.ContentType: "text/plain", span.Length: true,
				span.Fired: "t1", span.FiredPhase: "resp", span.Fault: "delay", span.LetGo: true,
				span.Judged: "t0=guard,t2=other", span.Known: "0:3,12:1",
			},
		},
		{
			name: "call at the callee", span: span.Span{Record: server, Epoch: epoch},
			want: &tracev1.Span{
				TraceId: trace[:], SpanId: make([]byte, 8),
				Name: "p.S/M", Kind: tracev1.Span_SPAN_KIND_SERVER, StartTimeUnixNano: epoch + 50, EndTimeUnixNano: epoch + 60,
				Status: &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR},
			},
			attributes: map[string]any{
				span.Kind: "call", span.Key: "01020304050607", span.Service: "shop", span.Instance: "000000000abc",
				span.Role: "server", span.Peer: "", span.API: "p.S/M", span.K: int64(0), span.Path: "/p.S/M", span.Protocol: "grpc",
				span.ReqSeq: int64(1), span.ReqTime: int64(epoch + 50), span.ReqFromInstance: "000000000fff", span.ReqFromSeq: int64(3),
				span.RespSeq: int64(2), span.RespTime: int64(epoch + 60), span.Outcome: "failure", span.Broken: true, span.Retry: true,
				span.Bytes: int64(0), span.Chunks: int64(0),
			},
		},
		{
			name: "request that was never sent on", span: span.Span{Record: unsent, Epoch: epoch, End: 90},
			want: &tracev1.Span{
				TraceId: trace[:], SpanId: make([]byte, 8),
				Name: "GET /pay", Kind: tracev1.Span_SPAN_KIND_CLIENT, StartTimeUnixNano: epoch + 50, EndTimeUnixNano: epoch + 90,
			},
			attributes: map[string]any{
				span.Kind: "call", span.Key: "01020304050607", span.Service: "shop", span.Instance: "000000000abc",
				span.Role: "client", span.Peer: "pay", span.API: "GET /pay", span.K: int64(1), span.Path: "/pay", span.Protocol: "http",
				span.ReqSeq: int64(1), span.ReqTime: int64(epoch + 50), span.Unsent: true,
				span.Fired: "t1", span.FiredPhase: "req", span.Fault: "delay",
			},
		},
		{
			name: "trial end", span: span.Span{Record: &tfi.Record{Kind: tfi.KindTrialEnd, Key: key, Trace: trace, Service: "shop", Instance: 1, Events: 9}, Epoch: epoch, End: 7},
			want: &tracev1.Span{
				TraceId: trace[:], SpanId: make([]byte, 8), Name: "sequencefi.trial_end", Kind: tracev1.Span_SPAN_KIND_INTERNAL,
				StartTimeUnixNano: epoch + 7, EndTimeUnixNano: epoch + 7,
			},
			attributes: map[string]any{
				span.Kind: "trial_end", span.Key: "01020304050607", span.Service: "shop", span.Instance: "000000000001", span.Events: int64(9),
			},
		},
		{
			name: "problem", span: span.Span{Record: &tfi.Record{Kind: tfi.KindProblem, Problem: tfi.ProblemPolicy, Service: "shop"}, Epoch: epoch, End: 7},
			want: &tracev1.Span{
				TraceId: make([]byte, 16), SpanId: make([]byte, 8), Name: "sequencefi.problem", Kind: tracev1.Span_SPAN_KIND_INTERNAL,
				StartTimeUnixNano: epoch + 7, EndTimeUnixNano: epoch + 7, Status: &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR},
			},
			attributes: map[string]any{
				span.Kind: "problem", span.Key: "00000000000000", span.Service: "shop", span.Problem: "bad_policy",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service, spans := decode(t, span.AppendRequest([]byte{}, "shop", span.Append(nil, &tc.span)))
			if service != "shop" || len(spans) != 1 {
				t.Fatalf("service %q, %d spans", service, len(spans))
			}
			if d := cmp.Diff(tc.attributes, attributes(spans[0].Attributes)); d != "" {
				t.Error(d)
			}
			spans[0].Attributes = nil
			if !proto.Equal(spans[0], tc.want) {
				t.Errorf("got  %v\nwant %v", spans[0], tc.want)
			}
		})
	}
	_, spans := decode(t, span.AppendRequest(nil, "shop", span.Append(nil, &span.Span{Record: &decision})))
	if s := spans[0]; s.Name != "sequencefi.decision" || attributes(s.Attributes)[span.Kind] != "decision" || attributes(s.Attributes)[span.Fired] != "t1" {
		t.Errorf("decision %v", s)
	}
}

func TestBatch(t *testing.T) {
	var batch []byte
	for i := range 300 {
		batch = span.Append(batch, &span.Span{Record: clientCall(), ID: tfi.SpanID{byte(i >> 8), byte(i)}})
	}
	_, spans := decode(t, span.AppendRequest(nil, strings.Repeat("long", 100), batch))
	if len(spans) != 300 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, s := range spans {
		if s.SpanId[0] != byte(i>>8) || s.SpanId[1] != byte(i) || len(s.Attributes) != len(spans[0].Attributes) {
			t.Fatalf("span %d: %v", i, s)
		}
	}
	if _, spans := decode(t, span.AppendRequest(nil, "", nil)); len(spans) != 0 {
		t.Error("spans in an empty batch")
	}
}

// TestEachKindHasItsOpening: no kind that has a name is reported as another.
func TestEachKindHasItsOpening(t *testing.T) {
	for kind := range tfi.RecordKind(math.MaxUint8) {
		want := kind.String()
		if want == "unknown" {
			continue
		}
		record := &tfi.Record{Kind: kind, Key: key, Trace: trace, Service: "shop"}
		_, spans := decode(t, span.AppendRequest(nil, "shop", span.Append(nil, &span.Span{Record: record})))
		if got := attributes(spans[0].Attributes)[span.Kind]; got != want {
			t.Errorf("%s is reported as %v", want, got)
		}
	}
}

// TestAnyBytes: paths, names and content types are whatever came.
func TestAnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := clientCall()
		r.Path = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "path")
		r.API = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "api")
		r.Peer = []byte(rapid.String().Draw(t, "peer"))
		r.ContentType = rapid.SliceOf(rapid.Byte()).Draw(t, "content type")
		before := append([]byte(nil), r.Path...)
		_, spans := decode(t, span.AppendRequest(nil, "shop", span.Append(nil, &span.Span{Record: r})))
		got := attributes(spans[0].Attributes)
		if utf8.Valid(r.Path) && got[span.Path] != string(r.Path) {
			t.Fatalf("path %q, want %q", got[span.Path], r.Path)
		}
		if n := len(got[span.Path].(string)); n != len(r.Path) {
			t.Fatalf("path of %d bytes, want %d", n, len(r.Path))
		}
		if got[span.Peer] != string(r.Peer) || string(before) != string(r.Path) {
			t.Fatal("changed what it should not")
		}
	})
}

// TestAnyNumbers: numbers and instants take one byte or ten, and lists any length.
func TestAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Uint32Range(1, 200), rapid.Uint32Min(1))
		instant := rapid.Int64Range(0, 1<<40)
		r := clientCall()
		r.K, r.Bytes, r.Status = number.Draw(t, "k"), rapid.Int64Min(0).Draw(t, "bytes"), int(number.Draw(t, "status"))
		for _, e := range []*tfi.EventRecord{&r.Req, &r.Resp, &r.Delivered} {
			*e = tfi.EventRecord{
				Seq: number.Draw(t, "seq"), At: time.Duration(instant.Draw(t, "at")),
				From: tfi.Tag(rapid.Uint64Max(1<<48-1).Draw(t, "from")), FromSeq: number.Draw(t, "from seq"),
			}
		}
		var judged, known []string
		r.Judged, r.Known = nil, nil
		for i := range rapid.IntRange(0, 64).Draw(t, "judged") {
			r.Judged = append(r.Judged, tfi.Judgement{TFIC: &tfi.TFIC{ID: fmt.Sprint("t", i)}, Reason: tfi.ReasonK})
			judged = append(judged, fmt.Sprintf("t%d=k", i))
			r.Known = append(r.Known, tfi.Known{Index: i, Count: uint64(number.Draw(t, "count"))})
			known = append(known, fmt.Sprintf("%d:%d", i, r.Known[i].Count))
		}
		epoch := rapid.OneOf(rapid.Int64Range(1<<56-1<<40, 1<<56), rapid.Int64Range(-1<<40, 1<<62)).Draw(t, "epoch")
		request := span.AppendRequest(nil, "shop", span.Append(nil, &span.Span{Record: r, Epoch: epoch}))
		_, spans := decode(t, request)
		if spans[0].StartTimeUnixNano != 0 && spans[0].EndTimeUnixNano != 0 { // which others leave out
			var again collectorv1.ExportTraceServiceRequest
			if err := proto.Unmarshal(request, &again); err != nil {
				t.Fatal(err)
			}
			if n := proto.Size(&again); n != len(request) {
				t.Errorf("%d bytes, and %d would do", len(request), n)
			}
		}
		got := attributes(spans[0].Attributes)
		want := map[string]any{
			span.K: int64(r.K), span.Bytes: r.Bytes, span.Status: int64(r.Status),
			span.ReqSeq: int64(r.Req.Seq), span.ReqTime: epoch + int64(r.Req.At),
			span.RespSeq: int64(r.Resp.Seq), span.RespTime: epoch + int64(r.Resp.At),
			span.DeliveredSeq: int64(r.Delivered.Seq), span.DeliveredTime: epoch + int64(r.Delivered.At),
		}
		if r.Req.From != 0 {
			want[span.ReqFromInstance], want[span.ReqFromSeq] = r.Req.From.String(), int64(r.Req.FromSeq)
		}
		if r.Resp.From != 0 {
			want[span.RespFromInstance], want[span.RespFromSeq] = r.Resp.From.String(), int64(r.Resp.FromSeq)
		}
		if len(judged) > 0 {
			want[span.Judged], want[span.Known] = strings.Join(judged, ","), strings.Join(known, ",")
		}
		for _, name := range []string{
			span.K, span.Bytes, span.Status, span.ReqSeq, span.ReqTime, span.RespSeq, span.RespTime, span.DeliveredSeq, span.DeliveredTime,
			span.ReqFromInstance, span.ReqFromSeq, span.RespFromInstance, span.RespFromSeq, span.Judged, span.Known,
		} {
			if got[name] != want[name] {
				t.Errorf("%s: %v, want %v", name, got[name], want[name])
			}
		}
	})
}

func TestAppendAllocatesNothing(t *testing.T) {
	r := clientCall()
	batch := span.Append(nil, &span.Span{Record: r, End: time.Second})
	s := &span.Span{Record: r}
	if n := testing.AllocsPerRun(100, func() { batch = span.Append(batch[:0], s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	s := &span.Span{Record: clientCall()}
	var batch []byte
	b.ReportAllocs()
	for b.Loop() {
		batch = span.Append(batch[:0], s)
	}
	b.ReportMetric(float64(len(batch)), "bytes")
}
