package oracle

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// path is where a value stands in a document: `$.items[*].id`.
type path []segment

// segment is a member's name, or an element's index.
type segment struct {
	name  string
	index int // -1: a member
	any   bool
}

// member and element return the path one level down. It is valid until the next such
// call on p: a copy for each level would be quadratic in how deep a document is.
func (p path) member(name string) path { return append(p, segment{name: name, index: -1}) }

func (p path) element(i int) path { return append(p, segment{index: i}) }

// String writes the path with `[*]` for every index: elements of one array are one
// place.
func (p path) String() string {
	var b strings.Builder
	b.WriteByte('$')
	for _, s := range p {
		switch {
		case s.index >= 0 || s.any:
			b.WriteString("[*]")
		case strings.ContainsAny(s.name, ".[] \n") || s.name == "":
			b.WriteString("[" + strconv.Quote(s.name) + "]")
		default:
			b.WriteString("." + s.name)
		}
	}
	return b.String()
}

// matches says whether the path, or a place around it, is among patterns.
func (p path) matches(patterns []path) bool {
	for _, pattern := range patterns {
		if len(pattern) <= len(p) && pattern.covers(p[:len(pattern)]) {
			return true
		}
	}
	return false
}

func (p path) covers(other path) bool {
	for i, s := range p {
		o := other[i]
		switch {
		case s.any && o.index >= 0:
		case s.index != o.index || s.name != o.name:
			return false
		}
	}
	return true
}

// parsePath reads `$` followed by `.name`, `[n]` and `[*]`, as valid.Oracle lets
// them through.
func parsePath(text string) path {
	p := path{}
	rest := strings.TrimPrefix(text, "$")
	for rest != "" {
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			index, after, _ := strings.Cut(inner, "]")
			rest = after
			if index == "*" {
				p = append(p, segment{index: -1, any: true})
				continue
			}
			n, err := strconv.Atoi(index)
			if errors.Is(err, strconv.ErrRange) {
				// No document has such an element. The path without it would cover all
				// that is around it.
				n, err = math.MaxInt, nil
			}
			if err != nil {
				return p
			}
			p = append(p, segment{index: n})
			continue
		}
		rest = strings.TrimPrefix(rest, ".")
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		p = append(p, segment{name: rest[:end], index: -1})
		rest = rest[end:]
	}
	return p
}
