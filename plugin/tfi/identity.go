package tfi

import "strings"

// Source says where an [Identity]'s value stands in the request.
type Source uint8

// The sources.
const (
	SourcePath   Source = 1 // the raw path without its query
	SourceQuery  Source = 2 // the named query parameter's first value, percent-decoded
	SourceHeader Source = 3 // the named header or gRPC metadata entry
)

// Identity narrows an op to requests that carry a value.
type Identity struct {
	Source Source
	// Name of the query parameter or, in lower case, of the header.
	Name string
	// Value is compared byte by byte.
	Value string
	// Prefix: the request's value need only begin with Value.
	Prefix bool
}

// matchAll reports whether the request carries all values of ids.
func matchAll(ids []Identity, r *Request) bool {
	for i := range ids {
		if !ids[i].match(r) {
			return false
		}
	}
	return true
}

func (id *Identity) match(r *Request) bool {
	switch id.Source {
	case SourcePath:
		path, _, _ := strings.Cut(r.Path, "?")
		return id.matchValue(path)
	case SourceQuery:
		_, query, _ := strings.Cut(r.Path, "?")
		return id.matchQuery(query)
	case SourceHeader:
		v, ok := r.Headers.Header(id.Name)
		return ok && id.matchValue(v)
	}
	return false
}

func (id *Identity) matchValue(v string) bool {
	if id.Prefix {
		return strings.HasPrefix(v, id.Value)
	}
	return v == id.Value
}

// matchQuery compares in place: decoding into a new string would allocate on
// every request of a trial.
func (id *Identity) matchQuery(query string) bool {
	query, _, _ = strings.Cut(query, "#")
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if sameDecoded(name, id.Name, false) {
			return sameDecoded(value, id.Value, id.Prefix)
		}
	}
	return false
}

// sameDecoded reports whether the percent-decoded form of s is want, or begins
// with it. An escape that is none stands for itself.
func sameDecoded(s, want string, prefix bool) bool {
	for want != "" {
		if s == "" {
			return false
		}
		c, n := s[0], 1
		switch {
		case c == '+':
			c = ' '
		case c == '%' && len(s) >= 3:
			hi, ok1 := hexDigit(s[1])
			lo, ok2 := hexDigit(s[2])
			if ok1 && ok2 {
				c, n = hi<<4|lo, 3
			}
		}
		if c != want[0] {
			return false
		}
		s, want = s[n:], want[1:]
	}
	return prefix || s == ""
}
