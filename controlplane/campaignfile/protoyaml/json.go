package protoyaml

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// FromJSON writes a JSON document as YAML and keeps the order of its fields,
// which is that of a struct, and so of its documentation.
func FromJSON(b []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("write JSON as YAML: %w", err)
	}
	plainStyle(&doc)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, fmt.Errorf("write JSON as YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write JSON as YAML: %w", err)
	}
	return out.Bytes(), nil
}

// plainStyle drops JSON's quotes and brackets; the encoder quotes what would
// read as something else.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = text(n.Value).Style
	}
	for _, c := range n.Content {
		plainStyle(c)
	}
}
