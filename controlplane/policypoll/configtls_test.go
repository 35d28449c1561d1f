package policypoll

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
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
	inbound := config.Listener{Role: tfi.RoleServer, Listen: "192.0.2.1:2", Upstream: "127.0.0.1:1"}
	cart := config.Listener{Role: tfi.RoleClient, Listen: "127.0.0.1:4", Upstream: "cart.example:8", Cluster: "cart"}
	terminated, plain := inbound, inbound
	terminated.TLS = &config.ServerTLS{Cert: "/c", Key: "/k", ClientCA: "/a", ALPN: []string{"http/1.1"}}
	secure := func(l config.Listener, c config.ClientTLS) config.Listener { l.UpstreamTLS = &c; return l }
	redirected := func(listen string) config.Listener { return config.Listener{Role: tfi.RoleClient, Listen: listen} }
	for _, c := range []struct {
		name   string
		config SidecarConfig
		want   []config.Listener
		named  map[string]string
	}{
		{"plain", SidecarConfig{}, []config.Listener{plain, cart}, nil},
		{
			"redirected in",
			SidecarConfig{TransparentInbound: []string{"[::]:15006"}},
			[]config.Listener{{Role: tfi.RoleServer, Listen: "[::]:15006"}, cart},
			nil,
		},
		{
			"redirected out",
			SidecarConfig{TransparentOutbound: []string{v4, v6}},
			[]config.Listener{plain, cart, redirected(v4), redirected(v6)},
			map[string]string{"bank": "192.0.2.3:5", "rates-eu": "[2001:db8::1]:6"},
		},
		{
			"TLS in",
			SidecarConfig{TLS: ServerTLS{Cert: "/c", Key: "/k", ClientCA: "/a", ALPN: []string{"http/1.1"}}},
			[]config.Listener{terminated, cart},
			nil,
		},
		{
			"TLS out",
			SidecarConfig{UpstreamTLS: ClientTLS{Services: []string{"cart=cart.shop"}, CA: "/a", Cert: "/c", Key: "/k"}},
			[]config.Listener{plain, secure(cart, config.ClientTLS{CA: "/a", ServerName: "cart.shop", Cert: "/c", Key: "/k"})},
			nil,
		},
		{
			"TLS out everywhere",
			SidecarConfig{TransparentOutbound: []string{v4}, UpstreamTLS: ClientTLS{Services: []string{AllServices, "cart=cart.shop"}}},
			[]config.Listener{plain, secure(cart, config.ClientTLS{ServerName: "cart.shop"}), secure(redirected(v4), config.ClientTLS{})},
			map[string]string{"bank": "192.0.2.3:5", "rates-eu": "[2001:db8::1]:6"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := native(t, web(), "web", c.config)
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
	named := func(services ...string) SidecarConfig {
		return SidecarConfig{UpstreamTLS: ClientTLS{Services: services}}
	}
	closed := web() // has its administrative port where it listens
	closed.Services[0].Admin = "0.0.0.0:15006"
	for _, c := range []struct {
		top    *topology.Topology
		config SidecarConfig
		want   []string
	}{
		{vague, SidecarConfig{}, nil},
		{web(), named("cart", "cart", "*"), nil},
		{web(), named("cart=y", "cart=y"), nil},
		{web(), named("cart=::1"), nil},
		{web(), named("cart=foo:443"), []string{`--upstream-tls: must be a host name or an IP address, without a port, not "foo:443"`}},
		{web(), named("cart=y", "cart=z"), []string{`--upstream-tls: must say once what certificate cart has, not both "cart=y" and "cart=z"`}},
		{web(), named("cart", "cart=y"), []string{`not both "cart" and "cart=y"`}},
		{web(), named("cart=y", "cart"), []string{`not both "cart=y" and "cart"`}},
		{closed, SidecarConfig{TransparentInbound: []string{"[::1]:15006"}}, []string{"services[0].admin: must not be 0.0.0.0:15006, for [::1]:15006 is listened on already"}},
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
		{web(), SidecarConfig{TransparentInbound: []string{"15006"}}, []string{"--transparent-inbound: must be an address"}},
		{web(), SidecarConfig{TLS: ServerTLS{Cert: "/c", ALPN: []string{"h3"}}}, []string{"--tls-key: is missing", "--tls-alpn: "}},
		{web(), SidecarConfig{UpstreamTLS: ClientTLS{Services: []string{"cart"}, Cert: "/c"}}, []string{"--upstream-cert, --upstream-key: must both"}},
		{web(), SidecarConfig{UpstreamTLS: ClientTLS{Services: []string{"cart"}, Key: "/k"}}, []string{"--upstream-cert, --upstream-key: must both"}},
		{web(), SidecarConfig{TransparentOutbound: []string{"127.0.0.1:4"}}, []string{"--transparent-outbound: must not be 127.0.0.1:4"}},
		{web(), SidecarConfig{TransparentOutbound: []string{"[::]:4"}}, []string{"--transparent-outbound: must not be [::]:4, for 127.0.0.1:4 is"}},
		{
			web(),
			SidecarConfig{TransparentInbound: []string{"[::]:5", "0.0.0.0:5"}, TLS: ServerTLS{Cert: "/c"}},
			[]string{"--transparent-inbound: must not be 0.0.0.0:5", "--tls-key: "},
		},
	} {
		_, err := NativeConfig(c.top, "web", c.config)
		if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, ErrTopology) && !errors.Is(err, ErrFlags) {
			t.Errorf("%+v: %v", c.config, err)
			continue
		}
		if err == nil {
			continue
		}
		text := err.Error()
		if fields := strings.Contains(text, "services["); strings.Contains(text, ErrTopology.Error()) != fields || strings.Contains(text, "bound[") {
			t.Errorf("%+v: %v\nhas another headline, or names fields of the sidecar's file", c.config, err)
		}
		if strings.Count(text, "--tls-key") > 1 || strings.Count(text, "neither") > 1 || strings.Count(text, "both cert and key") > 0 {
			t.Errorf("%+v: %v\nsays twice what is wrong with a flag", c.config, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v\nsays nothing of %s", c.config, err, want)
			}
		}
	}
}
