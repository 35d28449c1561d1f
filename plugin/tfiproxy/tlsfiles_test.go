package tfiproxy

import (
	"crypto/tls"
	"errors"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
)

// TestTLSReload says that new certificates are used without a restart, that bad ones are
// not, and that connections outlive their certificates.
func TestTLSReload(t *testing.T) {
	a := newAuthority(t)
	cfg := a.terminating(t, httpServer(t, echoBody))
	p := startProxy(t, cfg)
	serial := func() *big.Int {
		t.Helper()
		conn := tls.Client(dialProxy(t, p), &tls.Config{RootCAs: a.pool, ServerName: "shop"})
		defer conn.Close()
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber
	}
	old := protocolClient(t, false, a.client())
	url := "https://" + p.Addr(0).String() + "/"
	post(t, old, url, "x")
	first := serial()
	if err := os.WriteFile(a.file("server.key"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := p.Reload()
	var problems *config.Error
	if !errors.As(err, &problems) || problems.Problems[0].Path != "outbound[0].tls.cert" {
		t.Errorf("error %v", err)
	}
	if got := serial(); got.Cmp(first) != 0 {
		t.Errorf("serial number %v, want the old one, %v", got, first)
	}
	a.issue(t, "server", "shop")
	for end := time.Now().Add(10 * time.Second); serial().Cmp(first) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new certificate is not used")
		}
	}
	if n := p.metrics.get(metricTLSReloads); n != 1 {
		t.Errorf("%d reloads, want 1", n)
	}
	before := p.metrics.get(metricConnections)
	post(t, old, url, "x")
	if p.metrics.get(metricConnections) != before {
		t.Error("the old connection is gone")
	}
}

// TestCheckFiles lists all that is wrong with the files of certificates.
func TestCheckFiles(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "one", "one")
	a.issue(t, "two", "two")
	cfg := &Config{Service: "shop", Listeners: []Listener{
		{Role: tfi.RoleServer, TLS: &ServerTLS{Cert: a.file("one.crt"), Key: a.file("one.key"), ClientCA: a.file("none")}},
		{Role: tfi.RoleClient, UpstreamTLS: &ClientTLS{CA: a.file("one.key"), Cert: a.file("none"), Key: a.file("gone")}},
		{Role: tfi.RoleServer, TLS: &ServerTLS{Cert: a.file("one.crt"), Key: a.file("two.key")}},
	}}
	var problems *config.Error
	if err := CheckFiles(cfg); !errors.As(err, &problems) {
		t.Fatalf("error %v", err)
	}
	var paths []string
	for _, p := range problems.Problems {
		paths = append(paths, p.Path)
	}
	want := []string{
		"inbound[0].tls.client_ca", "outbound[0].upstream_tls.ca",
		"outbound[0].upstream_tls.cert", "outbound[0].upstream_tls.key", "inbound[1].tls.cert",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	if _, err := New(cfg, nil); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("New: %v", err)
	}
}
