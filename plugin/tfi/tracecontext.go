package tfi

import "strings"

// traceContext is what a request's trace headers say.
type traceContext struct {
	trace TraceID
	// parent is the span id beside it; zero where there is none.
	parent SpanID
}

// lookup is the outcome of looking through a request's trace headers.
type lookup struct {
	traceContext
	// act is the live or expired activation that was found; nil: none.
	act *Activation
	// marked: some header bears the mark of a trial, known here or not.
	marked bool
	// traced: there is some trace header.
	traced bool
	// stated: tracestate alone names the activation; the trace is the application's own.
	stated bool
}

// traceFormat reads one kind of trace header.
type traceFormat struct {
	header string
	// parse returns the context; spanHeader names where its parent stands if not in
	// the same header.
	parse      func(string) (traceContext, bool)
	spanHeader string
}

// traceFormats in order of precedence, after the header that the policy names.
// https://www.w3.org/TR/trace-context/, https://github.com/openzipkin/b3-propagation,
// https://www.jaegertracing.io/docs/1.76/sdk-migration/#propagation-format
var traceFormats = [...]traceFormat{
	{header: "traceparent", parse: parseTraceparent},
	{header: "b3", parse: parseB3},
	{header: "x-b3-traceid", parse: parseBareTraceID, spanHeader: "x-b3-spanid"},
	{header: "uber-trace-id", parse: parseUber},
}

// find looks for the trial that a request belongs to. The first header that
// names a known activation decides. A trace id that bears no mark does not end the
// search: an application that starts traces anew may still pass on tracestate.
func (p *Policy) find(h Headers) lookup {
	var l lookup
	if p.TraceHeader != "" && p.try(&l, h, &traceFormat{header: p.TraceHeader, parse: parseBareTraceID}) {
		p.findParent(&l, h)
		return l
	}
	for i := range traceFormats {
		if p.try(&l, h, &traceFormats[i]) {
			return l
		}
	}
	if v, ok := h.Header("tracestate"); ok {
		if k, ok := parseTracestate(v); ok {
			l.marked = true
			l.act = p.lookup(ref{key: k, whole: true})
			l.stated = l.act != nil
			if l.stated && l.trace == (TraceID{}) {
				l.trace = NewTraceID(k, 0)
			}
		}
	}
	return l
}

// findParent takes the parent of a header that names the same activation as the
// policy's own, which has none.
func (p *Policy) findParent(l *lookup, h Headers) {
	for i := range traceFormats {
		var beside lookup
		if p.try(&beside, h, &traceFormats[i]) && beside.act == l.act && beside.parent != (SpanID{}) {
			l.parent = beside.parent
			return
		}
	}
}

// try reads one header into l and reports whether it names a known activation.
func (p *Policy) try(l *lookup, h Headers, f *traceFormat) bool {
	v, ok := h.Header(f.header)
	if !ok {
		return false
	}
	l.traced = true
	tc, ok := f.parse(v)
	if !ok {
		return false
	}
	r, marked := tc.trace.ref()
	var act *Activation
	if marked {
		l.marked = true
		act = p.lookup(r)
	}
	if act == nil && l.trace != (TraceID{}) {
		return false
	}
	if f.spanHeader != "" {
		if s, ok := h.Header(f.spanHeader); ok {
			parseSpanID(&tc.parent, s)
		}
	}
	l.traceContext, l.act = tc, act
	return act != nil
}

// parseTraceparent reads `version-traceid-parentid-flags`. A later version may
// have more behind a further dash.
func parseTraceparent(s string) (tc traceContext, ok bool) {
	const size = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return traceContext{}, false
	}
	var version, flags [1]byte
	if !hexInto(version[:], s[:2]) || !hexInto(flags[:], s[53:55]) || version[0] == 0xff {
		return traceContext{}, false
	}
	if len(s) > size && (version[0] == 0 || s[size] != '-') {
		return traceContext{}, false
	}
	if !parseTraceID(&tc.trace, s[3:35]) || !parseSpanID(&tc.parent, s[36:52]) {
		return traceContext{}, false
	}
	return tc, true
}

// parseB3 reads `traceid-spanid[-sampled[-parent]]`; a lone sampling state ("0")
// names no trace.
func parseB3(s string) (tc traceContext, ok bool) {
	id, rest, found := strings.Cut(s, "-")
	if !found || !parseTraceID(&tc.trace, id) {
		return traceContext{}, false
	}
	span, _, _ := strings.Cut(rest, "-")
	if !parseSpanID(&tc.parent, span) {
		return traceContext{}, false
	}
	return tc, true
}

// parseBareTraceID reads a header that is nothing but a trace id.
func parseBareTraceID(s string) (tc traceContext, ok bool) {
	ok = parseTraceID(&tc.trace, s)
	return tc, ok
}

// parseUber reads `traceid:spanid:parentid:flags`, whose colons may be
// percent-encoded. Leading zeros may be left out; a marked trace id has none.
func parseUber(s string) (tc traceContext, ok bool) {
	id, rest, found := cutUber(s)
	if !found || !parseTraceID(&tc.trace, id) {
		return traceContext{}, false
	}
	span, rest, found := cutUber(rest)
	if !found || len(span) == 0 || len(span) > 16 {
		return traceContext{}, false
	}
	if _, _, found = cutUber(rest); !found {
		return traceContext{}, false
	}
	var padded [16]byte
	for i := range padded {
		padded[i] = '0'
	}
	copy(padded[16-len(span):], span)
	for i := range tc.parent {
		hi, ok1 := hexDigit(padded[2*i])
		lo, ok2 := hexDigit(padded[2*i+1])
		if !ok1 || !ok2 {
			return traceContext{}, false
		}
		tc.parent[i] = hi<<4 | lo
	}
	return tc, true
}

// cutUber cuts s at its first colon, plain or percent-encoded.
func cutUber(s string) (before, after string, found bool) {
	for i := range len(s) {
		switch {
		case s[i] == ':':
			return s[:i], s[i+1:], true
		case s[i] == '%' && len(s) >= i+3 && s[i+1] == '3' && s[i+2]|0x20 == 'a':
			return s[:i], s[i+3:], true
		}
	}
	return s, "", false
}

// parseTracestate returns the key in the member `sfi` of a tracestate list.
func parseTracestate(s string) (Key, bool) {
	for s != "" {
		var member string
		member, s, _ = strings.Cut(s, ",")
		name, value, ok := strings.Cut(strings.Trim(member, " \t"), "=")
		if ok && name == "sfi" {
			var k Key
			return k, hexInto(k[:], value)
		}
	}
	return Key{}, false
}

// parseTraceID reads 32 hex digits, or 16 as the lower half. All zeros are no id.
func parseTraceID(t *TraceID, s string) bool {
	*t = TraceID{}
	switch len(s) {
	case 32:
		return hexInto(t[:], s) && *t != TraceID{}
	case 16:
		return hexInto(t[8:], s) && *t != TraceID{}
	}
	return false
}

// parseSpanID reads 16 hex digits. All zeros are no id.
func parseSpanID(id *SpanID, s string) bool {
	if !hexInto(id[:], s) || *id == (SpanID{}) {
		*id = SpanID{}
		return false
	}
	return true
}

// appendTraceparent appends the header that an edge rule adds.
func appendTraceparent(b []byte, t TraceID, parent SpanID) []byte {
	const digits = "0123456789abcdef"
	b = append(b, "00-"...)
	for _, c := range t {
		b = append(b, digits[c>>4], digits[c&15])
	}
	b = append(b, '-')
	for _, c := range parent {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return append(b, "-01"...)
}
