package span

import (
	"encoding/binary"
	"slices"
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
	scopeSpansScope         = 1
	scopeName               = 1

	kindInternal = 1
	kindServer   = 2
	kindClient   = 3
	statusError  = 2
)

// Tags of fields: number << 3 | wire type.
const (
	bytesType   = 2
	fixed64Type = 1

	tagResourceAttribute = 1<<3 | bytesType

	tagSpan       = 2<<3 | bytesType // of ScopeSpans
	tagTraceID    = 1<<3 | bytesType
	tagSpanID     = 2<<3 | bytesType
	tagParent     = 4<<3 | bytesType
	tagName       = 5<<3 | bytesType
	tagKind       = 6 << 3
	tagStart      = 7<<3 | fixed64Type
	tagEnd        = 8<<3 | fixed64Type
	tagAttribute  = 9<<3 | bytesType
	tagStatus     = 15<<3 | bytesType
	tagStatusCode = 3 << 3 // of Status

	tagKey         = 1<<3 | bytesType // of KeyValue
	tagValue       = 2<<3 | bytesType
	tagStringValue = 1<<3 | bytesType // of AnyValue
	tagBoolValue   = 2 << 3
	tagIntValue    = 3 << 3
)

// Append appends s to a batch. It keeps nothing of s, and a batch is nothing but
// bytes: adapters bound it by its length. [AppendRequest] makes a request of it.
//
// It is most of what a report costs a sidecar, so it writes each length before
// what it is of, and takes from a table whatever is known beforehand.
func Append(batch []byte, s *Span) []byte {
	batch = append(slices.Grow(batch, usualSize), tagSpan, 0, 0)
	at := len(batch)
	batch = s.append(batch)
	n := len(batch) - at
	switch protowire.SizeVarint(uint64(n)) {
	case 1:
		copy(batch[at-1:], batch[at:])
		batch = batch[:len(batch)-1]
		batch[at-2] = byte(n)
	case 2:
		batch[at-2], batch[at-1] = byte(n)|0x80, byte(n>>7)
	default: // a path, an api and many judgements
		var room [binary.MaxVarintLen64]byte
		extra := protowire.SizeVarint(uint64(n)) - 2
		batch = append(batch, room[:extra]...)
		copy(batch[at+extra:], batch[at:at+n])
		protowire.AppendVarint(batch[:at-2], uint64(n))
	}
	return batch
}

// usualSize is what most spans fit in.
const usualSize = 1 << 10

// AppendRequest appends an ExportTraceServiceRequest with the spans of batch,
// which service's sidecar has seen.
func AppendRequest(dst []byte, service string, batch []byte) []byte {
	return append(AppendRequestHead(dst, service, len(batch)), batch...)
}

// AppendRequestHead appends an ExportTraceServiceRequest as far as the spans, of which
// size bytes must follow: a request need not be in one piece.
func AppendRequestHead(dst []byte, service string, size int) []byte {
	resource := protowire.AppendTag(nil, resourceSpansResource, protowire.BytesType)
	resource = nested(resource, func(b []byte) []byte {
		from := len(b)
		b = appendText(b, textOf("service.name"), service)
		b[from] = tagResourceAttribute
		return b
	})
	scope := protowire.AppendTag(nil, scopeSpansScope, protowire.BytesType)
	scope = nested(scope, func(b []byte) []byte {
		b = protowire.AppendTag(b, scopeName, protowire.BytesType)
		return protowire.AppendString(b, Scope)
	})
	spans := len(scope) + size
	resource = protowire.AppendTag(resource, resourceSpansScopeSpans, protowire.BytesType)
	resource = protowire.AppendVarint(resource, uint64(spans))
	dst = protowire.AppendTag(dst, requestResourceSpans, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(resource)+spans))
	return append(append(dst, resource...), scope...)
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
	kind := byte(kindInternal)
	if r.Kind == tfi.KindCall {
		kind = kindClient
		if r.Role == tfi.RoleServer {
			kind = kindServer
		}
	}
	b = openings[int(r.Kind)%len(openings)].append(b, s, kind, s.wall(first), s.wall(last))
	if r.Parent != (tfi.SpanID{}) {
		b = append(b, tagParent, byte(len(r.Parent)))
		b = append(b, r.Parent[:]...)
	}
	if r.Kind == tfi.KindCall {
		b = appendUvarint(append(b, tagName), uint64(len(r.API)))
		from := len(b)
		b = append(b, r.API...)
		if !isASCII(b[from:]) {
			clean(b[from:])
		}
	} else {
		name := r.Kind.String()
		b = append(b, tagName, byte(len(Scope)+1+len(name)))
		b = append(append(append(b, Scope...), '.'), name...)
	}
	b = s.attributes(b)
	if r.Problem != "" || r.Resp.Seq != 0 && r.Outcome == tfi.OutcomeFailure {
		b = append(b, tagStatus, 2, tagStatusCode, statusError)
	}
	return b
}

// bounds returns the instants at which the span begins and ends.
func (s *Span) bounds() (first, last time.Duration) {
	r := s.Record
	first = s.End
	switch {
	case r.Req.Seq != 0:
		first = r.Req.At
	case r.Resp.Seq != 0:
		first = r.Resp.At
	case r.Delivered.Seq != 0:
		first = r.Delivered.At
	}
	last = s.End
	if last == 0 {
		for _, e := range [...]*tfi.EventRecord{&r.Req, &r.Resp, &r.Delivered} {
			if e.Seq != 0 {
				last = max(last, e.At)
			}
		}
	}
	return first, max(first, last)
}

func (s *Span) wall(at time.Duration) int64 { return s.Epoch + int64(at) }

// attributes appends those that the opening does not have.
func (s *Span) attributes(b []byte) []byte {
	r := s.Record
	b = appendText(b, textService, r.Service)
	if r.PolicyVersion != "" {
		b = appendText(b, textPolicyVersion, r.PolicyVersion)
	}
	switch r.Kind {
	case tfi.KindTrialEnd:
		return appendNumber(b, numberEvents, int64(r.Events))
	case tfi.KindProblem:
		b = appendText(b, textProblem, r.Problem)
	}
	if r.Role == 0 {
		return b
	}
	b = append(b, side(r)...)
	b = appendText(b, textPeer, r.Peer)
	b = appendText(b, textAPI, r.API)
	b = appendNumber(b, numberK, int64(r.K))
	b = appendText(b, textPath, r.Path)
	b = momentReq.append(b, &r.Req, s.wall(r.Req.At))
	b = momentResp.append(b, &r.Resp, s.wall(r.Resp.At))
	b = momentDelivered.append(b, &r.Delivered, s.wall(r.Delivered.At))
	if r.Retry {
		b = append(b, isRetry...)
	}
	if r.Unsent {
		b = append(b, isUnsent...)
	}
	if r.Resp.Seq != 0 {
		b = s.answer(b)
	}
	return s.verdict(b)
}

// answer appends how the call ended.
func (s *Span) answer(b []byte) []byte {
	r := s.Record
	if !r.Broken {
		b = appendNumber(b, numberStatus, int64(r.Status))
	}
	b = append(b, outcomes.of(r.Outcome)...)
	if r.Made {
		b = append(b, isMade...)
	}
	if r.Broken {
		b = append(b, isBroken...)
	}
	b = appendNumber(b, numberBytes, r.Bytes)
	b = appendNumber(b, numberChunks, r.Chunks)
	if len(r.ContentType) > 0 {
		b = appendText(b, textContentType, r.ContentType)
	}
	if r.Length {
		b = append(b, hasLength...)
	}
	return b
}

// verdict appends what was judged.
func (s *Span) verdict(b []byte) []byte {
	r := s.Record
	if r.Fired != nil {
		b = appendText(b, textFired, r.Fired.ID)
		b = append(b, firedPhases.of(r.Fired.Target.Phase)...)
		b = append(b, faults.of(r.Fired.Fault.Kind)...)
		if r.LetGo {
			b = append(b, isLetGo...)
		}
	}
	if len(r.Judged) > 0 {
		from := len(b)
		b = append(b, textJudged...)
		for i := range r.Judged {
			if i > 0 {
				b = append(b, ',')
			}
			id := len(b)
			b = append(b, r.Judged[i].TFIC.ID...)
			if !isASCII(b[id:]) {
				clean(b[id:])
			}
			b = append(append(b, '='), r.Judged[i].Reason.String()...)
		}
		b = endText(b, from, textJudged)
	}
	if len(r.Known) > 0 {
		from := len(b)
		b = append(b, textKnown...)
		for i, k := range r.Known {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(k.Index), 10)
			b = append(b, ':')
			b = strconv.AppendUint(b, k.Count, 10)
		}
		b = endText(b, from, textKnown)
	}
	return b
}
