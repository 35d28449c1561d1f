package policypoll

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
)

// web calls cart at a port of its sidecar's, and bank and rates at their own addresses.
func web() *topology.Topology {
	return &topology.Topology{
		Services: []topology.Service{
			{Name: "web", Sidecar: "tfiproxy", App: "127.0.0.1:1", Inbound: "192.0.2.1:2", Calls: []topology.Call{
				{Service: "cart", Listen: "127.0.0.1:4"},
				{Service: "bank", Address: "192.0.2.3:5"},
				{Service: "rates", Cluster: "rates-eu", Address: "[2001:db8::1]:6"},
			}},
			{Name: "cart", App: "127.0.0.1:7", Inbound: "cart.example:8"},
		},
		Leaves: []string{"bank", "rates"},
	}
}

// TestNativeConfigListeners says what is written of redirected ports and of TLS.
func TestNativeConfigListeners(t *testing.T) {
	const v4, v6 = "127.0.0.1:15001", "[::1]:15001"
	inbound := tfiproxy.Listener{Role: tfi.RoleServer, Listen: "192.0.2.1:2", Upstream: "127.0.0.1:1"}
	cart := tfiproxy.Listener{Role: tfi.RoleClient, Listen: "127.0.0.1:4", Upstream: "cart.example:8", Cluster: "cart"}
	terminated, plain := inbound, inbound
	terminated.TLS = &tfiproxy.ServerTLS{Cert: "/c", Key: "/k", ClientCA: "/a", ALPN: []string{"http/1.1"}}
	secure := func(l tfiproxy.Listener, c tfiproxy.ClientTLS) tfiproxy.Listener { l.UpstreamTLS = &c; return l }
	redirected := func(listen string) tfiproxy.Listener { return tfiproxy.Listener{Role: tfi.RoleClient, Listen: listen} }
	for _, c := range []struct {
		name   string
		config SidecarConfig
		want   []tfiproxy.Listener
		named  map[string]string
	}{
		{"plain", SidecarConfig{}, []tfiproxy.Listener{plain, cart}, nil},
		{
			"redirected in",
			SidecarConfig{TransparentInbound: []string{"[::]:15006"}},
			[]tfiproxy.Listener{{Role: tfi.RoleServer, Listen: "[::]:15006"}, cart},
			nil,
		},
		{
			"redirected out",
			SidecarConfig{TransparentOutbound: []string{v4, v6}},
			[]tfiproxy.Listener{plain, cart, redirected(v4), redirected(v6)},
			map[string]string{"bank": "192.0.2.3:5", "rates-eu": "[2001:db8::1]:6"},
		},
		{
			"TLS in",
			SidecarConfig{TLS: ServerTLS{Cert: "/c", Key: "/k", ClientCA: "/a", ALPN: []string{"http/1.1"}}},
			[]tfiproxy.Listener{terminated, cart},
			nil,
		},
		{
			"TLS out",
			SidecarConfig{UpstreamTLS: ClientTLS{Services: []string{"cart=cart.shop"}, CA: "/a", Cert: "/c", Key: "/k"}},
			[]tfiproxy.Listener{plain, secure(cart, tfiproxy.ClientTLS{CA: "/a", ServerName: "cart.shop", Cert: "/c", Key: "/k"})},
			nil,
		},
		{
			"TLS out everywhere",
			SidecarConfig{TransparentOutbound: []string{v4}, UpstreamTLS: ClientTLS{Services: []string{AllServices, "cart=cart.shop"}}},
			[]tfiproxy.Listener{plain, secure(cart, tfiproxy.ClientTLS{ServerName: "cart.shop"}), secure(redirected(v4), tfiproxy.ClientTLS{})},
			map[string]string{"bank": "192.0.2.3:5", "rates-eu": "[2001:db8::1]:6"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := NativeConfig(web(), "web", c.config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tfiproxy.ParseConfig(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.Listeners); d != "" {
				t.Error(d)
			}
			delete(got.Clusters, bootstrap.ClusterOTLP)
			if len(got.Clusters)+len(c.named) > 0 && !cmp.Equal(c.named, got.Clusters) {
				t.Errorf("clusters %v, want %v", got.Clusters, c.named)
			}
		})
	}
}

// TestNativeConfigRefused says what is wrong with redirected ports and with TLS, all
// at once.
func TestNativeConfigRefused(t *testing.T) {
	vague := web() // of calls that have no listen address
	vague.Services[0].Calls[1].Address = "bank.example:5"
	vague.Services[0].Calls = append(vague.Services[0].Calls, topology.Call{Service: "mail"})
	vague.Leaves = append(vague.Leaves, "mail")
	for _, c := range []struct {
		top    *topology.Topology
		config SidecarConfig
		want   []string
	}{
		{vague, SidecarConfig{}, nil},
		{
			vague,
			SidecarConfig{
				TransparentOutbound: []string{"127.0.0.1:15001"}, TLS: ServerTLS{Key: "/k"},
				UpstreamTLS: ClientTLS{Services: []string{"bank", "cart=", "*=x", "nobody"}},
			},
			[]string{
				`calls[1].address: must have an IP address`, `calls[3].address: is missing`, "--tls-cert: is missing",
				`not "bank"`, `not "cart="`, `not "*=x"`, `not "nobody"`,
			},
		},
		{web(), SidecarConfig{UpstreamTLS: ClientTLS{CA: "/a"}}, []string{"--upstream-tls: is missing"}},
		// What TFIProxy itself refuses.
		{web(), SidecarConfig{TransparentInbound: []string{"15006"}}, []string{"inbound[0].listen: "}},
		{web(), SidecarConfig{TLS: ServerTLS{Cert: "/c", ALPN: []string{"h3"}}}, []string{"inbound[0].tls.key: ", "inbound[0].tls.alpn[0]: "}},
		{web(), SidecarConfig{UpstreamTLS: ClientTLS{Services: []string{"cart"}, Cert: "/c"}}, []string{"outbound[0].upstream_tls: "}},
		{web(), SidecarConfig{TransparentOutbound: []string{"127.0.0.1:4"}}, []string{"must not listen twice on 127.0.0.1:4"}},
	} {
		_, err := NativeConfig(c.top, "web", c.config)
		if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, ErrTopology) {
			t.Errorf("%+v: %v", c.config, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v\nsays nothing of %s", c.config, err, want)
			}
		}
	}
}
