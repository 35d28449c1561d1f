package oracle

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// kind is a set of JSON types.
type kind uint8

const (
	kindNull kind = 1 << iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "bool", "number", "string", "array", "object"}

// String names the types in words: "null or string".
func (k kind) String() string {
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if bits.OnesCount8(uint8(k)) == 0 {
		return "absent"
	}
	return strings.Join(names, " or ")
}

func kindOf(v any) kind {
	switch v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case string:
		return kindString
	case []any:
		return kindArray
	case map[string]any:
		return kindObject
	}
	return kindNumber
}

// shape is what the values seen at one place of a document have in common. What
// varied between them is no part of it.
type shape struct {
	kinds kind
	// seen values; objects, arrays and strings among them.
	seen, objects, arrays, strings int
	// members of objects, and whether some object lacked one or had one more: such
	// objects are maps with keys of their own.
	members map[string]*shape
	open    bool
	// element is what all elements of all arrays have in common.
	element        *shape
	minLen, maxLen int
	emptyStrings   int
	// value of all scalars seen; varies once there were two.
	value  any
	varies bool
}

// learn adds a value.
func (s *shape) learn(v any) {
	k := kindOf(v)
	s.kinds |= k
	s.seen++
	switch v := v.(type) {
	case map[string]any:
		s.learnObject(v)
	case []any:
		if s.element == nil {
			s.element, s.minLen = &shape{}, len(v)
		}
		s.arrays++
		s.minLen, s.maxLen = min(s.minLen, len(v)), max(s.maxLen, len(v))
		for _, element := range v {
			s.element.learn(element)
		}
	default:
		if text, ok := v.(string); ok {
			s.strings++
			if text == "" {
				s.emptyStrings++
			}
		}
		if s.seen > 1 && s.value != v {
			s.varies = true
		}
		s.value = v
	}
}

func (s *shape) learnObject(v map[string]any) {
	if s.members == nil {
		s.members = make(map[string]*shape, len(v))
	}
	for name, member := range v {
		m, ok := s.members[name]
		if !ok {
			m = &shape{}
			s.members[name] = m
			s.open = s.open || s.objects > 0
		}
		m.learn(member)
	}
	s.open = s.open || len(v) < len(s.members)
	s.objects++
}

// comparison collects the differences of one document.
type comparison struct {
	ignore []path
	// values: scalars that never varied must have the same value.
	values bool
	lines  []string
	// detail has, for a line, what was there exactly.
	first string
}

func (c *comparison) report(at path, was, is, detail string) {
	line := at.String() + ": was " + was + ", is " + is
	if slices.Contains(c.lines, line) {
		return
	}
	if len(c.lines) == 0 {
		c.first = detail
	}
	c.lines = append(c.lines, line)
}

// compare reports where v has not the shape s.
func (c *comparison) compare(s *shape, v any, at path) {
	if at.matches(c.ignore) {
		return
	}
	k := kindOf(v)
	if s.kinds&k == 0 {
		c.report(at, s.describe(), describe(v), "")
		return
	}
	switch v := v.(type) {
	case map[string]any:
		c.object(s, v, at)
	case []any:
		c.array(s, v, at)
	default:
		if text, ok := v.(string); ok && text == "" && s.strings > 0 && s.emptyStrings == 0 {
			c.report(at, "non-empty string", "empty string", "")
			return
		}
		if c.values && !s.varies && s.value != v {
			c.report(at, scalar(s.value), scalar(v), "")
		}
	}
}

func (c *comparison) object(s *shape, v map[string]any, at path) {
	for _, name := range sorted(s.members) {
		member := s.members[name]
		value, ok := v[name]
		switch {
		case ok:
			c.compare(member, value, at.member(name))
		case member.seen == s.objects && !at.member(name).matches(c.ignore):
			c.report(at.member(name), member.describe(), "absent", "")
		}
	}
	if s.open {
		return
	}
	for _, name := range sorted(v) {
		if _, ok := s.members[name]; !ok && !at.member(name).matches(c.ignore) {
			c.report(at.member(name), "absent", describe(v[name]), "")
		}
	}
}

// Lengths are told apart only as far as clean runs agree: exactly where they never
// vary, and as empty or not where they do. How many items are missing is left out of
// the line, so that one fault that loses three items and one that loses two
// give one signature.
func (c *comparison) array(s *shape, v []any, at path) {
	switch constant := s.minLen == s.maxLen; {
	case s.minLen > 0 && len(v) == 0:
		c.report(at, "non-empty array", "empty array", "")
	case constant && len(v) < s.minLen:
		c.report(at, "array", "array with items missing", fmt.Sprintf("%d of %d items", len(v), s.minLen))
	case constant && len(v) > s.maxLen && s.maxLen > 0:
		c.report(at, "array", "array with items added", fmt.Sprintf("%d items instead of %d", len(v), s.maxLen))
	case constant && len(v) > 0 && s.maxLen == 0:
		c.report(at, "empty array", "non-empty array", "")
	}
	if s.element.seen == 0 {
		return // no clean run shows how an element looks
	}
	for i, element := range v {
		c.compare(s.element, element, at.element(i))
	}
}

// describe says what the values seen were: "array of 10 objects".
func (s *shape) describe() string {
	if s.kinds != kindArray {
		return s.kinds.String()
	}
	if s.maxLen == 0 {
		return "empty array"
	}
	text := "array"
	if s.minLen == s.maxLen {
		text += " of " + strconv.Itoa(s.minLen)
	} else if s.minLen > 0 {
		text = "non-empty array"
	}
	if kinds := s.element.kinds; bits.OnesCount8(uint8(kinds)) == 1 && kinds != kindNull {
		if s.minLen != s.maxLen {
			text += " of"
		}
		text += " " + plural(kinds.String(), s.minLen == 1 && s.maxLen == 1)
	}
	return text
}

func plural(noun string, one bool) string {
	if one {
		return noun
	}
	return noun + "s"
}

// describe says what a value is, as far as shape goes.
func describe(v any) string {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return "empty array"
		}
	case string:
		if v == "" {
			return "empty string"
		}
	}
	return kindOf(v).String()
}

func scalar(v any) string {
	const longest = 60
	text := fmt.Sprintf("%v", v)
	if s, ok := v.(string); ok {
		text = strconv.Quote(s)
	}
	if v == nil {
		text = "null"
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return text
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
