package traces

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// unmarshalOTLPJSON decodes OTLP's JSON form into m. It differs from protobuf's
// JSON in that trace and span ids are hex, not base64 (OTLP specification, JSON
// Protobuf Encoding).
func unmarshalOTLPJSON(b []byte, m proto.Message) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 64-bit integers may come as numbers
	var doc any
	if err := d.Decode(&doc); err != nil {
		return err
	}
	if err := idsToBase64(doc); err != nil {
		return err
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}

// idsToBase64 rewrites ids in place. Every key in OTLP's JSON names a field
// (attributes are lists of key and value), so a key tells an id for certain.
func idsToBase64(doc any) error {
	switch doc := doc.(type) {
	case []any:
		for _, item := range doc {
			if err := idsToBase64(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, value := range doc {
			switch name {
			case "traceId", "spanId", "parentSpanId":
				text, ok := value.(string)
				id, err := hex.DecodeString(text)
				if !ok || err != nil {
					return fmt.Errorf("%s: hex digits are wanted, not %v", name, value)
				}
				doc[name] = base64.StdEncoding.EncodeToString(id)
			default:
				if err := idsToBase64(value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
