package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// ErrSpan says that a span cannot be understood; the text names span and field.
var ErrSpan = errors.New("span cannot be read")

// attributes are a span's, by name. The last of equal names wins.
type attributes map[string]*commonv1.AnyValue

func readAttributes(kvs []*commonv1.KeyValue) attributes {
	m := make(attributes, len(kvs))
	for _, kv := range kvs {
		m[kv.GetKey()] = kv.GetValue()
	}
	return m
}

// fields reads attributes and keeps the first complaint.
type fields struct {
	span string
	m    attributes
	err  error
}

func (f *fields) fail(name, want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: span %s: attribute %s: want %s", ErrSpan, f.span, name, want)
	}
}

func (f *fields) text(name string) string {
	v, ok := f.m[name]
	if !ok {
		return ""
	}
	s, ok := v.GetValue().(*commonv1.AnyValue_StringValue)
	if !ok {
		f.fail(name, "a string")
		return ""
	}
	return s.StringValue
}

func (f *fields) need(name string) string {
	s := f.text(name)
	if s == "" {
		f.fail(name, "a string that is not empty")
	}
	return s
}

func (f *fields) number(name string, limit int64) int64 {
	v, ok := f.m[name]
	if !ok {
		return 0
	}
	n, ok := v.GetValue().(*commonv1.AnyValue_IntValue)
	if !ok || n.IntValue < 0 || n.IntValue > limit {
		f.fail(name, fmt.Sprintf("an integer from 0 to %d", limit))
		return 0
	}
	return n.IntValue
}

func (f *fields) flag(name string) bool {
	v, ok := f.m[name]
	if !ok {
		return false
	}
	b, ok := v.GetValue().(*commonv1.AnyValue_BoolValue)
	if !ok {
		f.fail(name, "a boolean")
		return false
	}
	return b.BoolValue
}

// list reads a list of strings, or a text of them: with commas between, or as
// JSON, which is what stores without lists make of one.
func (f *fields) list(name string) []string {
	v, ok := f.m[name]
	if !ok {
		return nil
	}
	switch v := v.GetValue().(type) {
	case *commonv1.AnyValue_StringValue:
		if v.StringValue == "" {
			return nil
		}
		var out []string
		if json.Unmarshal([]byte(v.StringValue), &out) == nil {
			return out
		}
		return strings.Split(v.StringValue, ",")
	case *commonv1.AnyValue_ArrayValue:
		var out []string
		for _, e := range v.ArrayValue.GetValues() {
			out = append(out, e.GetStringValue())
		}
		return out
	}
	f.fail(name, "a list of strings")
	return nil
}

func (f *fields) oneOf(name string, values map[string]int32) int32 {
	s := f.text(name)
	if s == "" {
		return 0
	}
	n, ok := values[s]
	if !ok {
		f.fail(name, "one of "+strings.Join(sortedKeys(values), ", "))
	}
	return n
}

const (
	maxSeq  = 1 << 48
	maxRank = 1 << 31
	maxNano = 1<<63 - 1
)

var (
	roles    = map[string]int32{"client": int32(tfiv1.Role_ROLE_CLIENT), "server": int32(tfiv1.Role_ROLE_SERVER)}
	phases   = map[string]int32{"req": int32(tfiv1.Phase_PHASE_REQ), "resp": int32(tfiv1.Phase_PHASE_RESP)}
	outcomes = map[string]int32{"success": int32(tfiv1.Outcome_OUTCOME_SUCCESS), "failure": int32(tfiv1.Outcome_OUTCOME_FAILURE)}
)

// isSidecar reports whether a span is a sidecar's.
func isSidecar(a attributes) bool { _, ok := a[span.Kind]; return ok }

// readSidecar reads a sidecar's span of a call or an early decision.
func readSidecar(s *tracev1.Span, a attributes) (*observation, error) {
	f := &fields{span: spanRef(s), m: a}
	o := &observation{
		span:     f.span,
		service:  f.need(span.Service),
		instance: f.need(span.Instance),
		role:     tfiv1.Role(f.oneOf(span.Role, roles)),
		peer:     f.text(span.Peer),
		api:      f.need(span.API),
		k:        uint32(f.number(span.K, maxRank)),
		grpc:     f.text(span.Protocol) == "grpc",
		path:     f.text(span.Path),
		policy:   f.text(span.PolicyVersion),
		req: moment{
			seq:  uint64(f.number(span.ReqSeq, maxSeq)),
			nano: f.number(span.ReqTime, maxNano),
			from: eventName{f.text(span.ReqFromInstance), uint64(f.number(span.ReqFromSeq, maxSeq))},
		},
		resp: moment{
			seq:  uint64(f.number(span.RespSeq, maxSeq)),
			nano: f.number(span.RespTime, maxNano),
			from: eventName{f.text(span.RespFromInstance), uint64(f.number(span.RespFromSeq, maxSeq))},
		},
		delivered: moment{
			seq:  uint64(f.number(span.DeliveredSeq, maxSeq)),
			nano: f.number(span.DeliveredTime, maxNano),
		},
		retry:   f.flag(span.Retry),
		unsent:  f.flag(span.Unsent),
		status:  uint32(f.number(span.Status, 1<<16)),
		outcome: tfiv1.Outcome(f.oneOf(span.Outcome, outcomes)),
		made:    f.flag(span.Made),
		broken:  f.flag(span.Broken),
		letGo:   f.flag(span.LetGo),
		judged:  f.list(span.Judged),
		answer: Answer{
			Bytes:       f.number(span.Bytes, maxNano),
			Chunks:      f.number(span.Chunks, maxNano),
			ContentType: f.text(span.ContentType),
			Length:      f.flag(span.Length),
		},
		whole: f.text(span.Kind) == "call",
	}
	if len(s.GetParentSpanId()) > 0 {
		o.parent = fmt.Sprintf("%x/%x", s.GetTraceId(), s.GetParentSpanId())
	}
	_, bytes := a[span.Bytes]
	_, length := a[span.Length]
	o.answer.Seen = bytes || length
	if o.role == 0 {
		f.fail(span.Role, `"client" or "server"`)
	}
	if o.req.seq == 0 {
		f.fail(span.ReqSeq, "a number from 1: every call begins with its request")
	}
	if o.resp.seq != 0 && o.resp.seq <= o.req.seq {
		f.fail(span.RespSeq, "a number above the request's")
	}
	if o.delivered.seq != 0 && o.delivered.seq <= o.resp.seq {
		f.fail(span.DeliveredSeq, "a number above the answer's")
	}
	if o.resp.seq != 0 && o.outcome == 0 {
		f.fail(span.Outcome, `"success" or "failure"`)
	}
	if o.delivered.seq != 0 && o.role != tfiv1.Role_ROLE_CLIENT {
		f.fail(span.DeliveredSeq, "none at a server")
	}
	phase := tfiv1.Phase(f.oneOf(span.FiredPhase, phases))
	if id := f.text(span.Fired); id != "" {
		if phase == 0 {
			f.fail(span.FiredPhase, `"req" or "resp"`)
		}
		*o.fired(phase) = firing{id, f.text(span.Fault)}
	}
	return o, f.err
}
