package workload

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// Propagation says which trace headers a trial's requests carry. Applications forward
// those that their tracer knows and drop all others.
type Propagation struct {
	// Formats as topology.Formats has them; empty: all.
	Formats []string
	// Header is one of the application's own for the bare trace id, in lower case;
	// empty: none.
	Header string
}

// PropagationOf returns what a topology says of it.
func PropagationOf(t *topology.Topology) Propagation {
	return Propagation{Formats: t.Propagation, Header: t.TraceHeader}
}

// Only returns what is left where one of the formats, or the own header, goes alone.
func (p Propagation) Only(name string) Propagation {
	out := Propagation{Formats: []string{name}}
	if name == p.Header {
		out.Header = name
	}
	return out
}

func (p Propagation) has(format string) bool {
	return len(p.Formats) == 0 || slices.Contains(p.Formats, format)
}

// long says whether the first header at which sidecars look holds a whole trace id.
func (p Propagation) long() bool {
	names := p.Headers()
	return len(names) > 0 && names[0] != "b3" && names[0] != "x-b3-traceid"
}

// Headers names the headers that carry the trial, in the order in which sidecars look.
func (p Propagation) Headers() []string {
	var names []string
	if p.Header != "" {
		names = append(names, p.Header)
	}
	for _, f := range []struct{ format, header string }{
		{topology.FormatW3C, "traceparent"},
		{topology.FormatB3, "b3"},
		{topology.FormatB3Multi, "x-b3-traceid"},
		{topology.FormatJaeger, "uber-trace-id"},
		{topology.FormatW3C, "tracestate"},
	} {
		if p.has(f.format) {
			names = append(names, f.header)
		}
	}
	return names
}

// Shared returns the trace ids under which sidecars may report any of a trial's calls,
// whichever step it belongs to: B3's, and the one that stands in for traces which an
// application starts and marks by tracestate.
func (p Propagation) Shared(key Key) []TraceID {
	var ids []TraceID
	if p.has(topology.FormatB3) || p.has(topology.FormatB3Multi) {
		ids = append(ids, shortTraceID(key))
	}
	if p.has(topology.FormatW3C) {
		ids = append(ids, statedTraceID(key))
	}
	return ids
}

// refuse returns the problems of a request that sets the application's own header.
func (p Propagation) refuse(m *campaignv1.HttpRequest) []valid.Problem {
	var problems []valid.Problem
	for _, name := range slices.Sorted(maps.Keys(m.GetHeaders())) {
		if p.Header != "" && strings.EqualFold(name, p.Header) {
			problems = append(problems, valid.Problem{
				Path: fmt.Sprintf("headers[%q]", name),
				Want: "must be left out: it is the topology's traceHeader, which SequenceFI sets for each trial",
			})
		}
	}
	return problems
}

// traceContext is a new trace of a trial, with the span that the client is taken for. All
// its headers say that it is sampled, so that applications record their own spans too.
type traceContext struct {
	key    Key
	id     TraceID
	span   SpanID
	format Propagation
}

// reported is the trace id under which a sidecar reports a request that carries all of them.
func (c *traceContext) reported() TraceID {
	if c.format.long() {
		return c.id
	}
	return shortTraceID(c.key)
}

// family is the headers of formats that one reader takes for the same thing.
type family []header

type header struct{ name, value string }

// families returns what is stamped on a request; tracestate is not among it. sampling is what
// B3 is to say of it; empty: that it is sampled.
func (c *traceContext) families(sampling string) []family {
	long, short, span := c.id.String(), hex.EncodeToString(shortHalf(c.key)), c.span.String()
	var all []family
	if c.format.Header != "" {
		all = append(all, family{{c.format.Header, long}})
	}
	if c.format.has(topology.FormatW3C) {
		all = append(all, family{{"traceparent", "00-" + long + "-" + span + "-01"}})
	}
	// The mark stands at the front of an id, and who reads 64 bits of B3 takes the lower
	// ones of a longer id. So B3 gets a short one, which every reader takes.
	state, sampled := "1", "1"
	if sampling != "" {
		state = sampling
	}
	if sampling == "0" {
		sampled = "0"
	}
	var b3 family
	if c.format.has(topology.FormatB3) {
		b3 = append(b3, header{"b3", short + "-" + span + "-" + state})
	}
	if c.format.has(topology.FormatB3Multi) {
		b3 = append(b3, header{"x-b3-traceid", short}, header{"x-b3-spanid", span}, header{"x-b3-sampled", sampled})
	}
	if len(b3) > 0 {
		all = append(all, b3)
	}
	if c.format.has(topology.FormatJaeger) {
		all = append(all, family{{"uber-trace-id", long + ":" + span + ":0:1"}})
	}
	return all
}

// state is the tracestate; empty: there is to be none.
func (c *traceContext) state() string {
	if !c.format.has(topology.FormatW3C) {
		return ""
	}
	return traceState(c.key)
}

// headers returns all that a request without trace context gets.
func (c *traceContext) headers() []header {
	out := slices.Concat(c.families("")...)
	if state := c.state(); state != "" {
		out = append(out, header{"tracestate", state})
	}
	return out
}

// variables returns the same as environment variables, by the names that OpenTelemetry
// gives them (https://opentelemetry.io/docs/specs/otel/context/env-carriers/). An
// application's own header has none: its name might be that of any other variable.
func (c *traceContext) variables() []string {
	var out []string
	for _, h := range c.headers() {
		if h.name != c.format.Header {
			out = append(out, strings.ToUpper(strings.ReplaceAll(h.name, "-", "_"))+"="+h.value)
		}
	}
	return append(out, "SEQUENCEFI_TRACE_ID="+c.reported().String())
}
