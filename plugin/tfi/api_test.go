package tfi

import (
	"strings"
	"testing"
)

func TestAppendAPI(t *testing.T) {
	var templates []template
	for _, text := range []string{
		"/users/{name}/{what}",
		"/users/me/{what}",
		"/users/{name}/cart",
		"/files/{path...}",
		"/{a}/first",
		"/{b}/{c}",
		"/third/{x}",
	} {
		tpl, want := parseTemplate(text)
		if want != "" {
			t.Fatalf("%s: %s", text, want)
		}
		templates = append(templates, tpl)
	}
	sortTemplates(templates)
	for _, tc := range []struct {
		name, method, path string
		grpc, bare         bool
		want               string
	}{
		{name: "the most literal segments win", method: "GET", path: "/users/me/x", want: "GET /users/me/{what}"},
		{name: "among equals the first given", method: "GET", path: "/users/me/cart", want: "GET /users/me/{what}"},
		{name: "one segment for one name", method: "GET", path: "/users/ann/cart?x=/a/b", want: "GET /users/{name}/cart"},
		{name: "any two", method: "PUT", path: "/users/ann/wish", want: "PUT /users/{name}/{what}"},
		{name: "the rest", method: "GET", path: "/files/a/b/c", want: "GET /files/{path...}"},
		{name: "an empty rest", method: "GET", path: "/files/", want: "GET /files/{path...}"},
		{name: "no rest at all is another path", method: "GET", path: "/files", want: "GET /files"},
		{name: "equal literals, order as given", method: "GET", path: "/third/first", want: "GET /{a}/first"},
		{name: "an empty segment is none", method: "GET", path: "/x/", want: "GET /x/"},
		{name: "numbers", bare: true, method: "GET", path: "/customers/392/orders/7?page=2", want: "GET /customers/{id}/orders/{id}"},
		{name: "UUID", bare: true, method: "DELETE", path: "/o/1B4E28BA-2fa1-11d2-883f-0016d3cca427", want: "DELETE /o/{id}"},
		{name: "almost a UUID", bare: true, method: "GET", path: "/o/1b4e28ba-2fa1-11d2-883f-0016d3cca42x", want: "GET /o/1b4e28ba-2fa1-11d2-883f-0016d3cca42x"},
		{name: "long hex", bare: true, method: "GET", path: "/t/deadbee1/deadbe1", want: "GET /t/{id}/deadbe1"},
		{name: "a word in hex letters", bare: true, method: "GET", path: "/t/feedface/abc123", want: "GET /t/feedface/abc123"},
		{name: "a version is a name", bare: true, method: "GET", path: "/v2/items", want: "GET /v2/items"},
		{name: "root", bare: true, method: "GET", path: "/", want: "GET /"},
		{name: "no path", bare: true, method: "CONNECT", path: "", want: "CONNECT "},
		{name: "asterisk", bare: true, method: "OPTIONS", path: "*", want: "OPTIONS *"},
		{name: "double slashes and a last one stay", bare: true, method: "GET", path: "//a//7/", want: "GET //a//{id}/"},
		{name: "fragment", bare: true, method: "GET", path: "/a#b?c", want: "GET /a"},
		{name: "gRPC", grpc: true, method: "POST", path: "/pkg.v1.Shop/Buy", want: "pkg.v1.Shop/Buy"},
		{name: "gRPC is not folded", grpc: true, method: "POST", path: "/users/me", want: "users/me"},
		{name: "a very long path is cut", bare: true, method: "GET", path: "/" + strings.Repeat("xy/", 2000), want: ("GET /" + strings.Repeat("xy/", 2000))[:maxAPI]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ts := templates
			if tc.bare {
				ts = nil
			}
			got := string(appendAPI([]byte("before"), ts, &Request{Method: tc.method, Path: tc.path, GRPC: tc.grpc}))
			if got != "before"+tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if got := DefaultAPI(tc.method, tc.path); tc.bare && got != tc.want {
				t.Errorf("by default %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseTemplateRefuses(t *testing.T) {
	for _, text := range []string{"", "a/b", "/a?b", "/a b", "/{", "/{}", "/a{b}", "/{a}b", "/{a...}/b", "/{...}", "/a}", "/{a{b}}"} {
		if _, want := parseTemplate(text); want == "" {
			t.Errorf("%q passes for a template", text)
		}
	}
}

// FuzzAPI: folding is total, keeps to its bound, and folds nothing twice.
func FuzzAPI(f *testing.F) {
	for _, path := range []string{"/", "/customers/392?x", "/a/1b4e28ba-2fa1-11d2-883f-0016d3cca427", "*", "", "//7//", "/%2f"} {
		f.Add("GET", path, false)
	}
	f.Add("POST", "/p.S/M", true)
	tpl, _ := parseTemplate("/a/{x}/{y...}")
	f.Fuzz(func(t *testing.T, method, path string, grpc bool) {
		r := &Request{Method: method, Path: path, GRPC: grpc}
		for _, ts := range [][]template{nil, {tpl}} {
			api := string(appendAPI(nil, ts, r))
			if len(api) > maxAPI {
				t.Fatalf("%d bytes", len(api))
			}
			if folded, ok := strings.CutPrefix(api, method+" "); ok && !grpc && ts == nil && len(api) < maxAPI {
				if again := string(appendAPI(nil, nil, &Request{Method: method, Path: folded})); again != api {
					t.Fatalf("%q, again %q", api, again)
				}
			}
		}
	})
}
