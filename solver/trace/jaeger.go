package trace

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// The JSON of Jaeger's UI; times are in microseconds.
type (
	jaegerTrace struct {
		TraceID   string                   `json:"traceID"`
		Spans     []jaegerSpan             `json:"spans"`
		Processes map[string]jaegerProcess `json:"processes"`
	}
	jaegerSpan struct {
		TraceID       string            `json:"traceID"`
		SpanID        string            `json:"spanID"`
		ParentSpanID  string            `json:"parentSpanID"`
		OperationName string            `json:"operationName"`
		References    []jaegerReference `json:"references"`
		StartTime     int64             `json:"startTime"`
		Duration      int64             `json:"duration"`
		Tags          []jaegerTag       `json:"tags"`
		ProcessID     string            `json:"processID"`
		Process       *jaegerProcess    `json:"process"`
	}
	jaegerReference struct {
		RefType string `json:"refType"`
		TraceID string `json:"traceID"`
		SpanID  string `json:"spanID"`
	}
	jaegerTag struct {
		Key   string          `json:"key"`
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	jaegerProcess struct {
		ServiceName string      `json:"serviceName"`
		Tags        []jaegerTag `json:"tags"`
	}
)

// maxMicros keeps times in nanoseconds inside an int64.
const maxMicros = 1<<63/1000 - 1

func readJaeger(data json.RawMessage) (*tracev1.TracesData, error) {
	var traces []jaegerTrace
	if err := json.Unmarshal(data, &traces); err != nil {
		// One trace, as some tools save it.
		var one jaegerTrace
		if json.Unmarshal(data, &one) != nil {
			return nil, fmt.Errorf("%w: data: %s", ErrFormat, plainJSON(err))
		}
		traces = []jaegerTrace{one}
	}
	td := &tracev1.TracesData{}
	for _, t := range traces {
		byProcess := map[string]*tracev1.ScopeSpans{}
		var names []string
		resources := map[string]*resourcev1.Resource{}
		for i := range t.Spans {
			s := &t.Spans[i]
			p, ok := t.Processes[s.ProcessID]
			if s.Process != nil {
				p, ok = *s.Process, true
			}
			if !ok {
				return nil, fmt.Errorf("%w: span %s/%s: processID %q: want a key of processes", ErrFormat, s.TraceID, s.SpanID, s.ProcessID)
			}
			out, err := s.otlp(t.TraceID)
			if err != nil {
				return nil, err
			}
			name := s.ProcessID
			if s.Process != nil {
				name = "=" + p.ServiceName
			}
			if byProcess[name] == nil {
				attrs, err := otlpTags(p.Tags)
				if err != nil {
					return nil, fmt.Errorf("%w: process %s: %w", ErrFormat, s.ProcessID, err)
				}
				attrs = append(attrs, textAttribute("service.name", p.ServiceName))
				byProcess[name], resources[name] = &tracev1.ScopeSpans{}, &resourcev1.Resource{Attributes: attrs}
				names = append(names, name)
			}
			byProcess[name].Spans = append(byProcess[name].Spans, out)
		}
		slices.Sort(names)
		for _, n := range names {
			td.ResourceSpans = append(td.ResourceSpans, &tracev1.ResourceSpans{
				Resource: resources[n], ScopeSpans: []*tracev1.ScopeSpans{byProcess[n]},
			})
		}
	}
	return td, nil
}

func (s *jaegerSpan) otlp(traceID string) (*tracev1.Span, error) {
	fail := func(field, want string) (*tracev1.Span, error) {
		return nil, fmt.Errorf("%w: span %s/%s: %s: want %s", ErrFormat, traceID, s.SpanID, field, want)
	}
	if s.TraceID != "" {
		traceID = s.TraceID
	}
	tid, err := paddedID(traceID, 16)
	if err != nil {
		return fail("traceID", "up to 32 hex digits")
	}
	sid, err := paddedID(s.SpanID, 8)
	if err != nil {
		return fail("spanID", "up to 16 hex digits")
	}
	if s.StartTime < 0 || s.StartTime > maxMicros/2 {
		return fail("startTime", "microseconds since 1970")
	}
	if s.Duration < 0 || s.Duration > maxMicros/2 {
		return fail("duration", "microseconds, not negative")
	}
	attrs, err := otlpTags(s.Tags)
	if err != nil {
		return fail("tags", err.Error())
	}
	out := &tracev1.Span{
		TraceId: tid, SpanId: sid, Name: s.OperationName, Attributes: attrs,
		StartTimeUnixNano: uint64(s.StartTime) * 1000,
		EndTimeUnixNano:   uint64(s.StartTime+s.Duration) * 1000,
	}
	parent := s.ParentSpanID
	for _, r := range s.References {
		if r.RefType == "CHILD_OF" && (r.TraceID == "" || r.TraceID == traceID) {
			parent = r.SpanID
			break
		}
	}
	if parent != "" && strings.Trim(parent, "0") != "" {
		if out.ParentSpanId, err = paddedID(parent, 8); err != nil {
			return fail("references", "span ids of up to 16 hex digits")
		}
	}
	for _, a := range attrs {
		switch a.GetKey() {
		case "span.kind":
			switch a.GetValue().GetStringValue() {
			case "client":
				out.Kind = tracev1.Span_SPAN_KIND_CLIENT
			case "server":
				out.Kind = tracev1.Span_SPAN_KIND_SERVER
			case "internal":
				out.Kind = tracev1.Span_SPAN_KIND_INTERNAL
			}
		case "error":
			if a.GetValue().GetBoolValue() || a.GetValue().GetStringValue() == "true" {
				out.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR}
			}
		}
	}
	return out, nil
}

// paddedID reads an id that may have lost leading zeros.
func paddedID(s string, size int) ([]byte, error) {
	if s == "" || len(s) > 2*size {
		return nil, hex.ErrLength
	}
	return hex.DecodeString(strings.Repeat("0", 2*size-len(s)) + s)
}

func textAttribute(key, value string) *commonv1.KeyValue {
	return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: value}}}
}

func otlpTags(tags []jaegerTag) ([]*commonv1.KeyValue, error) {
	out := make([]*commonv1.KeyValue, 0, len(tags))
	for _, t := range tags {
		v, err := t.value()
		if err != nil {
			return nil, fmt.Errorf("tag %s: %w", t.Key, err)
		}
		out = append(out, &commonv1.KeyValue{Key: t.Key, Value: v})
	}
	return out, nil
}

func (t *jaegerTag) value() (*commonv1.AnyValue, error) {
	// Numbers come bare or, from readers that fear for their digits, as text.
	text := strings.Trim(string(t.Value), `"`)
	switch t.Type {
	case "bool":
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("want a boolean, have %.40s", t.Value)
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: b}}, nil
	case "int64":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("want an integer, have %.40s", t.Value)
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: n}}, nil
	case "float64":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("want a number, have %.40s", t.Value)
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_DoubleValue{DoubleValue: f}}, nil
	case "binary":
		var s string
		if err := json.Unmarshal(t.Value, &s); err != nil {
			return nil, fmt.Errorf("want base64, have %.40s", t.Value)
		}
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, fmt.Errorf("want base64, have %.40s", t.Value)
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_BytesValue{BytesValue: b}}, nil
	case "string", "":
		var s string
		if err := json.Unmarshal(t.Value, &s); err != nil {
			return nil, fmt.Errorf("want a text, have %.40s", t.Value)
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}, nil
	}
	return nil, fmt.Errorf("type %q: want string, bool, int64, float64 or binary", t.Type)
}
