package expr

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzDecodeJSON: what is JSON is decoded, and nothing else is; what was decoded is JSON again,
// and the same from then on.
func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5,-0,1e300,true,null,"x"]}`, `9007199254740993`, `18446744073709551615`, `1e999`, `-1e-999`, `"\ud800"`, `{} {}`, ` [ ] `, "\"\xff\"", ``, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, ok := DecodeJSON(b)
		if ok != json.Valid(b) {
			t.Fatalf("taken for JSON: %v", ok)
		}
		if !ok {
			return
		}
		// 9007199254740993.0 is a whole number only once it has been written again.
		once := again(t, doc)
		if twice := again(t, once); !reflect.DeepEqual(once, twice) {
			t.Errorf("%#v became %#v", once, twice)
		}
	})
}

// again writes a document and decodes it.
func again(t *testing.T, doc any) any {
	t.Helper()
	encoded, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	out, ok := DecodeJSON(encoded)
	if !ok {
		t.Fatalf("it is written as %s", encoded)
	}
	return out
}
