package tfi

import (
	"slices"
	"strings"
)

// template folds paths that match it into one api.
type template struct {
	text     string
	segments []string // `{}` stands for any one segment
	// rest: the last segment stands for all that follow.
	rest     bool
	literals int
}

const anySegment = "{}"

// parseTemplate reads `/path/{name}/rest`; a last `{name...}` stands for all
// that follow. It returns what would be right if text is no template.
func parseTemplate(text string) (t template, want string) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?# ") {
		return template{}, "must be a path that begins with / and has no query"
	}
	t.text = text
	parts := strings.Split(text[1:], "/")
	for i, s := range parts {
		name, placeholder := strings.CutPrefix(s, "{")
		if !placeholder {
			if strings.ContainsAny(s, "{}") {
				return template{}, "must have braces only around a whole segment"
			}
			t.literals++
			t.segments = append(t.segments, s)
			continue
		}
		name, closed := strings.CutSuffix(name, "}")
		name, rest := strings.CutSuffix(name, "...")
		switch {
		case !closed || name == "" || strings.ContainsAny(name, "{}"):
			return template{}, "must have segments of the form {name}"
		case rest && i != len(parts)-1:
			return template{}, "must have {name...} only at its end"
		}
		t.rest = rest
		t.segments = append(t.segments, anySegment)
	}
	return t, ""
}

// sortTemplates orders ts by precedence: most literal segments first, and among
// equals as they were given.
func sortTemplates(ts []template) {
	slices.SortStableFunc(ts, func(a, b template) int { return b.literals - a.literals })
}

// match reports whether path, without its query, has the form of t.
func (t *template) match(path string) bool {
	path, ok := strings.CutPrefix(path, "/")
	if !ok {
		return false
	}
	for i, want := range t.segments {
		last := i == len(t.segments)-1
		if last && t.rest {
			return true
		}
		segment, after, more := strings.Cut(path, "/")
		if more == last || (want == anySegment && segment == "") || (want != anySegment && want != segment) {
			return false
		}
		path = after
	}
	return true
}

// appendAPI appends the api of a request: for gRPC `package.Service/Method`,
// for HTTP the method and the folded path. The template with the most literal
// segments wins; where none matches, segments that look like ids become `{id}`.
func appendAPI(dst []byte, templates []template, r *Request) []byte {
	start := len(dst)
	path, _, _ := strings.Cut(r.Path, "?")
	path, _, _ = strings.Cut(path, "#")
	if r.GRPC {
		return clip(append(dst, strings.TrimPrefix(path, "/")...), start)
	}
	dst = append(dst, r.Method...)
	dst = append(dst, ' ')
	for i := range templates {
		if templates[i].match(path) {
			return clip(append(dst, templates[i].text...), start)
		}
	}
	for len(dst)-start < maxAPI {
		segment, after, more := strings.Cut(path, "/")
		if looksLikeID(segment) {
			segment = "{id}"
		}
		dst = append(dst, segment...)
		if !more {
			break
		}
		dst = append(dst, '/')
		path = after
	}
	return clip(dst, start)
}

func clip(dst []byte, start int) []byte {
	return dst[:min(len(dst), start+maxAPI)]
}

// DefaultAPI returns the api of an HTTP request that no template matches: its
// method and its path, without query, with `{id}` for each segment that looks like
// one (a number, a UUID, long hex); cut at 1,024 bytes.
func DefaultAPI(method, path string) string {
	return string(appendAPI(nil, nil, &Request{Method: method, Path: path}))
}

// looksLikeID tells numbers, UUIDs and long hex (at least 8 digits, not all
// letters: "feedface" alone would be a word) from names.
func looksLikeID(s string) bool {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		for i := range len(s) {
			if _, ok := hexDigit(s[i]); !ok && i != 8 && i != 13 && i != 18 && i != 23 {
				return false
			}
		}
		return true
	}
	digits := 0
	for i := range len(s) {
		v, ok := hexDigit(s[i])
		if !ok {
			return false
		}
		if v < 10 {
			digits++
		}
	}
	return digits > 0 && (digits == len(s) || len(s) >= 8)
}
