package workload

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrUnset says that a `${name}` has no value: the step that captures it did not
// run, or its answer has no such value.
var ErrUnset = errors.New("not captured")

// expand replaces each `${name}` in text by its value, given through escape.
func expand(text string, values map[string]string, escape func(string) string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			b.WriteString("${" + rest)
			return b.String(), nil
		}
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("${%s}: %w", name, ErrUnset)
		}
		b.WriteString(escape(value))
		text = after
	}
}

func verbatim(s string) string { return s }

// expandURL percent-encodes what it puts in, so that a value cannot end its path
// segment or query parameter. A reference that opens the URL stands for a whole one,
// as a Location header gives it, and goes in as it is.
func expandURL(text string, values map[string]string) (string, error) {
	head := ""
	if rest, ok := strings.CutPrefix(text, "${"); ok {
		if name, after, closed := strings.Cut(rest, "}"); closed {
			value, known := values[name]
			if !known {
				return "", fmt.Errorf("${%s}: %w", name, ErrUnset)
			}
			head, text = value, after
		}
	}
	tail, err := expand(text, values, func(s string) string {
		return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
	})
	return head + tail, err
}
