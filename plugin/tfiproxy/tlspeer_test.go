package tfiproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
	next int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	writePEM(t, a.file("ca.crt"), "CERTIFICATE", der)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue makes name.crt and name.key, for localhost, 127.0.0.1 and the given host, and
// returns the pair.
func (a *authority) issue(t testing.TB, name, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.next++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.next), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{host, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file(name+".crt"), "CERTIFICATE", der)
	writePEM(t, a.file(name+".key"), "EC PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// terminating is a proxy whose port speaks TLS, in front of a plain upstream.
func (a *authority) terminating(t testing.TB, upstream string) *Config {
	t.Helper()
	a.issue(t, "server", "shop")
	cfg := outboundTo(upstream)
	cfg.Listeners[0].TLS = &ServerTLS{Cert: a.file("server.crt"), Key: a.file("server.key")}
	return cfg
}

func (a *authority) client() *tls.Config { return &tls.Config{RootCAs: a.pool} }

// secureServer is httpServer behind TLS.
func secureServer(t testing.TB, cfg *tls.Config, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &both, TLSConfig: cfg}
	t.Cleanup(func() { _ = s.Close() })
	go func() { _ = s.ServeTLS(l, "", "") }()
	return l.Addr().String()
}

func echoBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Protocol", r.Proto)
	w.Header().Set("Trailer", "X-Sum")
	b, _ := io.ReadAll(r.Body) // what is missing is seen
	_, _ = w.Write(b)
	w.Header().Set("X-Sum", fmt.Sprint(len(b)))
}

// answered is what came back.
type answered struct {
	status              int
	protocol, sum, body string // the first is what the upstream saw, the second a trailer
}

// post sends a body over the client's protocol.
func post(t testing.TB, transport *http.Transport, url, body string) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header.Get("X-Protocol"), resp.Trailer.Get("X-Sum"), string(b)}
}

// protocolClient is a client of one protocol, with TLS if cfg says so.
func protocolClient(t testing.TB, http2 bool, cfg *tls.Config) *http.Transport {
	t.Helper()
	var p http.Protocols
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2 && cfg != nil)
	p.SetUnencryptedHTTP2(http2 && cfg == nil)
	tr := &http.Transport{Protocols: &p, TLSClientConfig: cfg}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// tlsFront speaks TLS in front of a plain server; tlsBack is the other way round. Ends
// and breaks are passed on as what they are.
func tlsFront(t testing.TB, target string, cfg *tls.Config) string {
	return rawServer(t, func(c *net.TCPConn, _ int) {
		up, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		forward(tls.Server(c, cfg), c, up.(*net.TCPConn), up.(*net.TCPConn))
	})
}

func tlsBack(t testing.TB, target string, cfg *tls.Config) string {
	return rawServer(t, func(c *net.TCPConn, _ int) {
		up, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		// The protocol must be known before the handshake.
		begin := make([]byte, 3)
		if _, err := io.ReadFull(c, begin); err != nil {
			_ = up.Close()
			return
		}
		cfg := cfg.Clone()
		cfg.NextProtos = []string{alpnHTTP1}
		if string(begin) == preface[:3] {
			cfg.NextProtos = []string{alpnHTTP2}
		}
		secure := tls.Client(up, cfg)
		if _, err := secure.Write(begin); err != nil {
			_ = up.Close()
			return
		}
		forward(c, c, secure, up.(*net.TCPConn))
	})
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

func forward(down halfCloser, downTCP *net.TCPConn, up halfCloser, upTCP *net.TCPConn) {
	done := make(chan struct{}, 2)
	one := func(to halfCloser, toTCP *net.TCPConn, from halfCloser, fromTCP *net.TCPConn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		if err == nil && to != halfCloser(toTCP) {
			err = toTCP.CloseWrite()
		}
		if err != nil {
			for _, c := range []*net.TCPConn{toTCP, fromTCP} {
				_ = c.SetLinger(0)
				_ = c.Close()
			}
		}
		done <- struct{}{}
	}
	go one(down, downTCP, up, upTCP)
	one(up, upTCP, down, downTCP)
	<-done
	<-done
	_ = downTCP.Close()
	_ = upTCP.Close()
}
