package workload

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzParseTraceID: what is taken for a trace id is one.
func FuzzParseTraceID(f *testing.F) {
	f.Add("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	f.Add("00-00000000000000000000000000000000-0123456789abcdef-01")
	f.Add("00-XYZ-1-2")
	f.Add("")
	f.Fuzz(func(t *testing.T, header string) {
		id, ok := parseTraceID(header)
		if ok && (id == TraceID{} || !strings.EqualFold(strings.Split(header, "-")[1], id.String())) {
			t.Errorf("%q gave %s", header, id)
		}
	})
}

// FuzzExpandURL: a captured value stays in the place that the URL gives it.
func FuzzExpandURL(f *testing.F) {
	f.Add("a b/c")
	f.Add("?x=1#y")
	f.Add("%2f..")
	f.Add("${id}")
	f.Fuzz(func(t *testing.T, value string) {
		got, err := expandURL("http://host/items/${id}?q=${id}", map[string]string{"id": value})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		if u.Host != "host" || u.Path != "/items/"+value || u.Query().Get("q") != value || u.Fragment != "" {
			t.Errorf("%q went astray: %s", value, got)
		}
	})
}
