package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

func TestParse(t *testing.T) {
	b, err := os.ReadFile("testdata/config.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Service: "cart", Instance: "cart-1", Admin: "127.0.0.1:15000", Profiles: true, Workers: 2,
		Listeners: []Listener{
			{Role: tfi.RoleServer, Listen: "0.0.0.0:8080", Upstream: "127.0.0.1:9090", TLS: &ServerTLS{
				Cert: "/run/tls/tls.crt", Key: "/run/tls/tls.key", ClientCA: "/run/tls/ca.crt", ALPN: []string{"h2", "http/1.1"},
			}},
			{Role: tfi.RoleServer, Listen: "0.0.0.0:15006"},
			{Role: tfi.RoleClient, Listen: "127.0.0.1:8081", Upstream: "prices:8080", Cluster: "prices", UpstreamTLS: &ClientTLS{
				CA: "/run/tls/ca.crt", ServerName: "prices.shop", Cert: "/run/tls/tls.crt", Key: "/run/tls/tls.key",
			}},
			{Role: tfi.RoleClient, Listen: "127.0.0.1:15001", UpstreamTLS: &ClientTLS{Insecure: true}},
		},
		Clusters: map[string]string{"collector": "127.0.0.1:4318"},
		Policy:   PolicySource{Address: "127.0.0.1:18002", TokenFile: "/run/token", TTL: 10 * time.Second},
		Limits:   Limits{Connections: 1000, HeadBytes: 32768, Streams: 100, Trials: 512},
		Timeouts: Timeouts{
			Connect: time.Second, Head: 10 * time.Second, Idle: time.Minute, Stall: 2 * time.Minute,
			Hold: 3 * time.Second, Drain: 4 * time.Second, Tick: 100 * time.Millisecond,
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseProblems(t *testing.T) {
	for _, c := range []struct {
		name, file string
		paths      []string
	}{
		{"no JSON", `{`, []string{"(file)"}},
		{"more than one", `{} {}`, []string{"(file)"}},
		{"list", `[]`, []string{"(file)", "service", "inbound, outbound"}},
		{"empty", `{}`, []string{"service", "inbound, outbound"}},
		{"all at once", `{"service":"", "workers":1.5, "admin":"nowhere", "surprise":1,
			"inbound":[{"listen":"127.0.0.1:80","upstream":"x:0","listne":1,"tls":{"cert":1,"alpn":["h3","h2"]},"upstream_tls":"yes"}, 7],
			"outbound":[{"listen":"127.0.0.1:80"}, {"listen":"a:1","upstream":"b:2","transparent":true,
				"tls":[],"upstream_tls":{"cert":"c","ca":"d","insecure_skip_verify":true,"servername":"x"}}],
			"clusters":{"c":"d"}, "policy":{"file":"a","address":"b:1","ttl":"-1s"},
			"limits":{"streams":0}, "timeouts":{"head":5}, "profiles":"yes"}`, []string{
			"service", "admin", "profiles", "workers",
			"inbound[0].upstream", "inbound[0].listne", "inbound[0].tls.cert", "inbound[0].tls.key", "inbound[0].tls.alpn[0]", "inbound[0].upstream_tls", "inbound[1]", "inbound[1].listen", "inbound[1].upstream",
			"outbound[0].upstream", "outbound[0].cluster", "outbound[1].upstream",
			"outbound[1].tls", "outbound[1].upstream_tls", "outbound[1].upstream_tls.insecure_skip_verify", "outbound[1].upstream_tls.servername",
			"clusters.c", "policy.ttl", "policy", "limits.streams", "timeouts.head", "surprise",
			"outbound[0].listen",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.file))
			var problems *Error
			if !errors.As(err, &problems) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			var paths []string
			for _, p := range problems.Problems {
				paths = append(paths, p.Path)
			}
			slices.Sort(paths)
			slices.Sort(c.paths)
			if d := cmp.Diff(c.paths, paths); d != "" {
				t.Errorf("%s\n%v", d, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("testdata/config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"service":"a","inbound":[{"listen":"a:1","upstream":"b:2"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if (c == nil) == (err == nil) {
			t.Fatal("neither or both")
		}
		if err == nil && (c.Service == "" || len(c.Listeners) == 0 || c.Timeouts.Tick <= 0) {
			t.Fatalf("accepted %+v", c)
		}
	})
}

// TestListensOnce: of ports that are the same the system gives the first only.
func TestListensOnce(t *testing.T) {
	for _, c := range []struct {
		first, second string
		same          bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:080", true},
		{"127.0.0.1:80", "0.0.0.0:80", true},
		{"[::]:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "[::]:80", true},
		{"0.0.0.0:80", "[::1]:80", true},
		{":80", "127.0.0.1:80", true},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"shop:80", "SHOP:80", true},
		{"127.0.0.1:80", "[::1]:80", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"0.0.0.0:80", "[::]:81", false},
		{"127.0.0.1:0", "0.0.0.0:0", false},
	} {
		for _, second := range []struct{ path, text string }{
			{"outbound[0].listen", `"outbound":[{"listen":%q,"transparent":true}]`},
			{"admin", `"admin":%q`},
		} {
			text := fmt.Sprintf(`{"service":"a","inbound":[{"listen":%q,"transparent":true}],`+second.text+"}", c.first, c.second)
			_, err := Parse([]byte(text))
			var wrong *Error
			if errors.As(err, &wrong) != c.same {
				t.Errorf("%s: %v", text, err)
			} else if c.same && (len(wrong.Problems) != 1 || wrong.Problems[0].Path != second.path || !strings.Contains(wrong.Problems[0].Want, c.first)) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestServerName(t *testing.T) {
	for name, good := range map[string]bool{
		"foo": true, "foo.example": true, "192.0.2.1": true, "2001:db8::1": true,
		"foo:443": false, "192.0.2.1:443": false, "[::1]:443": false, "[::1]": false, "https://foo": false, "a b": false, "*.example": false,
	} {
		_, err := Parse([]byte(fmt.Sprintf(`{"service":"a","outbound":[{"listen":"a:1","upstream":"b:2","cluster":"b","upstream_tls":{"server_name":%q}}]}`, name)))
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("outbound[0].upstream_tls.server_name: must be a host name or an IP address, without a port, not %q", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
