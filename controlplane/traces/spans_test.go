package traces

import (
	"cmp"
	"encoding/binary"
	"slices"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func traceID(n uint64) TraceID {
	var id TraceID
	id[0] = 0x5f
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func attribute(key string, value any) *commonv1.KeyValue {
	kv := &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{}}
	switch v := value.(type) {
	case string:
		kv.Value.Value = &commonv1.AnyValue_StringValue{StringValue: v}
	case bool:
		kv.Value.Value = &commonv1.AnyValue_BoolValue{BoolValue: v}
	case int:
		kv.Value.Value = &commonv1.AnyValue_IntValue{IntValue: int64(v)}
	case float64:
		kv.Value.Value = &commonv1.AnyValue_DoubleValue{DoubleValue: v}
	}
	return kv
}

// span is a span as a sidecar would report it. Times are in 2024.
func span(trace TraceID, id uint64) *tracev1.Span {
	return &tracev1.Span{
		TraceId: trace[:], SpanId: binary.BigEndian.AppendUint64(nil, id),
		Name: "GET /route", Kind: tracev1.Span_SPAN_KIND_CLIENT,
		StartTimeUnixNano: 1_700_000_000_000_000_000 + id*1000,
		EndTimeUnixNano:   1_700_000_000_005_000_000 + id*1000,
		Attributes:        []*commonv1.KeyValue{attribute("sequencefi.k", int(id)), attribute("sequencefi.api", "GET /route")},
	}
}

// data wraps spans of one service.
func data(service string, spans ...*tracev1.Span) *tracev1.TracesData {
	return &tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource:   &resourcev1.Resource{Attributes: []*commonv1.KeyValue{attribute("service.name", service)}},
		ScopeSpans: []*tracev1.ScopeSpans{{Scope: &commonv1.InstrumentationScope{Name: "sequencefi"}, Spans: spans}},
	}}}
}

// flat is a span with what it stood under, for comparison.
type flat struct {
	Service, Scope string
	Span           *tracev1.Span
}

// flatten lists all spans by id, in one of the forms that mean the same.
func flatten(td *tracev1.TracesData) []flat {
	var out []flat
	for _, rs := range td.GetResourceSpans() {
		service := ""
		for _, kv := range rs.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = kv.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				if proto.Size(s.GetStatus()) == 0 {
					s.Status = nil // an empty one says the same
				}
				slices.SortFunc(s.GetAttributes(), func(a, b *commonv1.KeyValue) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
				out = append(out, flat{Service: service, Scope: ss.GetScope().GetName(), Span: s})
			}
		}
	}
	slices.SortFunc(out, func(a, b flat) int { return slices.Compare(a.Span.GetSpanId(), b.Span.GetSpanId()) })
	return out
}
