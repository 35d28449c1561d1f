package behaviour

import (
	"fmt"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
)

// DecodeSpans reads an OTLP request of a sidecar.
func DecodeSpans(b []byte) (map[tfi.Key][]Span, error) {
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &request); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	out := map[tfi.Key][]Span{}
	for _, rs := range request.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				attributes := map[string]any{}
				for _, a := range s.GetAttributes() {
					switch v := a.GetValue().GetValue().(type) {
					case *common.AnyValue_StringValue:
						attributes[a.GetKey()] = v.StringValue
					case *common.AnyValue_IntValue:
						attributes[a.GetKey()] = v.IntValue
					case *common.AnyValue_BoolValue:
						attributes[a.GetKey()] = v.BoolValue
					}
				}
				text, _ := attributes[span.Key].(string)
				key, _ := tfi.ParseKey(text) // a problem may have none
				out[key] = append(out[key], Span{Trace: fmt.Sprintf("%x", s.GetTraceId()), Attributes: attributes})
			}
		}
	}
	return out, nil
}
