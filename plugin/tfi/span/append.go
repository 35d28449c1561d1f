package span

import (
	"encoding/binary"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// Span is a record and what an adapter knows beside it.
type Span struct {
	*tfi.Record
	// ID is random.
	ID tfi.SpanID
	// Epoch is the wall time, in Unix nanoseconds, at which the monotonic clock read 0.
	Epoch int64
	// End is the monotonic instant of the span's end; 0: that of its last event.
	End time.Duration
}

// Scope is the name of the instrumentation scope of all spans.
const Scope = "sequencefi"

// Field numbers of opentelemetry-proto: collector/trace/v1/trace_service.proto,
// trace/v1/trace.proto, common/v1/common.proto and resource/v1/resource.proto.
const (
	requestResourceSpans = 1

	resourceSpansResource   = 1
	resourceSpansScopeSpans = 2
	resourceAttributes      = 1
	scopeSpansScope         = 1
	scopeSpansSpans         = 2
	scopeName               = 1

	spanTraceID    = 1
	spanSpanID     = 2
	spanParent     = 4
	spanName       = 5
	spanKind       = 6
	spanStart      = 7
	spanEnd        = 8
	spanAttributes = 9
	spanStatus     = 15
	statusCode     = 3

	keyValueKey   = 1
	keyValueValue = 2
	valueString   = 1
	valueBool     = 2
	valueInt      = 3

	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
	statusError  = 2
)

// Append appends s to a batch. It keeps nothing of s, and a batch is nothing but
// bytes: adapters bound it by its length. [AppendRequest] makes a request of it.
func Append(batch []byte, s *Span) []byte {
	batch = protowire.AppendTag(batch, scopeSpansSpans, protowire.BytesType)
	return nested(batch, func(b []byte) []byte { return s.append(b) })
}

// AppendRequest appends an ExportTraceServiceRequest with the spans of batch,
// which service's sidecar has seen.
func AppendRequest(dst []byte, service string, batch []byte) []byte {
	dst = protowire.AppendTag(dst, requestResourceSpans, protowire.BytesType)
	return nested(dst, func(b []byte) []byte {
		b = protowire.AppendTag(b, resourceSpansResource, protowire.BytesType)
		b = nested(b, func(b []byte) []byte {
			return text(b, resourceAttributes, "service.name", service)
		})
		b = protowire.AppendTag(b, resourceSpansScopeSpans, protowire.BytesType)
		return nested(b, func(b []byte) []byte {
			b = protowire.AppendTag(b, scopeSpansScope, protowire.BytesType)
			b = nested(b, func(b []byte) []byte {
				b = protowire.AppendTag(b, scopeName, protowire.BytesType)
				return protowire.AppendString(b, Scope)
			})
			return append(b, batch...)
		})
	})
}

// nested appends a message and its length before it. Most are shorter than 128
// bytes, whose length takes one byte; a longer one is moved once.
func nested(b []byte, body func([]byte) []byte) []byte {
	at := len(b) + 1
	b = body(append(b, 0))
	n := len(b) - at
	if extra := protowire.SizeVarint(uint64(n)) - 1; extra > 0 {
		var room [binary.MaxVarintLen64]byte
		b = append(b, room[:extra]...)
		copy(b[at+extra:], b[at:at+n])
	}
	protowire.AppendVarint(b[:at-1], uint64(n))
	return b
}

func (s *Span) append(b []byte) []byte {
	r := s.Record
	first, last := s.bounds()
	b = protowire.AppendTag(b, spanTraceID, protowire.BytesType)
	b = protowire.AppendBytes(b, r.Trace[:])
	b = protowire.AppendTag(b, spanSpanID, protowire.BytesType)
	b = protowire.AppendBytes(b, s.ID[:])
	if r.Parent != (tfi.SpanID{}) {
		b = protowire.AppendTag(b, spanParent, protowire.BytesType)
		b = protowire.AppendBytes(b, r.Parent[:])
	}
	b = protowire.AppendTag(b, spanName, protowire.BytesType)
	kind := uint64(kindInternal)
	if r.Kind == tfi.KindCall {
		b = nested(b, func(b []byte) []byte { return appendUTF8(b, r.API) })
		kind = kindClient
		if r.Role == tfi.RoleServer {
			kind = kindServer
		}
	} else {
		b = protowire.AppendString(b, Scope+"."+r.Kind.String())
	}
	b = protowire.AppendTag(b, spanKind, protowire.VarintType)
	b = protowire.AppendVarint(b, kind)
	b = protowire.AppendTag(b, spanStart, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, uint64(s.wall(first)))
	b = protowire.AppendTag(b, spanEnd, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, uint64(s.wall(last)))
	b = s.attributes(b)
	if r.Problem != "" || r.Resp.Seq != 0 && r.Outcome == tfi.OutcomeFailure {
		b = protowire.AppendTag(b, spanStatus, protowire.BytesType)
		b = nested(b, func(b []byte) []byte {
			b = protowire.AppendTag(b, statusCode, protowire.VarintType)
			return protowire.AppendVarint(b, statusError)
		})
	}
	return b
}

// bounds returns the instants at which the span begins and ends.
func (s *Span) bounds() (first, last time.Duration) {
	first = s.End
	seen := false
	for _, e := range [...]tfi.EventRecord{s.Req, s.Resp, s.Delivered} {
		if e.Seq == 0 {
			continue
		}
		if !seen {
			first, seen = e.At, true
		}
		last = max(last, e.At)
	}
	if s.End != 0 {
		last = s.End
	}
	return first, max(first, last)
}

func (s *Span) wall(at time.Duration) int64 { return s.Epoch + int64(at) }

func (s *Span) attributes(b []byte) []byte {
	r := s.Record
	b = text(b, spanAttributes, Kind, r.Kind.String())
	b = made(b, Key, r.Key.AppendText)
	b = text(b, spanAttributes, Service, r.Service)
	b = optional(b, PolicyVersion, r.PolicyVersion)
	b = tag(b, Instance, r.Instance)
	switch r.Kind {
	case tfi.KindTrialEnd:
		return number(b, Events, int64(r.Events))
	case tfi.KindProblem:
		b = text(b, spanAttributes, Problem, r.Problem)
	}
	if r.Role == 0 {
		return b
	}
	b = text(b, spanAttributes, Role, r.Role.String())
	b = text(b, spanAttributes, Peer, r.Peer)
	b = text(b, spanAttributes, API, r.API)
	b = number(b, K, int64(r.K))
	b = text(b, spanAttributes, Path, r.Path)
	protocol := "http"
	if r.GRPC {
		protocol = "grpc"
	}
	b = text(b, spanAttributes, Protocol, protocol)
	b = s.event(b, r.Req, ReqSeq, ReqTime, ReqFromInstance, ReqFromSeq)
	b = s.event(b, r.Resp, RespSeq, RespTime, RespFromInstance, RespFromSeq)
	b = s.event(b, r.Delivered, DeliveredSeq, DeliveredTime, "", "")
	b = flag(b, Retry, r.Retry)
	if r.Resp.Seq != 0 {
		if !r.Broken {
			b = number(b, Status, int64(r.Status))
		}
		b = text(b, spanAttributes, Outcome, r.Outcome.String())
		b = flag(b, Made, r.Made)
		b = flag(b, Broken, r.Broken)
		b = number(b, Bytes, r.Bytes)
		b = number(b, Chunks, r.Chunks)
		if len(r.ContentType) > 0 {
			b = text(b, spanAttributes, ContentType, r.ContentType)
		}
		b = flag(b, Length, r.Length)
	}
	return s.verdict(b)
}

func (s *Span) event(b []byte, e tfi.EventRecord, seq, at, from, fromSeq string) []byte {
	if e.Seq == 0 {
		return b
	}
	b = number(b, seq, int64(e.Seq))
	b = number(b, at, s.wall(e.At))
	if e.From != 0 {
		b = tag(b, from, e.From)
		b = number(b, fromSeq, int64(e.FromSeq))
	}
	return b
}

// verdict appends what was judged.
func (s *Span) verdict(b []byte) []byte {
	r := s.Record
	if r.Fired != nil {
		b = text(b, spanAttributes, Fired, r.Fired.ID)
		b = text(b, spanAttributes, FiredPhase, r.Fired.Target.Phase.String())
		b = text(b, spanAttributes, Fault, r.Fired.Fault.Kind.String())
		b = flag(b, LetGo, r.LetGo)
	}
	if len(r.Judged) > 0 {
		b = list(b, Judged, len(r.Judged), func(b []byte, i int) []byte {
			b = append(b, r.Judged[i].TFIC.ID...)
			b = append(b, '=')
			return append(b, r.Judged[i].Reason.String()...)
		})
	}
	if len(r.Known) > 0 {
		b = list(b, Known, len(r.Known), func(b []byte, i int) []byte {
			b = strconv.AppendInt(b, int64(r.Known[i].Index), 10)
			b = append(b, ':')
			return strconv.AppendUint(b, r.Known[i].Count, 10)
		})
	}
	return b
}

// attribute appends a key and a value, whose field the caller writes.
func attribute(b []byte, field protowire.Number, key string, value func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return nested(b, func(b []byte) []byte {
		b = protowire.AppendTag(b, keyValueKey, protowire.BytesType)
		b = protowire.AppendString(b, key)
		b = protowire.AppendTag(b, keyValueValue, protowire.BytesType)
		return nested(b, value)
	})
}

// text appends a string. What comes from the wire need not be UTF-8, and one such
// attribute would cost the whole batch: bytes that are none become '?'.
func text[T string | []byte](b []byte, field protowire.Number, key string, v T) []byte {
	return attribute(b, field, key, func(b []byte) []byte {
		b = protowire.AppendTag(b, valueString, protowire.BytesType)
		return nested(b, func(b []byte) []byte { return appendUTF8(b, v) })
	})
}

func optional(b []byte, key, v string) []byte {
	if v == "" {
		return b
	}
	return text(b, spanAttributes, key, v)
}

func tag(b []byte, key string, t tfi.Tag) []byte {
	if t == 0 {
		return b
	}
	return made(b, key, t.AppendText)
}

func number(b []byte, key string, n int64) []byte {
	return attribute(b, spanAttributes, key, func(b []byte) []byte {
		b = protowire.AppendTag(b, valueInt, protowire.VarintType)
		return protowire.AppendVarint(b, uint64(n))
	})
}

// flag appends a bool, if it is true.
func flag(b []byte, key string, v bool) []byte {
	if !v {
		return b
	}
	return attribute(b, spanAttributes, key, func(b []byte) []byte {
		b = protowire.AppendTag(b, valueBool, protowire.VarintType)
		return protowire.AppendVarint(b, 1)
	})
}

// made appends a string that value appends.
func made(b []byte, key string, value func([]byte) []byte) []byte {
	return attribute(b, spanAttributes, key, func(b []byte) []byte {
		b = protowire.AppendTag(b, valueString, protowire.BytesType)
		return nested(b, value)
	})
}

// list appends n items as one string, separated by commas.
func list(b []byte, key string, n int, item func(b []byte, i int) []byte) []byte {
	return made(b, key, func(b []byte) []byte {
		for i := range n {
			if i > 0 {
				b = append(b, ',')
			}
			b = item(b, i)
		}
		return b
	})
}
