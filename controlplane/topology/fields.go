package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unknownFields reports every field of the JSON document that a [Topology] has
// not. A decoder that refuses unknown fields stops at the first one.
func unknownFields(j []byte) []Problem {
	var doc any
	if json.Unmarshal(j, &doc) != nil {
		return nil
	}
	return walkFields(doc, reflect.TypeFor[Topology](), "")
}

func walkFields(doc any, t reflect.Type, path string) []Problem {
	var problems []Problem
	switch t.Kind() {
	case reflect.Slice:
		list, _ := doc.([]any)
		for i, item := range list {
			problems = append(problems, walkFields(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Struct:
		object, _ := doc.(map[string]any)
		known := map[string]reflect.Type{}
		var names []string
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known[name] = f.Type
			names = append(names, name)
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			ft, ok := known[name]
			if !ok {
				problems = append(problems, Problem{Path: at, Want: "unknown field; there are " + strings.Join(names, ", ")})
				continue
			}
			problems = append(problems, walkFields(object[name], ft, at)...)
		}
	}
	return problems
}
