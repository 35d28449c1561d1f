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
	dst = protowire.AppendTag(dst, requestResourceSpans, protowire.BytesType)
	return nested(dst, func(b []byte) []byte {
		b = protowire.AppendTag(b, resourceSpansResource, protowire.BytesType)
		b = nested(b, func(b []byte) []byte {
			b = append(b, tagResourceAttribute)
			return appendAttribute(b, wire("service.name"), service)
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
	b = append(b, tagTraceID, byte(len(r.Trace)))
	b = append(b, r.Trace[:]...)
	b = append(b, tagSpanID, byte(len(s.ID)))
	b = append(b, s.ID[:]...)
	if r.Parent != (tfi.SpanID{}) {
		b = append(b, tagParent, byte(len(r.Parent)))
		b = append(b, r.Parent[:]...)
	}
	kind := byte(kindInternal)
	if r.Kind == tfi.KindCall {
		b = appendUvarint(append(b, tagName), uint64(len(r.API)))
		from := len(b)
		b = append(b, r.API...)
		clean(b[from:])
		kind = kindClient
		if r.Role == tfi.RoleServer {
			kind = kindServer
		}
	} else {
		name := r.Kind.String()
		b = append(b, tagName, byte(len(Scope)+1+len(name)))
		b = append(append(append(b, Scope...), '.'), name...)
	}
	b = append(b, tagKind, kind, tagStart)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.wall(first)))
	b = append(b, tagEnd)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.wall(last)))
	b = s.attributes(b)
	if r.Problem != "" || r.Resp.Seq != 0 && r.Outcome == tfi.OutcomeFailure {
		b = append(b, tagStatus, 2, tagStatusCode, statusError)
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
	b = append(b, kinds.of(r.Kind)...)
	b = appendHex(b, nameKey, r.Key[:])
	b = appendText(b, nameService, r.Service)
	if r.PolicyVersion != "" {
		b = appendText(b, namePolicyVersion, r.PolicyVersion)
	}
	b = appendTag(b, nameInstance, r.Instance)
	switch r.Kind {
	case tfi.KindTrialEnd:
		return appendNumber(b, nameEvents, int64(r.Events))
	case tfi.KindProblem:
		b = appendText(b, nameProblem, r.Problem)
	}
	if r.Role == 0 {
		return b
	}
	b = append(b, roles.of(r.Role)...)
	b = appendBytes(b, namePeer, r.Peer)
	b = appendBytes(b, nameAPI, r.API)
	b = appendNumber(b, nameK, int64(r.K))
	b = appendBytes(b, namePath, r.Path)
	if r.GRPC {
		b = append(b, protocolGRPC...)
	} else {
		b = append(b, protocolHTTP...)
	}
	b = s.event(b, &r.Req, &reqNames)
	b = s.event(b, &r.Resp, &respNames)
	b = s.event(b, &r.Delivered, &deliveredNames)
	if r.Retry {
		b = append(b, isRetry...)
	}
	if r.Resp.Seq != 0 {
		b = s.answer(b)
	}
	return s.verdict(b)
}

func (s *Span) event(b []byte, e *tfi.EventRecord, n *eventNames) []byte {
	if e.Seq == 0 {
		return b
	}
	b = appendNumber(b, n.seq, int64(e.Seq))
	b = appendNumber(b, n.at, s.wall(e.At))
	if e.From != 0 && n.from != "" {
		b = appendTag(b, n.from, e.From)
		b = appendNumber(b, n.fromSeq, int64(e.FromSeq))
	}
	return b
}

// answer appends how the call ended.
func (s *Span) answer(b []byte) []byte {
	r := s.Record
	if !r.Broken {
		b = appendNumber(b, nameStatus, int64(r.Status))
	}
	b = append(b, outcomes.of(r.Outcome)...)
	if r.Made {
		b = append(b, isMade...)
	}
	if r.Broken {
		b = append(b, isBroken...)
	}
	b = appendNumber(b, nameBytes, r.Bytes)
	b = appendNumber(b, nameChunks, r.Chunks)
	if len(r.ContentType) > 0 {
		b = appendBytes(b, nameContentType, r.ContentType)
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
		b = appendText(b, nameFired, r.Fired.ID)
		b = append(b, firedPhases.of(r.Fired.Target.Phase)...)
		b = append(b, faults.of(r.Fired.Fault.Kind)...)
		if r.LetGo {
			b = append(b, isLetGo...)
		}
	}
	if len(r.Judged) > 0 {
		n := len(r.Judged) - 1
		for i := range r.Judged {
			n += len(r.Judged[i].TFIC.ID) + 1 + len(r.Judged[i].Reason.String())
		}
		b = appendHead(b, nameJudged, n)
		for i := range r.Judged {
			if i > 0 {
				b = append(b, ',')
			}
			from := len(b)
			b = append(b, r.Judged[i].TFIC.ID...)
			clean(b[from:])
			b = append(append(b, '='), r.Judged[i].Reason.String()...)
		}
	}
	if len(r.Known) > 0 {
		n := len(r.Known) - 1
		for _, k := range r.Known {
			n += digits(uint64(k.Index)) + 1 + digits(k.Count)
		}
		b = appendHead(b, nameKnown, n)
		for i, k := range r.Known {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(k.Index), 10)
			b = append(b, ':')
			b = strconv.AppendUint(b, k.Count, 10)
		}
	}
	return b
}

// digits is the length of n in decimal.
func digits(n uint64) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}
