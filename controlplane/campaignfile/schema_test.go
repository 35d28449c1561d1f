package campaignfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestSchemaMatchesTheContract makes the schema of the .proto files: their
// fields from the descriptors, the descriptions from their comments.
func TestSchemaMatchesTheContract(t *testing.T) {
	s := schemaWriter{comments: make(map[string]string), defs: make(map[string]any)}
	for _, file := range []string{"tfi/v1/tfic.proto", "campaign/v1/campaign.proto"} {
		s.readComments(t, "../../proto/sequencefi/"+file)
	}
	root := (&campaignv1.CampaignSpec{}).ProtoReflect().Descriptor()
	top := s.message(root)
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "SequenceFI campaign"
	top["required"] = []string{"name", "workload"}
	top["$defs"] = s.defs
	want := marshal(t, top)
	if *update {
		if err := os.WriteFile("campaign.schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(Schema())); diff != "" {
		t.Errorf("run go test -update ./controlplane/campaignfile; -want +got:\n%s", diff)
	}
}

type schemaWriter struct {
	comments map[string]string // by "Message" and "Message.field"
	defs     map[string]any
}

var (
	protoBlock = regexp.MustCompile(`^\s*(?:message|enum) (\w+) \{`)
	protoField = regexp.MustCompile(`^\s*(?:repeated )?[\w.<>, ]+ (\w+) = \d+;`)
)

// readComments finds what stands above messages and fields.
func (s *schemaWriter) readComments(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var block string
	var comment []string
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		line := lines.Text()
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			comment = append(comment, strings.TrimSpace(text))
			continue
		}
		if m := protoBlock.FindStringSubmatch(line); m != nil {
			block = m[1]
			s.comments[block] = strings.Join(comment, " ")
		} else if m := protoField.FindStringSubmatch(line); m != nil {
			s.comments[block+"."+m[1]] = strings.Join(comment, " ")
		}
		comment = nil
	}
}

func (s *schemaWriter) message(m protoreflect.MessageDescriptor) map[string]any {
	properties := make(map[string]any)
	oneofs := make(map[string][]any)
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		p := s.field(f)
		if c := s.comments[string(m.Name())+"."+string(f.Name())]; c != "" {
			p["description"] = c
		}
		properties[f.JSONName()] = p
		if o := f.ContainingOneof(); o != nil {
			oneofs[string(o.Name())] = append(oneofs[string(o.Name())], map[string]any{"required": []string{f.JSONName()}})
		}
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if c := s.comments[string(m.Name())]; c != "" {
		out["description"] = c
	}
	for i := range m.Oneofs().Len() {
		out["oneOf"] = oneofs[string(m.Oneofs().Get(i).Name())]
	}
	return out
}

func (s *schemaWriter) field(f protoreflect.FieldDescriptor) map[string]any {
	switch {
	case f.IsMap():
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	case f.IsList():
		return map[string]any{"type": "array", "items": s.one(f)}
	}
	return s.one(f)
}

func (s *schemaWriter) one(f protoreflect.FieldDescriptor) map[string]any {
	switch f.Kind() {
	case protoreflect.StringKind:
		return map[string]any{"type": "string"}
	case protoreflect.BytesKind:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.Uint32Kind:
		return map[string]any{"type": "integer", "minimum": 0}
	case protoreflect.EnumKind:
		return map[string]any{"enum": protoyaml.EnumNames(f.Enum())}
	}
	m := f.Message()
	if m.FullName() == "google.protobuf.Duration" {
		return map[string]any{"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$`}
	}
	name := string(m.Name())
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = nil // a message may contain itself
		def := s.message(m)
		if Options().Shorthands[m.FullName()] != nil {
			def = map[string]any{"anyOf": []any{
				map[string]any{"type": "string", "pattern": `^(error( [0-9]{3})?|abort|drop( [0-9].*)?|delay [0-9].*)$`},
				def,
			}}
		}
		s.defs[name] = def
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExampleFitsTheSchema(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		var doc any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return err
		}
		return fits(root, root, doc, "$")
	}
	if err := check(Example()); err != nil {
		t.Error(err)
	}
	// The checker below must be able to refuse.
	for _, bad := range []string{
		"workload: {}",
		"name: 1\nworkload: {}",
		"name: a\nworkload: {stepz: []}",
		"name: a\nworkload: {steps: [{http: {}, command: {}}]}",
		"name: a\nworkload: {}\nfaults: {phases: [request]}",
		"name: a\nworkload: {}\nfaults: {faults: [explode]}",
		"name: a\nworkload: {}\nbudget: {duration: soon}",
	} {
		if check([]byte(bad)) == nil {
			t.Errorf("the schema takes %q", bad)
		}
	}
}

// fits judges a document by the part of JSON Schema that the schema uses.
func fits(root, schema map[string]any, doc any, path string) error {
	if ref, ok := schema["$ref"].(string); ok {
		defs, _ := root["$defs"].(map[string]any)
		def, ok := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: no definition %s", path, ref)
		}
		return fits(root, def, doc, path)
	}
	if choices, ok := schema["anyOf"].([]any); ok && count(root, choices, doc, path) == 0 {
		return fmt.Errorf("%s: fits nothing of anyOf", path)
	}
	if one, ok := schema["oneOf"].([]any); ok && count(root, one, doc, path) != 1 {
		return fmt.Errorf("%s: does not fit exactly one of oneOf", path)
	}
	if enum, ok := schema["enum"].([]any); ok {
		for _, v := range enum {
			if v == doc {
				return nil
			}
		}
		return fmt.Errorf("%s: %v is none of %v", path, doc, enum)
	}
	object, isObject := doc.(map[string]any)
	list, isList := doc.([]any)
	text, isText := doc.(string)
	number, isNumber := doc.(float64)
	_, isBool := doc.(bool)
	ok := map[any]bool{
		nil: true, "object": isObject, "array": isList, "string": isText, "boolean": isBool,
		"integer": isNumber && number == float64(int64(number)),
	}
	if !ok[schema["type"]] {
		return fmt.Errorf("%s: %v is no %v", path, doc, schema["type"])
	}
	if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(text) {
		return fmt.Errorf("%s: %q does not match %s", path, text, p)
	}
	if low, ok := schema["minimum"].(float64); ok && number < low {
		return fmt.Errorf("%s: %v is below %v", path, number, low)
	}
	for i, v := range list {
		items, _ := schema["items"].(map[string]any)
		if err := fits(root, items, v, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; isObject && !ok {
			return fmt.Errorf("%s: %v is missing", path, name)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, v := range object {
		part, ok := properties[name].(map[string]any)
		if !ok {
			part, ok = schema["additionalProperties"].(map[string]any)
		}
		if !ok {
			if schema["additionalProperties"] == false {
				return fmt.Errorf("%s: there is no %s", path, name)
			}
			continue
		}
		if err := fits(root, part, v, path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func count(root map[string]any, schemas []any, doc any, path string) int {
	n := 0
	for _, s := range schemas {
		if part, ok := s.(map[string]any); ok && fits(root, part, doc, path) == nil {
			n++
		}
	}
	return n
}
