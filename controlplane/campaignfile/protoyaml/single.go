package protoyaml

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Single refuses a file in which another document follows the first, which readers of YAML
// pass over. Whether the documents are good is not judged, and `---` with nothing after it is
// no document.
func Single(b []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	var first yaml.Node
	if d.Decode(&first) != nil {
		return nil
	}
	for {
		var next yaml.Node
		if d.Decode(&next) != nil { // the end, or what is no YAML
			return nil
		}
		if len(next.Content) == 1 && next.Content[0].Tag != "!!null" {
			return fmt.Errorf("must be one YAML document: another one has line %d", next.Content[0].Line)
		}
	}
}
