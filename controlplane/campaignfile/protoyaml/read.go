package protoyaml

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sequencefi/sequencefi/proto/valid"
)

const (
	durationName  = "google.protobuf.Duration"
	timestampName = "google.protobuf.Timestamp"
)

// Unmarshal reads one YAML document into m, which it resets first.
// Errors: a [*valid.InvalidError] that lists every problem.
func Unmarshal(b []byte, m proto.Message, o Options) (Lines, error) {
	proto.Reset(m)
	r := reader{options: o, lines: make(Lines)}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, valid.Error([]valid.Problem{{Want: "must be YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}})
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, valid.Error([]valid.Problem{{Want: "must be one YAML document with fields (it is empty)"}})
	}
	if err := Single(b); err != nil {
		return nil, valid.Error([]valid.Problem{{Want: err.Error()}})
	}
	r.message("", doc.Content[0], m.ProtoReflect())
	if r.nodes > maxNodes {
		r.problems = []valid.Problem{{Want: fmt.Sprintf("must have at most %d values", maxNodes)}}
	}
	return r.lines, valid.Error(r.problems)
}

type reader struct {
	options  Options
	lines    Lines
	problems []valid.Problem
	nodes    int
}

func (r *reader) want(path string, n *yaml.Node, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.problems = append(r.problems, valid.Problem{Path: path, Want: fmt.Sprintf("%s (line %d)", text, n.Line)})
}

// enter follows an alias, notes the line, and stops at a document whose aliases
// multiply.
func (r *reader) enter(path string, n *yaml.Node) (*yaml.Node, bool) {
	for range 8 {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	if _, ok := r.lines[path]; !ok {
		r.lines[path] = n.Line
	}
	r.nodes++
	return n, r.nodes <= maxNodes && n.Kind != yaml.AliasNode
}

func (r *reader) message(path string, n *yaml.Node, m protoreflect.Message) {
	n, ok := r.enter(path, n)
	if !ok {
		return
	}
	name := m.Descriptor().FullName()
	switch {
	case name == durationName:
		r.duration(path, n, m)
		return
	case name == timestampName:
		r.timestamp(path, n, m)
		return
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && r.options.Shorthands[name] != nil:
		made, err := r.options.Shorthands[name](n.Value)
		if err != nil {
			r.want(path, n, "%v", err)
			return
		}
		proto.Merge(m.Interface(), made)
		return
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		// `abort:` with nothing behind it is an empty message.
		return
	case n.Kind != yaml.MappingNode:
		r.want(path, n, "must have fields (%s), not %s", fieldNames(m.Descriptor()), kindName(n))
		return
	}
	given := make(map[protoreflect.Name]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f := fieldByName(m.Descriptor(), key.Value)
		if f == nil {
			r.want(join(path, key.Value), key, "is no field%s; there are %s", guess(m.Descriptor(), key.Value), fieldNames(m.Descriptor()))
			continue
		}
		at := join(path, f.JSONName())
		if given[f.Name()] {
			r.want(at, key, "must be given once")
			continue
		}
		given[f.Name()] = true
		if o := f.ContainingOneof(); o != nil {
			if other := m.WhichOneof(o); other != nil {
				r.want(at, key, "must stand alone: %s is given too", other.JSONName())
				continue
			}
		}
		r.lines[at] = key.Line
		r.field(at, value, m, f)
	}
}

func (r *reader) field(path string, n *yaml.Node, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		r.mapping(path, n, m, f)
	case f.IsList():
		n, ok := r.enter(path, n)
		if !ok || n.Tag == "!!null" {
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.want(path, n, "must be a list, not %s", kindName(n))
			return
		}
		list := m.Mutable(f).List()
		for i, c := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			if f.Message() != nil {
				r.message(at, c, list.AppendMutable().Message())
			} else if v, ok := r.scalar(at, c, f); ok {
				list.Append(v)
			}
		}
	case f.Message() != nil:
		r.message(path, n, m.Mutable(f).Message())
	default:
		if v, ok := r.scalar(path, n, f); ok {
			m.Set(f, v)
		}
	}
}

func (r *reader) mapping(path string, n *yaml.Node, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	n, ok := r.enter(path, n)
	if !ok || n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.want(path, n, "must map names to values, not %s", kindName(n))
		return
	}
	entries := m.Mutable(f).Map()
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "[" + strconv.Quote(key.Value) + "]"
		r.lines[at] = key.Line
		k := protoreflect.ValueOfString(key.Value).MapKey()
		switch {
		case f.MapKey().Kind() != protoreflect.StringKind || f.MapValue().Message() != nil:
			r.want(at, key, "cannot be written as YAML")
		case entries.Has(k):
			r.want(at, key, "must be given once")
		default:
			if v, ok := r.scalar(at, value, f.MapValue()); ok {
				entries.Set(k, v)
			}
		}
	}
}

func (r *reader) scalar(path string, n *yaml.Node, f protoreflect.FieldDescriptor) (v protoreflect.Value, ok bool) {
	n, ok = r.enter(path, n)
	if !ok {
		return v, false
	}
	bad := func(want string) (protoreflect.Value, bool) {
		r.want(path, n, "must be %s, not %s", want, kindName(n))
		return protoreflect.Value{}, false
	}
	if n.Kind != yaml.ScalarNode {
		return bad(scalarName(f))
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		if n.Tag != "!!str" && n.Tag != "!!timestamp" && n.Tag != "!!merge" {
			return bad("text (put it in quotes)")
		}
		return protoreflect.ValueOfString(n.Value), true
	case protoreflect.BytesKind:
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return bad("bytes in base64")
		}
		return protoreflect.ValueOfBytes(b), true
	case protoreflect.BoolKind:
		if n.Tag != "!!bool" {
			return bad("true or false")
		}
		return protoreflect.ValueOfBool(strings.EqualFold(n.Value, "true")), true
	case protoreflect.EnumKind:
		if e := enumByName(f.Enum(), n.Value); e != nil {
			return protoreflect.ValueOfEnum(e.Number()), true
		}
		return bad("one of " + strings.Join(EnumNames(f.Enum()), ", "))
	case protoreflect.Uint32Kind:
		if u, err := strconv.ParseUint(n.Value, 0, 32); err == nil && n.Tag == "!!int" {
			return protoreflect.ValueOfUint32(uint32(u)), true
		}
	case protoreflect.Int32Kind:
		if i, err := strconv.ParseInt(n.Value, 0, 32); err == nil && n.Tag == "!!int" {
			return protoreflect.ValueOfInt32(int32(i)), true
		}
	}
	return bad(scalarName(f))
}

func (r *reader) duration(path string, n *yaml.Node, m protoreflect.Message) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		r.want(path, n, "must be a duration like 10s, 500ms or 2m, not %s", kindName(n))
		return
	}
	proto.Merge(m.Interface(), durationpb.New(d))
}

func (r *reader) timestamp(path string, n *yaml.Node, m protoreflect.Message) {
	at, err := time.Parse(time.RFC3339Nano, n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		r.want(path, n, "must be a time like 2026-01-31T12:00:00Z, not %s", kindName(n))
		return
	}
	proto.Merge(m.Interface(), timestamppb.New(at))
}

func fieldByName(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

func enumByName(e protoreflect.EnumDescriptor, name string) protoreflect.EnumValueDescriptor {
	if v := e.Values().ByName(protoreflect.Name(name)); v != nil {
		return v
	}
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); shortEnum(e, v) == strings.ReplaceAll(strings.ToLower(name), "_", "-") {
			return v
		}
	}
	return nil
}

func fieldNames(d protoreflect.MessageDescriptor) string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// guess names the field that was probably meant.
func guess(d protoreflect.MessageDescriptor, name string) string {
	best, least := "", 3
	for i := range d.Fields().Len() {
		candidate := d.Fields().Get(i).JSONName()
		if n := distance(strings.ToLower(candidate), strings.ToLower(name)); n < least {
			best, least = candidate, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is Levenshtein's, good enough for names; long ones are cut.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}

func scalarName(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		return "text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Uint32Kind:
		return "a whole number from 0"
	case protoreflect.Int32Kind:
		return "a whole number"
	case protoreflect.EnumKind:
		return "one of " + strings.Join(EnumNames(f.Enum()), ", ")
	}
	return "a value"
}

// kindName describes what was found.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	v := n.Value
	if len(v) > 64 {
		v = v[:64] + "…"
	}
	return strconv.Quote(v)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
