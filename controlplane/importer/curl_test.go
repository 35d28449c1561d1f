package importer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

func TestCurl(t *testing.T) {
	type request = campaignv1.HttpRequest
	headers := func(pairs ...string) map[string]string {
		m := make(map[string]string)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	const form = "application/x-www-form-urlencoded"
	for _, test := range []struct {
		name, line string
		want       *request
		notes      []string
	}{
		{"plain", "curl http://a/b?c=d", &request{Url: "http://a/b?c=d"}, nil},
		{"prompt and path", "$ /usr/bin/curl 'http://a/b'", &request{Url: "http://a/b"}, nil},
		{"no scheme", "curl a.example/b", &request{Url: "http://a.example/b"}, nil},
		{"noise", "curl -sSfv --compressed -o /dev/null --connect-timeout 3 -w '%{http_code}' http://a/", &request{Url: "http://a/"}, nil},
		{"method joined", "curl -XDELETE http://a/1", &request{Method: "DELETE", Url: "http://a/1"}, nil},
		{"long option with =", "curl --request=PUT --url=http://a/1 --max-time=2.5", &request{Method: "PUT", Url: "http://a/1", Timeout: durationpb.New(2500 * time.Millisecond)}, nil},
		{"headers", `curl -H 'A: b' -H"C:d  " --header 'Empty;' -H 'Gone:' http://a/`, &request{Url: "http://a/", Headers: headers("A", "b", "C", "d", "Empty", "")}, nil},
		{"data", "curl -d a=1 --data b=2 http://a/", &request{Method: "POST", Url: "http://a/", Body: "a=1&b=2", Headers: headers("Content-Type", form)}, nil},
		{"data with a method", "curl -X PATCH -d x http://a/ -H 'content-type: text/plain'", &request{Method: "PATCH", Url: "http://a/", Body: "x", Headers: headers("content-type", "text/plain")}, nil},
		{"raw data keeps @", "curl --data-raw @x http://a/", &request{Method: "POST", Url: "http://a/", Body: "@x", Headers: headers("Content-Type", form)}, nil},
		{"json", `curl --json '{"a":' --json '1}' http://a/`, &request{Method: "POST", Url: "http://a/", Body: `{"a":1}`, Headers: headers("Content-Type", "application/json", "Accept", "application/json")}, nil},
		{"urlencode", "curl --data-urlencode 'q=a b&c' --data-urlencode '=x/y' --data-urlencode plain http://a/", &request{
			Method: "POST", Url: "http://a/", Body: "q=a%20b%26c&x%2Fy&plain", Headers: headers("Content-Type", form),
		}, nil},
		{"get with data", "curl -G -d a=1 -d b=2 'http://a/?z=0'", &request{Url: "http://a/?z=0&a=1&b=2"}, nil},
		{"head", "curl -I http://a/", &request{Method: "HEAD", Url: "http://a/"}, nil},
		{"user", "curl -u me:secret http://a/", &request{Url: "http://a/", Headers: headers("Authorization", "Basic bWU6c2VjcmV0")}, []string{"Authorization is a secret"}},
		{"user in the URL", "curl http://me:secret@a/", &request{Url: "http://a/", Headers: headers("Authorization", "Basic bWU6c2VjcmV0")}, []string{"Authorization is a secret"}},
		{"cookie", "curl -b 'a=1; b=2' http://a/", &request{Url: "http://a/", Headers: headers("Cookie", "a=1; b=2")}, []string{"Cookie is a secret"}},
		{
			"trace headers of other formats, and an id of one's own", "curl -H 'B3: x' -H 'uber-trace-id: 1' -H 'tracestate: y' -H 'X-Request-ID: 7' http://a/", &request{Url: "http://a/", Headers: map[string]string{"X-Request-ID": "7"}},
			[]string{"B3 was left out", "uber-trace-id was left out", "tracestate was left out", "give topology.yaml traceHeader: x-request-id"},
		},
		{
			"what belongs to one request", "curl -H 'traceparent: x' -H 'X-B3-TraceId: 1' -H 'x-fic-evidence: y' -H 'Content-Length: 3' -H 'Host: b' -H 'Accept-Encoding: br' http://a/", &request{Url: "http://a/"},
			[]string{"traceparent was left out", "X-B3-TraceId was left out", "x-fic-evidence was left out"},
		},
		{"not taken over", "curl -kL --http2 http://a/", &request{Url: "http://a/"}, []string{"-k is not", "-L is not", "--http2 is not"}},
		{"header twice", "curl -H 'A: 1' -H 'a: 2' http://a/", &request{Url: "http://a/", Headers: headers("a", "2")}, []string{"more than once"}},
		{"placeholder", "curl 'http://a/${id}'", &request{Url: "http://a/${id}"}, []string{"captured value"}},
		{"as Chrome copies it", `curl 'http://shop.example/cart' \
  -X 'POST' \
  -H 'accept: */*' \
  --data-raw $'{"name":"D\'or\u00e9","x":"\x41\n"}' \
  --insecure`, &request{Method: "POST", Url: "http://shop.example/cart", Body: "{\"name\":\"D'oré\",\"x\":\"A\n\"}", Headers: headers("accept", "*/*", "Content-Type", form)}, []string{"-k is not"}},
		{"Windows line breaks", "curl http://a/ \\\r\n -X POST\r\n", &request{Method: "POST", Url: "http://a/"}, nil},
		{"double quotes", `curl "http://a/\"b\"\$c" -H "A: \\ \x"`, &request{Url: `http://a/"b"$c`, Headers: headers("A", `\ \x`)}, nil},
		{"end of options", "curl -- http://a/-x", &request{Url: "http://a/-x"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Curl(test.line, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Request, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			// The last note is about the topology.
			if len(got.Notes) != len(test.notes)+1 {
				t.Fatalf("notes %q, want %q", got.Notes, test.notes)
			}
			for i, want := range test.notes {
				if !strings.Contains(got.Notes[i], want) {
					t.Errorf("note %q, want %q", got.Notes[i], want)
				}
			}
			if test.name == "placeholder" {
				return
			}
			if p := valid.CampaignSpec(got.Campaign("")); len(p) > 0 {
				t.Errorf("no valid campaign: %v", p)
			}
			if p := got.Topology.Validate(); len(p) > 0 {
				t.Errorf("no valid topology: %v", p)
			}
		})
	}
}

func TestCurlRefuses(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", "must begin with curl"},
		{"wget http://a/", "must begin with curl"},
		{"curl", "want one URL, got 0"},
		{"curl http://a/ http://b/", "want one URL, got 2"},
		{"curl ftp://a/", "no http URL"},
		{"curl http://", "no http URL"},
		{"curl 'http://a/", "at character 6: the quote ' is not closed"},
		{`curl "http://a/`, `the quote " is not closed`},
		{"curl $'http://a/", "the quote $' is not closed"},
		{"curl http://a/?b=$ID", "a shell variable"},
		{`curl "http://a/$(id)"`, "a shell variable"},
		{"curl http://a/`id`", "a shell command"},
		{`curl "http://a/` + "`id`" + `"`, "a shell command"},
		{"curl http://a/?b=1&c=2", `"&" does not belong`},
		{"curl http://a/ | jq", `"|" does not belong`},
		{"curl http://a/ > x", `">" does not belong`},
		{"curl http://a/ # note", "a comment begins"},
		{"curl -H", "-H needs a value"},
		{"curl -H broken http://a/", "is no header"},
		{"curl -H @file http://a/", "headers from a file"},
		{"curl -b cookies.txt http://a/", "cookies from a file"},
		{"curl -d @x http://a/", "put it on the command line"},
		{"curl -F a=b http://a/", "multipart forms"},
		{"curl --proxy x http://a/", "leave it out"},
		{"curl --what http://a/", "option --what is not known"},
		{"curl -Z http://a/", `option "-Z" is not known`},
		{"curl -m soon http://a/", "want seconds"},
		{"curl " + strings.Repeat("a", maxCommand), "longer than"},
	} {
		t.Run(test.line[:min(len(test.line), 30)], func(t *testing.T) {
			got, err := Curl(test.line, nil)
			if !errors.Is(err, ErrInput) {
				t.Fatalf("got %v, %v, want ErrInput", got, err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, want %q", err, test.want)
			}
		})
	}
}

func TestCurlReadsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cart.json")
	if err := os.WriteFile(path, []byte("{\n\"a\": 1\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]string{
		"-d @": `{"a": 1}`, "--data-binary @": "{\n\"a\": 1\n}\n", "--data-urlencode x@": "x=%7B%0A%22a%22%3A%201%0A%7D%0A",
	} {
		got, err := Curl("curl http://a/ "+option+path, os.ReadFile)
		if err != nil {
			t.Errorf("%s: %v", option, err)
			continue
		}
		if got.Request.GetBody() != want {
			t.Errorf("%s: body %q, want %q", option, got.Request.GetBody(), want)
		}
	}
	if _, err := Curl("curl http://a/ -d @"+path+".none", os.ReadFile); !errors.Is(err, os.ErrNotExist) || !errors.Is(err, ErrInput) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestNames(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a/api/Checkout?x=1":               "api-checkout",
		"http://shop.example":                     "shop-example",
		"http://a/" + strings.Repeat("long/", 40): strings.TrimSuffix(strings.Repeat("long-", 12), "-"),
		"http://a/%F0%9F%9A%97":                   "campaign",
		"::":                                      "campaign",
	} {
		if got := nameOf(raw); got != want {
			t.Errorf("%s is named %q, want %q", raw, got, want)
		}
	}
}

func FuzzCurl(f *testing.F) {
	for _, line := range []string{
		"curl http://a/", `curl 'http://a' -H "a: b" \` + "\n -d $'\\x41'", "curl -sSLXPOST -u a:b http://a/", "curl --json '{}' http://a",
		"curl \\", "$'\\", "curl -", "curl --", "curl --=", "curl -m1e309 http://a",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := Curl(line, nil)
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Errorf("%v does not wrap ErrInput", err)
			}
			return
		}
		if got.Request.GetUrl() == "" || got.Topology == nil {
			t.Errorf("%q gives no request", line)
		}
		_ = got.Campaign("")
	})
}

// TestLocalApplication: where the application listens is known, and its sidecar takes its place.
func TestLocalApplication(t *testing.T) {
	for given, want := range map[string][3]string{
		"http://localhost:8080/buy?a=1":  {"http://127.0.0.1:15080/buy?a=1", "127.0.0.1:8080", "127.0.0.1:15080"},
		"http://127.0.0.1/":              {"http://127.0.0.1:15080/", "127.0.0.1:80", "127.0.0.1:15080"},
		"http://127.0.0.1:15080/":        {"http://127.0.0.1:15079/", "127.0.0.1:15080", "127.0.0.1:15079"},
		"http://[::1]:8080/":             {"http://[::1]:15080/", "[::1]:8080", "[::1]:15080"},
		"http://shop.example:8080/buy":   {"http://shop.example:8080/buy"},
		"https://127.0.0.1:8443/checked": {"https://127.0.0.1:8443/checked"},
	} {
		in, err := Curl("curl -g '"+given+"'", nil)
		if err != nil {
			t.Fatal(err)
		}
		s := in.Topology.Services[0]
		if got := [3]string{in.Request.GetUrl(), s.App, s.Inbound}; got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
		if p := in.Topology.Validate(); len(p) > 0 {
			t.Errorf("%s: %v", given, p)
		}
	}
}
