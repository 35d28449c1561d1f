package valid

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Bounds of names and values that a policy repeats to every sidecar.
const (
	maxServiceName = 253
	maxAPI         = 1024
	maxValue       = 1024
)

// service checks the name of a service or of a proxy's cluster. Clusters of
// meshes contain `|` and `/`, so only what could break a log line or a header
// is refused.
func (c *checker) service(path, name string) {
	if len(name) > maxServiceName || !printable(name) {
		c.want(path, "must be at most %d printable ASCII characters without spaces (got %q)",
			maxServiceName, cut(name, 64))
	}
}

// namedService is a service that must be there.
func (c *checker) namedService(path, name string) {
	if name == "" {
		c.want(path, "must name a service")
		return
	}
	c.service(path, name)
}

// api checks `METHOD /path/template` or `package.Service/Method`.
func (c *checker) api(path, api string) {
	const want = "must be \"METHOD /path/template\" or \"package.Service/Method\""
	switch {
	case api == "":
		c.want(path, want)
	case len(api) > maxAPI:
		c.want(path, "must be at most %d characters (got %d)", maxAPI, len(api))
	case !httpAPI(api) && !grpcAPI(api):
		c.want(path, want+" (got %q)", cut(api, 80))
	}
}

func httpAPI(api string) bool {
	method, path, ok := strings.Cut(api, " ")
	return ok && token(method) && strings.HasPrefix(path, "/") &&
		printable(path) && !strings.ContainsAny(path, "?#")
}

func grpcAPI(api string) bool {
	service, method, ok := strings.Cut(api, "/")
	return ok && grpcName(service, true) && grpcName(method, false)
}

func grpcName(s string, dots bool) bool {
	for i := range len(s) {
		if c := s[i]; !letter(c) && !digit(c) && c != '_' && (c != '.' || !dots) {
			return false
		}
	}
	return s != "" && s[0] != '.' && s[len(s)-1] != '.'
}

// template checks a path template: `{name}` stands for one segment, a last
// `{name...}` for all that follow.
func (c *checker) template(path, t string) {
	if !strings.HasPrefix(t, "/") || !printable(t) || strings.ContainsAny(t, "?#") || len(t) > maxAPI {
		c.want(path, "must be a path like \"/customers/{id}\" (got %q)", cut(t, 80))
		return
	}
	segments := strings.Split(t[1:], "/")
	for i, s := range segments {
		if !strings.ContainsAny(s, "{}") {
			continue
		}
		name, ok := strings.CutPrefix(s, "{")
		if ok {
			name, ok = strings.CutSuffix(name, "}")
		}
		rest := false
		if ok {
			name, rest = strings.CutSuffix(name, "...")
		}
		switch {
		case !ok || !identifier(name):
			c.want(path, "each variable must be a whole segment like {id} (got %q)", cut(s, 64))
		case rest && i != len(segments)-1:
			c.want(path, "{%s...} must be the last segment", cut(name, 64))
		}
	}
}

// id checks the id of a TFIC, a candidate or a session.
func (c *checker) id(path, id string) {
	if len(id) == 0 || len(id) > 64 || !charset(id, "._-") {
		c.want(path, "must be 1 to 64 characters of [A-Za-z0-9._-] (got %q)", cut(id, 80))
	}
}

// duration checks that d lies in [low, high]; absent counts as zero.
func (c *checker) duration(path string, d *durationpb.Duration, low, high time.Duration) {
	if d == nil {
		if low > 0 {
			c.want(path, "must be a duration from %v to %v", low, high)
		}
		return
	}
	if d.CheckValid() != nil || d.AsDuration() < low || d.AsDuration() > high {
		c.want(path, "must be a duration from %v to %v (got %v)", low, high, d.AsDuration())
	}
}

// headerName checks the name of a header, as HTTP/2 spells it.
func (c *checker) headerName(path, name string) {
	if !token(name) || name != strings.ToLower(name) || len(name) > 256 {
		c.want(path, "must be a header name in lower case (got %q)", cut(name, 64))
	}
}

// headerValue checks that a value cannot end its header line.
func (c *checker) headerValue(path, value string) {
	if strings.ContainsAny(value, "\r\n\x00") {
		c.want(path, "must have no line break and no NUL")
	}
	if len(value) > 8<<10 {
		c.want(path, "must be at most 8 KiB (got %d bytes)", len(value))
	}
}

// TraceHeader says whether a header, of whatever case, carries trace context in one of the
// formats that sidecars understand and workloads write.
func TraceHeader(name string) bool {
	switch lower := strings.ToLower(name); lower {
	case "traceparent", "tracestate", "b3", "uber-trace-id":
		return true
	default:
		return strings.HasPrefix(lower, "x-b3-")
	}
}

// token is RFC 9110's token: method and header names.
func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; !letter(c) && !digit(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func identifier(s string) bool {
	return s != "" && !digit(s[0]) && charset(s, "_")
}

// charset reports whether s consists of letters, digits and the others.
func charset(s, others string) bool {
	for i := range len(s) {
		if c := s[i]; !letter(c) && !digit(c) && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }
