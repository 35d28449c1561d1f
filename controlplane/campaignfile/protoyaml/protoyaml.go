// Package protoyaml reads and writes protobuf messages as YAML for people.
//
// It is protobuf's JSON mapping (camelCase names; the names of the .proto file
// are read too) with three differences, so that a file reads well:
//
//   - an enum's value may be written without its type, in lower case: `resp` for
//     PHASE_RESP, `caller` for PLACEMENT_CALLER;
//   - a duration is written as Go does: `1.5s`, `500ms`, `2m`;
//   - where the caller gives a [Shorthand] for a message type, a plain text may
//     stand for the message.
//
// Reading is strict: unknown fields, fields given twice, and values of the wrong
// kind are all reported, each with its path and line.
package protoyaml

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sequencefi/sequencefi/proto/valid"
)

// maxNodes bounds a document after its aliases are expanded.
const maxNodes = 200_000

// Shorthand makes a message of a plain text. Its error says what would be right.
type Shorthand func(text string) (proto.Message, error)

// Options of reading.
type Options struct {
	// Shorthands by message name, as "sequencefi.campaign.v1.NamedFault".
	Shorthands map[protoreflect.FullName]Shorthand
}

// Lines tells where in a file a field stands.
type Lines map[string]int

// Of returns the line of the field at path, or of the nearest field around it;
// 0 if there is none.
func (l Lines) Of(path string) int {
	for {
		if n, ok := l[path]; ok {
			return n
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return l[""]
		}
		path = path[:i]
	}
}

// Locate adds the line to each problem. It changes its argument and returns it.
func (l Lines) Locate(problems []valid.Problem) []valid.Problem {
	for i, p := range problems {
		if n := l.Of(p.Path); n > 0 {
			problems[i].Want = fmt.Sprintf("%s (line %d)", p.Want, n)
		}
	}
	return problems
}

// enumPrefix is what the names of an enum's values begin with.
func enumPrefix(e protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(e.Values().Get(0).Name()), "UNSPECIFIED")
}

// shortEnum is the friendly form of an enum's value.
func shortEnum(e protoreflect.EnumDescriptor, v protoreflect.EnumValueDescriptor) string {
	short := strings.TrimPrefix(string(v.Name()), enumPrefix(e))
	return strings.ReplaceAll(strings.ToLower(short), "_", "-")
}

// EnumNames returns the friendly names of an enum's values, the unspecified one
// left out.
func EnumNames(e protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 || !strings.HasSuffix(string(v.Name()), "UNSPECIFIED") {
			names = append(names, shortEnum(e, v))
		}
	}
	return names
}
