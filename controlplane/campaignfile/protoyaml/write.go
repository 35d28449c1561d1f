package protoyaml

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Marshal writes m as a YAML document: fields in the order of the .proto file,
// those that are not set left out.
func Marshal(m proto.Message) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(writeMessage(m.ProtoReflect())); err != nil {
		return nil, fmt.Errorf("write %s as YAML: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write %s as YAML: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return out.Bytes(), nil
}

// Sequence writes messages as one YAML list.
func Sequence[M proto.Message](list []M) ([]byte, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	for _, m := range list {
		node.Content = append(node.Content, writeMessage(m.ProtoReflect()))
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return nil, fmt.Errorf("write a list as YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write a list as YAML: %w", err)
	}
	return out.Bytes(), nil
}

func writeMessage(m protoreflect.Message) *yaml.Node {
	switch v := m.Interface().(type) {
	case *durationpb.Duration:
		return plain("!!str", formatDuration(v.AsDuration()))
	case *timestamppb.Timestamp:
		return plain("!!str", v.AsTime().UTC().Format(time.RFC3339Nano))
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		node.Content = append(node.Content, plain("!!str", f.JSONName()), writeField(m.Get(f), f))
	}
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	return node
}

func writeField(v protoreflect.Value, f protoreflect.FieldDescriptor) *yaml.Node {
	switch {
	case f.IsMap():
		node := &yaml.Node{Kind: yaml.MappingNode}
		keys := make(map[string]protoreflect.Value)
		var names []string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			keys[k.String()] = v
			names = append(names, k.String())
			return true
		})
		slices.Sort(names)
		for _, name := range names {
			node.Content = append(node.Content, text(name), writeOne(keys[name], f.MapValue()))
		}
		return node
	case f.IsList():
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.List().Len() {
			node.Content = append(node.Content, writeOne(v.List().Get(i), f))
		}
		if f.Message() == nil && f.Kind() != protoreflect.StringKind {
			node.Style = yaml.FlowStyle
		}
		return node
	}
	return writeOne(v, f)
}

func writeOne(v protoreflect.Value, f protoreflect.FieldDescriptor) *yaml.Node {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return writeMessage(v.Message())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			return plain("!!str", shortEnum(f.Enum(), e))
		}
		return plain("!!int", fmt.Sprint(v.Enum()))
	case protoreflect.BytesKind:
		return plain("!!str", base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BoolKind:
		return plain("!!bool", fmt.Sprint(v.Bool()))
	}
	return plain("!!int", fmt.Sprint(v.Interface()))
}

// plain is a scalar; the encoder quotes text that would read as something else.
func plain(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// text is a scalar that may hold anything.
func text(s string) *yaml.Node {
	n := plain("!!str", strings.ToValidUTF8(s, "\uFFFD"))
	switch {
	case !strings.ContainsFunc(s, control):
	case literal(s):
		n.Style = yaml.LiteralStyle
	default:
		// Left to itself, the encoder makes blocks that it cannot read.
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// literal reports whether a literal block can hold s as it is.
func literal(s string) bool {
	return s[0] > ' ' && !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') })
}

func control(r rune) bool {
	return r < ' ' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff
}

// formatDuration drops the zero parts that Go writes: 1m, not 1m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
