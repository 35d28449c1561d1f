package trace

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ErrFormat says that bytes are no traces in a format that [Read] knows.
var ErrFormat = errors.New("not traces: want OTLP as protobuf or JSON, or Jaeger's UI JSON ({\"data\": [...]})")

// Format is how traces are written down.
type Format uint8

// The formats.
const (
	FormatUnknown Format = iota
	// FormatOTLP is a serialised TracesData or ExportTraceServiceRequest.
	FormatOTLP
	// FormatOTLPJSON is the same as JSON with ids in hex, one document or several
	// (as collectors write files), or in Jaeger's api_v3 envelope {"result": …}.
	FormatOTLPJSON
	// FormatJaeger is the JSON of Jaeger's UI and its HTTP API.
	FormatJaeger
)

// String names the format.
func (f Format) String() string {
	return [...]string{"unknown", "OTLP", "OTLP JSON", "Jaeger JSON"}[f]
}

// Read reads traces in any format it knows and says which one it was.
// Errors: [ErrFormat]; the text says where the bytes went wrong.
func Read(b []byte) (*tracev1.TracesData, Format, error) {
	text := bytes.TrimLeft(b, " \t\r\n\xef\xbb\xbf")
	if len(text) == 0 {
		return nil, FormatUnknown, fmt.Errorf("%w: empty", ErrFormat)
	}
	if text[0] == '{' || text[0] == '[' {
		return readJSON(text)
	}
	td := &tracev1.TracesData{}
	if err := proto.Unmarshal(b, td); err != nil {
		return nil, FormatUnknown, fmt.Errorf("%w: %v", ErrFormat, err) //nolint:errorlint // The cause is no error of ours to test for.
	}
	if len(td.GetResourceSpans()) == 0 {
		return nil, FormatUnknown, fmt.Errorf("%w: protobuf without resource_spans", ErrFormat)
	}
	return td, FormatOTLP, nil
}

// readJSON reads all documents that follow each other.
func readJSON(b []byte) (*tracev1.TracesData, Format, error) {
	out := &tracev1.TracesData{}
	format := FormatUnknown
	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		var doc json.RawMessage
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, FormatUnknown, fmt.Errorf("%w: at byte %d: %v", ErrFormat, dec.InputOffset(), err) //nolint:errorlint // See Read.
		}
		td, f, err := readDocument(doc)
		if err != nil {
			return nil, FormatUnknown, err
		}
		format = f
		out.ResourceSpans = append(out.ResourceSpans, td.GetResourceSpans()...)
	}
	return out, format, nil
}

func readDocument(doc json.RawMessage) (*tracev1.TracesData, Format, error) {
	var head struct {
		Data   json.RawMessage `json:"data"`
		Result json.RawMessage `json:"result"`
		Spans  json.RawMessage `json:"resourceSpans"`
		Snake  json.RawMessage `json:"resource_spans"`
	}
	if err := json.Unmarshal(doc, &head); err != nil {
		return nil, FormatUnknown, fmt.Errorf("%w: %s", ErrFormat, plainJSON(err))
	}
	switch {
	case head.Data != nil:
		td, err := readJaeger(head.Data)
		return td, FormatJaeger, err
	case head.Result != nil:
		td, err := readOTLPJSON(head.Result)
		return td, FormatOTLPJSON, err
	case head.Spans != nil || head.Snake != nil:
		td, err := readOTLPJSON(doc)
		return td, FormatOTLPJSON, err
	}
	return nil, FormatUnknown, fmt.Errorf("%w: no key data, result or resourceSpans", ErrFormat)
}

// plainJSON says what is wrong with a document without a word of the types that it is
// read into.
func plainJSON(err error) string {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	what := "found " + wrong.Value
	if wrong.Field != "" {
		what = wrong.Field + ": " + what
	}
	return what
}

// readOTLPJSON differs from protojson in that ids are in hex.
func readOTLPJSON(doc json.RawMessage) (*tracev1.TracesData, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFormat, err) //nolint:errorlint // See Read.
	}
	if err := hexToBase64(tree, 0); err != nil {
		return nil, err
	}
	again, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFormat, err) //nolint:errorlint // See Read.
	}
	td := &tracev1.TracesData{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(again, td); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFormat, err) //nolint:errorlint // See Read.
	}
	return td, nil
}

var idFields = map[string]int{
	"traceId": 16, "trace_id": 16,
	"spanId": 8, "span_id": 8,
	"parentSpanId": 8, "parent_span_id": 8,
}

// hexToBase64 rewrites ids for protojson. Base64 of an id is shorter than its
// hex, so ids that a protojson writer made are told apart by length.
func hexToBase64(node any, depth int) error {
	if depth > 64 {
		return fmt.Errorf("%w: nested deeper than 64", ErrFormat)
	}
	switch node := node.(type) {
	case []any:
		for _, e := range node {
			if err := hexToBase64(e, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, v := range node {
			size, isID := idFields[name]
			s, isText := v.(string)
			if !isID || !isText {
				if err := hexToBase64(v, depth+1); err != nil {
					return err
				}
				continue
			}
			if s == "" || len(s) == base64.StdEncoding.EncodedLen(size) {
				continue
			}
			raw, err := hex.DecodeString(s)
			if err != nil || len(raw) != size {
				return fmt.Errorf("%w: %s %q: want %d hex digits", ErrFormat, name, s, 2*size)
			}
			node[name] = base64.StdEncoding.EncodeToString(raw)
		}
	}
	return nil
}
