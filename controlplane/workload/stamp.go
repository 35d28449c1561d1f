package workload

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// stamped is what came of a request that was to be marked.
type stamped struct {
	// own is the W3C trace, not of the trial, that the request brought; zero: none.
	own TraceID
	// marked: some header names the trial.
	marked bool
}

// stamp gives a request the trial's trace context in every format in which it names no trace
// of its own, and marks one that has a traceparent by tracestate. What B3 says of sampling
// without naming a trace goes on to be said.
func (c *traceContext) stamp(h http.Header) stamped {
	var out stamped
	w3c, _ := parseTraceID(h.Get("traceparent"))
	for _, f := range c.families(sampling(h)) {
		named := false
		for _, one := range f {
			id, ok := c.read(one.name, h.Get(one.name))
			named = named || ok
			out.marked = out.marked || ok && c.bears(id)
		}
		if named {
			continue
		}
		out.marked = true
		for _, one := range f {
			h.Set(one.name, one.value)
			if one.name == "x-b3-traceid" {
				h.Del("x-b3-parentspanid") // of no span that is still named
			}
		}
	}
	if !c.format.has(topology.FormatW3C) || c.bears(w3c) {
		return out
	}
	out.own, out.marked = w3c, true
	h.Set("tracestate", stateBeside(c.key, h.Values("tracestate")))
	return out
}

// bears says whether sidecars take a trace id for one of the trial's.
func (c *traceContext) bears(id TraceID) bool {
	stated := statedTraceID(c.key)
	return bytes.HasPrefix(id[:], stated[:9]) || id == shortTraceID(c.key)
}

// read returns the trace that one of the trial's headers names in a request. An application's
// own header has no other use: whatever stands in it is the command's.
func (c *traceContext) read(name, value string) (TraceID, bool) {
	switch name {
	case c.format.Header:
		id, _ := bareTraceID(value)
		return id, value != ""
	case "traceparent":
		return parseTraceID(value)
	case "b3":
		text, rest, _ := strings.Cut(value, "-")
		span, _, _ := strings.Cut(rest, "-")
		id, ok := bareTraceID(text)
		return id, ok && len(span) == 16 && isNumber(span)
	case "x-b3-traceid":
		return bareTraceID(value)
	case "uber-trace-id":
		if plain, err := url.PathUnescape(value); err == nil {
			value = plain
		}
		parts := strings.Split(value, ":")
		if len(parts) != 4 || len(parts[0]) > 32 || len(parts[1]) > 16 || !isNumber(parts[1]) {
			return TraceID{}, false
		}
		return bareTraceID(strings.Repeat("0", 32-len(parts[0])) + parts[0])
	}
	return TraceID{}, false
}

// bareTraceID reads 32 hex digits, or 16 as the lower half. All zeros are no id.
func bareTraceID(text string) (TraceID, bool) {
	var id TraceID
	if len(text) != 16 && len(text) != 32 {
		return id, false
	}
	if _, err := hex.Decode(id[16-len(text)/2:], []byte(text)); err != nil {
		return TraceID{}, false
	}
	return id, id != TraceID{}
}

// parseTraceID reads the trace id of a W3C traceparent.
func parseTraceID(header string) (TraceID, bool) {
	parts := strings.SplitN(header, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 ||
		!isHex(parts[0]) || parts[0] == "00" && len(parts) > 4 || strings.EqualFold(parts[0], "ff") ||
		!isNumber(parts[2]) || !isHex(parts[3]) {
		return TraceID{}, false
	}
	return bareTraceID(parts[1])
}

func isHex(text string) bool { return text != "" && strings.Trim(text, "0123456789abcdefABCDEF") == "" }

// isNumber says whether text is one in hex, and not 0.
func isNumber(text string) bool { return isHex(text) && strings.Trim(text, "0") != "" }

// sampling is what B3 headers say of it: "0", "1", or "d" to debug; empty: nothing. Any of
// them may come without a trace (https://github.com/openzipkin/b3-propagation).
func sampling(h http.Header) string {
	if state := h.Get("b3"); state == "0" || state == "1" || state == "d" {
		return state
	}
	if h.Get("x-b3-flags") == "1" {
		return "d"
	}
	switch strings.ToLower(h.Get("x-b3-sampled")) {
	case "0", "false":
		return "0"
	case "1", "true":
		return "1"
	}
	return ""
}

// stateBeside returns the tracestate that has the trial in front of what is there already. The
// list has a member of each name once, and at most 32 of them
// (https://www.w3.org/TR/trace-context/#list).
func stateBeside(key Key, lines []string) string {
	const most = 32
	members := []string{traceState(key)}
	for member := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		member = strings.Trim(member, " \t")
		if name, _, _ := strings.Cut(member, "="); name != "" && name != "sfi" {
			members = append(members, member)
		}
	}
	return strings.Join(members[:min(most, len(members))], ",")
}
