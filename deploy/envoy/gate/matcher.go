package gate

import (
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	envoymatcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// magic starts a trial's trace id, in 64 bits as in 128.
const magic = "5f1c"

type (
	predicate = matcherv3.Matcher_MatcherList_Predicate
	value     = *matcherv3.StringMatcher
)

// admission returns what lets a request in: the magic in any header that the
// engine reads, a tracestate with our member, or an edge rule.
//
// A request may be let in for nothing (the engine looks again, and passes it);
// one that belongs to a trial must never be kept out. So each header is looked up
// once only, which costs every request, and whether the magic stands where a trace
// id begins is left to the engine. Of ordinary ids one in about 1,500 is let in.
func admission(policy *tfiv1.Policy) (*predicate, error) {
	var b builder
	var admit []*predicate
	if carries(policy, tfiv1.TraceFormat_TRACE_FORMAT_W3C) {
		// Both are written in lower case only, and to ignore the case of a header that
		// is there costs a copy.
		admit = append(admit,
			b.header("traceparent", caseSensitive(contains(magic))),
			b.header("tracestate", caseSensitive(contains("sfi="))))
	}
	var headers []string
	if carries(policy, tfiv1.TraceFormat_TRACE_FORMAT_B3) {
		headers = append(headers, "b3")
	}
	if carries(policy, tfiv1.TraceFormat_TRACE_FORMAT_B3_MULTI) {
		headers = append(headers, "x-b3-traceid")
	}
	if carries(policy, tfiv1.TraceFormat_TRACE_FORMAT_JAEGER) {
		headers = append(headers, "uber-trace-id")
	}
	if own := policy.GetTraceHeader(); own != "" {
		headers = append(headers, own)
	}
	for _, name := range headers {
		admit = append(admit, b.header(name, contains(magic)))
	}
	for _, rule := range policy.GetEdgeRules() {
		admit = append(admit, b.edgeRule(rule))
	}
	return anyOf(admit...), b.err
}

// carries reports whether a trial's requests may carry a format.
func carries(policy *tfiv1.Policy, f tfiv1.TraceFormat) bool {
	all := policy.GetTraceFormats()
	return len(all) == 0 || slices.Contains(all, f)
}

// builder gathers the first error of building inputs, which cannot fail but for
// a broken protobuf runtime.
type builder struct{ err error }

// edgeRule matches the requests that carry all of a rule's identities. What a
// matcher cannot express matches every request.
func (b *builder) edgeRule(rule *tfiv1.EdgeRule) *predicate {
	var all []*predicate
	for _, id := range rule.GetIdentities() {
		if p := b.identity(id); p != nil {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		// No request has this path, so every request matches.
		return not(b.header(":path", equal(" ")))
	}
	return allOf(all...)
}

// identity returns nil for what a matcher cannot express.
func (b *builder) identity(id *tfiv1.Identity) *predicate {
	exact, isExact := id.GetMatch().(*tfiv1.Identity_Exact)
	want := id.GetPrefix()
	if isExact {
		want = exact.Exact
	}
	match := func(p func(value) *predicate) *predicate {
		if isExact {
			return p(equal(want))
		}
		if want == "" {
			return nil
		}
		return p(prefix(want))
	}
	switch source := id.GetSource().(type) {
	case *tfiv1.Identity_Path:
		path := func(v value) *predicate { return b.header(":path", v) }
		if isExact {
			// The matcher's path has its query, the identity's has not.
			return anyOf(path(equal(want)), path(prefix(want+"?")))
		}
		return match(path)
	case *tfiv1.Identity_Header:
		return match(func(v value) *predicate { return b.header(source.Header, v) })
	case *tfiv1.Identity_Query:
		return match(func(v value) *predicate { return b.query(source.Query, v) })
	default:
		return nil
	}
}

func (b *builder) header(name string, v value) *predicate {
	return b.single("header", &envoymatcherv3.HttpRequestHeaderMatchInput{HeaderName: name}, v)
}

func (b *builder) query(name string, v value) *predicate {
	return b.single("query", &envoymatcherv3.HttpRequestQueryParamMatchInput{QueryParam: name}, v)
}

func (b *builder) single(name string, input proto.Message, v value) *predicate {
	in, err := typed(name, input)
	if err != nil {
		b.err = err
		return nil
	}
	return &predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: xdsTyped(in),
			Matcher: &matcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{
				ValueMatch: v,
			},
		},
	}}
}

func prefix(s string) value {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

func contains(s string) value {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: s}, IgnoreCase: true}
}

func equal(s string) value {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func caseSensitive(v value) value {
	v.IgnoreCase = false
	return v
}

func not(p *predicate) *predicate {
	return &predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: p}}
}

// anyOf and allOf spare the list where there is one: Envoy refuses lists of one.
func anyOf(p ...*predicate) *predicate {
	if len(p) == 1 {
		return p[0]
	}
	return &predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &matcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: p},
	}}
}

func allOf(p ...*predicate) *predicate {
	if len(p) == 1 {
		return p[0]
	}
	return &predicate{MatchType: &matcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &matcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: p},
	}}
}

// xdsTyped turns Envoy's own message into the one of the xDS project, which is
// the same on the wire.
func xdsTyped(c *corev3.TypedExtensionConfig) *xdscorev3.TypedExtensionConfig {
	return &xdscorev3.TypedExtensionConfig{Name: c.GetName(), TypedConfig: c.GetTypedConfig()}
}
