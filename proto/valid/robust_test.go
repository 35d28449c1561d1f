package valid

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// judge calls the function of a message's type.
func judge(m proto.Message) []Problem {
	switch m := m.(type) {
	case *tfiv1.Policy:
		return Policy(m)
	case *tfiv1.Activation:
		return append(ActivationIn(m, func(s string) int { return len(s) }), Activation(m)...)
	case *tfiv1.Tfic:
		return Tfic(m)
	case *tfiv1.EventPredicate:
		return EventPredicate(m)
	case *tfiv1.Fault:
		return Fault(m)
	case *campaignv1.CampaignSpec:
		return CampaignSpec(m)
	case *campaignv1.Replay:
		return Replay(m)
	case *solverv1.StartSessionRequest:
		return StartSessionRequest(m)
	case *solverv1.AddTracesRequest:
		return AddTracesRequest(m)
	case *solverv1.AddResultsRequest:
		return AddResultsRequest(m)
	case *solverv1.Candidate:
		return Candidate(m)
	}
	return nil
}

func kinds() []proto.Message {
	return []proto.Message{
		&tfiv1.Policy{}, &tfiv1.Activation{}, &tfiv1.Tfic{}, &tfiv1.EventPredicate{}, &tfiv1.Fault{},
		&campaignv1.CampaignSpec{}, &campaignv1.Replay{}, &solverv1.StartSessionRequest{}, &solverv1.AddTracesRequest{},
		&solverv1.AddResultsRequest{}, &solverv1.Candidate{},
	}
}

func TestNilIsJudgedLikeEmpty(t *testing.T) {
	for _, m := range kinds() {
		name := string(m.ProtoReflect().Descriptor().Name())
		t.Run(name, func(t *testing.T) {
			empty, none := judge(m), judge(m.ProtoReflect().Type().Zero().Interface())
			if len(empty) != len(none) {
				t.Errorf("nil has %d problems, empty %d", len(none), len(empty))
			}
		})
	}
}

// TestRandomMessages fills messages at random, nil elements and unknown enums
// included: no function panics, and each says the same thing twice.
func TestRandomMessages(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(string(kind.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := kind.ProtoReflect().New()
				fill(t, m, 0)
				first, second := judge(m.Interface()), judge(m.Interface())
				if len(first) != len(second) {
					t.Fatalf("%d problems, then %d", len(first), len(second))
				}
				for i := range first {
					if first[i] != second[i] {
						t.Fatalf("%v, then %v", first[i], second[i])
					}
					if first[i].Want == "" {
						t.Fatalf("%q says nothing", first[i].Path)
					}
				}
			})
		})
	}
}

func fill(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if depth > 7 || !rapid.Bool().Draw(t, "set") {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range rapid.IntRange(0, 2).Draw(t, "entries") {
				key := scalar(t, f.MapKey()).MapKey()
				if f.MapValue().Message() == nil {
					entries.Set(key, scalar(t, f.MapValue()))
				} else {
					fill(t, entries.Mutable(key).Message(), depth+1)
				}
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range rapid.IntRange(0, 3).Draw(t, "items") {
				switch {
				case f.Message() == nil:
					list.Append(scalar(t, f))
				case rapid.IntRange(0, 9).Draw(t, "nil") == 0:
					list.Append(protoreflect.ValueOfMessage(list.NewElement().Message().Type().Zero()))
				default:
					fill(t, list.AppendMutable().Message(), depth+1)
				}
			}
		case f.Message() != nil:
			fill(t, m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, scalar(t, f))
		}
	}
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "GET /a", "a.B/C", "/a/{id}", "${trial.id}", "${", "$.a[*]", "\xff\r\n"}), rapid.String())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 5).Draw(t, "enum")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts.Draw(t, "string"))
	}
	t.Fatalf("no generator for %v", f.Kind())
	return protoreflect.Value{}
}

// FuzzMessages decodes the input as each kind of message.
func FuzzMessages(f *testing.F) {
	for _, kind := range kinds() {
		b, err := proto.Marshal(kind)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x0a\x01a\x12\x00\x4a\x0b\x0a\x07\x01\x02\x03\x04\x05\x06\x07\x22\x00"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, kind := range kinds() {
			if proto.Unmarshal(b, kind) == nil {
				judge(kind)
			}
		}
	})
}
