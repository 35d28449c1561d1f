package traces

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jaegertracing/jaeger-idl/model/v1"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Tags under which Jaeger keeps what OTLP has fields for (OpenTelemetry
// specification, "OpenTelemetry to Jaeger Transformation").
const (
	tagKind              = "span.kind"
	tagError             = "error"
	tagStatus            = "otel.status_code"
	tagStatusDescription = "otel.status_description"
	tagScope             = "otel.scope.name"
	tagScopeVersion      = "otel.scope.version"
	tagTraceState        = "w3c.tracestate"
	tagService           = "service.name"
	fieldEvent           = "event"
)

// gogoCodec encodes jaeger-idl's api_v2 messages. They are made for another
// protobuf runtime, on which grpc-go's own codec panics; all of them can encode
// themselves.
type gogoCodec struct{}

func (gogoCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("%T is no api_v2 message", v)
	}
	return m.Marshal()
}

func (gogoCodec) Unmarshal(b []byte, v any) error {
	m, ok := v.(interface{ Unmarshal(b []byte) error })
	if !ok {
		return fmt.Errorf("%T is no api_v2 message", v)
	}
	return m.Unmarshal(b)
}

func (gogoCodec) Name() string { return "proto" }

func (j *Jaeger) traceV2(ctx context.Context, id TraceID) (*tracev1.TracesData, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &api_v2.GetTraceRequest{
		TraceID:   model.NewTraceID(binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])),
		RawTraces: true,
	}
	stream, err := api_v2.NewQueryServiceClient(j.cc).GetTrace(ctx, req, grpc.ForceCodec(gogoCodec{}))
	if err != nil {
		return nil, err
	}
	c := newV2Conversion()
	for {
		chunk, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), status.Code(err) == codes.NotFound:
			return &c.out, nil
		case err != nil:
			return nil, err
		}
		for i := range chunk.Spans {
			if err := c.add(&chunk.Spans[i]); err != nil {
				return nil, err
			}
		}
	}
}

// v2Conversion turns api_v2 spans into OTLP.
type v2Conversion struct {
	out       tracev1.TracesData
	resources map[string]*tracev1.ResourceSpans // by encoded process
	scopes    map[scopeKey]*tracev1.ScopeSpans
}

type scopeKey struct {
	resource      *tracev1.ResourceSpans
	name, version string
}

func newV2Conversion() *v2Conversion {
	return &v2Conversion{resources: map[string]*tracev1.ResourceSpans{}, scopes: map[scopeKey]*tracev1.ScopeSpans{}}
}

func (c *v2Conversion) add(s *model.Span) error {
	rs, err := c.resource(s.Process)
	if err != nil {
		return err
	}
	span := &tracev1.Span{
		TraceId:           binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.TraceID.High), s.TraceID.Low),
		SpanId:            spanIDBytes(uint64(s.SpanID)),
		Name:              s.OperationName,
		StartTimeUnixNano: unixNano(s.StartTime),
		EndTimeUnixNano:   unixNano(s.StartTime.Add(s.Duration)),
	}
	parent := s.ParentSpanID()
	span.ParentSpanId = spanIDBytes(uint64(parent))
	for _, ref := range s.References {
		if ref.TraceID == s.TraceID && ref.SpanID == parent {
			continue
		}
		span.Links = append(span.Links, &tracev1.Span_Link{
			TraceId: binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, ref.TraceID.High), ref.TraceID.Low),
			SpanId:  spanIDBytes(uint64(ref.SpanID)),
		})
	}
	name, version := setFromTags(span, s.Tags)
	for _, l := range s.Logs {
		span.Events = append(span.Events, eventOf(l))
	}
	c.scope(rs, name, version, span)
	return nil
}

func (c *v2Conversion) resource(p *model.Process) (*tracev1.ResourceSpans, error) {
	if p == nil {
		p = &model.Process{}
	}
	encoded, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	rs, ok := c.resources[string(encoded)]
	if !ok {
		attributes := []*commonv1.KeyValue{{Key: tagService, Value: stringValue(p.ServiceName)}}
		for i := range p.Tags {
			attributes = append(attributes, attributeOf(&p.Tags[i]))
		}
		rs = &tracev1.ResourceSpans{Resource: &resourcev1.Resource{Attributes: attributes}}
		c.resources[string(encoded)] = rs
		c.out.ResourceSpans = append(c.out.ResourceSpans, rs)
	}
	return rs, nil
}

func (c *v2Conversion) scope(rs *tracev1.ResourceSpans, name, version string, span *tracev1.Span) {
	key := scopeKey{resource: rs, name: name, version: version}
	ss, ok := c.scopes[key]
	if !ok {
		ss = &tracev1.ScopeSpans{Scope: &commonv1.InstrumentationScope{Name: name, Version: version}}
		c.scopes[key] = ss
		rs.ScopeSpans = append(rs.ScopeSpans, ss)
	}
	ss.Spans = append(ss.Spans, span)
}

// setFromTags puts tags where OTLP has them, and returns the scope's name and version.
func setFromTags(span *tracev1.Span, tags []model.KeyValue) (scope, version string) {
	code := tracev1.Status_STATUS_CODE_UNSET
	message := ""
	for i := range tags {
		tag := &tags[i]
		switch tag.Key {
		case tagKind:
			span.Kind = kindOf(tag.VStr)
		case tagError:
			if tag.Bool() {
				code = tracev1.Status_STATUS_CODE_ERROR
			}
		case tagStatus:
			switch tag.VStr {
			case "OK":
				code = tracev1.Status_STATUS_CODE_OK
			case "ERROR":
				code = tracev1.Status_STATUS_CODE_ERROR
			}
		case tagStatusDescription:
			message = tag.VStr
		case tagScope:
			scope = tag.VStr
		case tagScopeVersion:
			version = tag.VStr
		case tagTraceState:
			span.TraceState = tag.VStr
		default:
			span.Attributes = append(span.Attributes, attributeOf(tag))
		}
	}
	if code != tracev1.Status_STATUS_CODE_UNSET || message != "" {
		span.Status = &tracev1.Status{Code: code, Message: message}
	}
	return scope, version
}

func kindOf(kind string) tracev1.Span_SpanKind {
	switch kind {
	case "client":
		return tracev1.Span_SPAN_KIND_CLIENT
	case "server":
		return tracev1.Span_SPAN_KIND_SERVER
	case "producer":
		return tracev1.Span_SPAN_KIND_PRODUCER
	case "consumer":
		return tracev1.Span_SPAN_KIND_CONSUMER
	case "internal":
		return tracev1.Span_SPAN_KIND_INTERNAL
	default:
		return tracev1.Span_SPAN_KIND_UNSPECIFIED
	}
}

func eventOf(l model.Log) *tracev1.Span_Event {
	event := &tracev1.Span_Event{TimeUnixNano: unixNano(l.Timestamp)}
	for i := range l.Fields {
		if l.Fields[i].Key == fieldEvent {
			event.Name = l.Fields[i].AsString()
			continue
		}
		event.Attributes = append(event.Attributes, attributeOf(&l.Fields[i]))
	}
	return event
}

func attributeOf(kv *model.KeyValue) *commonv1.KeyValue {
	out := &commonv1.KeyValue{Key: kv.Key}
	switch kv.VType {
	case model.BoolType:
		out.Value = &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: kv.VBool}}
	case model.Int64Type:
		out.Value = &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: kv.VInt64}}
	case model.Float64Type:
		out.Value = &commonv1.AnyValue{Value: &commonv1.AnyValue_DoubleValue{DoubleValue: kv.VFloat64}}
	case model.BinaryType:
		out.Value = &commonv1.AnyValue{Value: &commonv1.AnyValue_BytesValue{BytesValue: kv.VBinary}}
	default:
		out.Value = stringValue(kv.VStr)
	}
	return out
}

func stringValue(s string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}
}

// unixNano returns 0 for times before 1970, which OTLP cannot say.
func unixNano(t time.Time) uint64 {
	return uint64(max(0, t.UnixNano()))
}
