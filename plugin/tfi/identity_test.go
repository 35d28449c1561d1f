package tfi

import (
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

func TestIdentityMatch(t *testing.T) {
	r := &Request{
		Path:    "/products/42%2F?q=a%20b&n=1&n=2&empty=&flag&plus=x+y&odd=%zz&%6eame=v#frag",
		Headers: lines{"x-user": "alice", "x-empty": ""},
	}
	for _, tc := range []struct {
		name string
		id   Identity
		want bool
	}{
		{"path is raw", Identity{Source: SourcePath, Value: "/products/42%2F"}, true},
		{"path is not decoded", Identity{Source: SourcePath, Value: "/products/42/"}, false},
		{"path by prefix", Identity{Source: SourcePath, Value: "/products/", Prefix: true}, true},
		{"path has no query", Identity{Source: SourcePath, Value: "/products/42%2F?", Prefix: true}, false},
		{"query is decoded", Identity{Source: SourceQuery, Name: "q", Value: "a b"}, true},
		{"plus is a space", Identity{Source: SourceQuery, Name: "plus", Value: "x y"}, true},
		{"first value", Identity{Source: SourceQuery, Name: "n", Value: "1"}, true},
		{"not the second", Identity{Source: SourceQuery, Name: "n", Value: "2"}, false},
		{"empty value", Identity{Source: SourceQuery, Name: "empty", Value: ""}, true},
		{"a parameter without a value", Identity{Source: SourceQuery, Name: "flag", Value: ""}, true},
		{"absent", Identity{Source: SourceQuery, Name: "absent", Value: ""}, false},
		{"a bad escape stands for itself", Identity{Source: SourceQuery, Name: "odd", Value: "%zz"}, true},
		{"names are decoded", Identity{Source: SourceQuery, Name: "name", Value: "v"}, true},
		{"query by prefix", Identity{Source: SourceQuery, Name: "q", Value: "a ", Prefix: true}, true},
		{"longer than the value", Identity{Source: SourceQuery, Name: "q", Value: "a b c", Prefix: true}, false},
		{"header", Identity{Source: SourceHeader, Name: "x-user", Value: "alice"}, true},
		{"header by prefix", Identity{Source: SourceHeader, Name: "x-user", Value: "al", Prefix: true}, true},
		{"another header", Identity{Source: SourceHeader, Name: "x-user", Value: "bob"}, false},
		{"an empty header", Identity{Source: SourceHeader, Name: "x-empty", Value: ""}, true},
		{"an absent header", Identity{Source: SourceHeader, Name: "x-none", Value: ""}, false},
		{"no source", Identity{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.id.match(r); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

func TestQueryValueAsNetURLReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"k", "a b", "ü", "%"})
		values := url.Values{}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			values.Add(key.Draw(t, "name"), rapid.String().Draw(t, "value"))
		}
		r := &Request{Path: "/?" + values.Encode()}
		name := key.Draw(t, "asked")
		want := rapid.OneOf(rapid.Just(values.Get(name)), rapid.String()).Draw(t, "want")
		id := Identity{Source: SourceQuery, Name: name, Value: want}
		if got := id.match(r); got != (values.Has(name) && values.Get(name) == want) {
			t.Fatalf("%q in %q: %v", want, r.Path, got)
		}
	})
}

// FuzzIdentityQuery: any query may come.
func FuzzIdentityQuery(f *testing.F) {
	f.Add("/x?a=%20&b", "a", " ")
	f.Add("?%", "%", "")
	f.Add("/?=&&=", "", "x")
	f.Fuzz(func(t *testing.T, path, name, value string) {
		exact := Identity{Source: SourceQuery, Name: name, Value: value}
		prefix := exact
		prefix.Prefix = true
		r := &Request{Path: path}
		if exact.match(r) && !prefix.match(r) {
			t.Fatal("equal, and yet no prefix")
		}
	})
}
