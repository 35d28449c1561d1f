package tfiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// tlsPeriod is how often the files of certificates are looked at.
const tlsPeriod = time.Second

// sessions is how many upstream sessions may be kept to shorten handshakes with.
const sessions = 64

// ServerTLS terminates TLS on a listener.
type ServerTLS struct {
	// Cert and Key are PEM files; both are required. Cert may hold a whole chain.
	Cert, Key string
	// ClientCA is a PEM file of those that may sign clients' certificates; empty:
	// clients need none.
	ClientCA string
	// ALPN are the protocols that are offered, "h2" and "http/1.1"; both by default.
	// Nothing is translated, so the upstream must speak them.
	ALPN []string
}

// ClientTLS originates TLS towards an upstream.
type ClientTLS struct {
	// CA is a PEM file of those that may sign the upstream's certificate; empty: the
	// host's.
	CA string
	// ServerName is what the certificate must be made out to; empty: the upstream's host.
	ServerName string
	// Cert and Key are PEM files of the sidecar's own certificate; empty: none.
	Cert, Key string
	// Insecure takes any certificate.
	Insecure bool
}

// tlsFiles are a listener's configurations, made anew when the files change.
type tlsFiles struct {
	server *tls.Config // nil: no TLS
	client *tls.Config
	read   [][]byte // what they were made of
}

// pemFiles reads files, and remembers what was in them and what is wrong.
type pemFiles struct {
	path     string // of the listener in its configuration
	read     [][]byte
	problems []Problem
}

func (f *pemFiles) bytes(name, field string) []byte {
	if name == "" {
		return nil
	}
	b, err := readFile(name, maxPEMFile)
	if err != nil {
		f.problem(field, err)
	}
	f.read = append(f.read, b)
	return b
}

func (f *pemFiles) problem(field string, err error) {
	f.problems = append(f.problems, Problem{Path: f.path + "." + field, Want: "must be a usable PEM file: " + err.Error()})
}

func (f *pemFiles) pair(of, cert, key string) []tls.Certificate {
	if cert == "" {
		return nil
	}
	broken := len(f.problems)
	certPEM, keyPEM := f.bytes(cert, of+".cert"), f.bytes(key, of+".key")
	if len(f.problems) > broken {
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		f.problem(of+".cert", err)
	}
	return []tls.Certificate{pair}
}

func (f *pemFiles) pool(field, name string) *x509.CertPool {
	b := f.bytes(name, field)
	if b == nil {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		f.problem(field, errors.New("it has no certificate"))
	}
	return pool
}

// load reads a listener's files. path is the listener's in the configuration.
//
// Errors: a [*ConfigError].
func (l *Listener) load(path string) (*tlsFiles, error) {
	f := pemFiles{path: path}
	made := &tlsFiles{}
	if s := l.TLS; s != nil {
		offered := s.ALPN
		if len(offered) == 0 {
			offered = []string{alpnHTTP2, alpnHTTP1}
		}
		if slices.Contains(offered, alpnHTTP1) {
			offered = append(slices.Clone(offered), alpnOld)
		}
		made.server = &tls.Config{
			Certificates: f.pair("tls", s.Cert, s.Key), NextProtos: offered, MinVersion: tls.VersionTLS12,
		}
		if s.ClientCA != "" {
			made.server.ClientCAs, made.server.ClientAuth = f.pool("tls.client_ca", s.ClientCA), tls.RequireAndVerifyClientCert
		}
	}
	if s := l.UpstreamTLS; s != nil {
		made.client = &tls.Config{
			RootCAs: f.pool("upstream_tls.ca", s.CA), ServerName: s.ServerName,
			Certificates:       f.pair("upstream_tls", s.Cert, s.Key),
			InsecureSkipVerify: s.Insecure, // only if it was asked for
			MinVersion:         tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(sessions),
		}
	}
	made.read = f.read
	if len(f.problems) > 0 {
		return nil, &ConfigError{Problems: f.problems}
	}
	return made, nil
}

// CheckFiles reads the files of certificates that a configuration names.
//
// Errors: a [*ConfigError] that lists all that is wrong.
func (c *Config) CheckFiles() error {
	var all ConfigError
	for i := range c.Listeners {
		_, err := c.Listeners[i].load(c.path(i))
		var e *ConfigError
		if errors.As(err, &e) {
			all.Problems = append(all.Problems, e.Problems...)
		}
	}
	if len(all.Problems) > 0 {
		return &all
	}
	return nil
}

// path is where listener i stands in a configuration file.
func (c *Config) path(i int) string {
	role, n := c.Listeners[i].Role, 0
	for _, l := range c.Listeners[:i] {
		if l.Role == role {
			n++
		}
	}
	if role == tfi.RoleServer {
		return fmt.Sprintf("inbound[%d]", n)
	}
	return fmt.Sprintf("outbound[%d]", n)
}

// Reload reads the files of certificates again. New connections use what it finds;
// those that there are go on. A file that cannot be used leaves all of its listener
// as it was.
//
// Errors: a [*ConfigError].
func (p *Proxy) Reload() error {
	var errs []error
	for i, l := range p.listeners {
		old := l.tls.Load()
		if old == nil {
			continue
		}
		made, err := l.cfg.load(p.cfg.path(i))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		same := len(made.read) == len(old.read)
		for j := 0; same && j < len(made.read); j++ {
			same = bytes.Equal(made.read[j], old.read[j])
		}
		if !same {
			l.tls.Store(made)
			p.metrics.inc(metricTLSReloads)
			p.log.Info("certificates read again", "listen", l.cfg.Listen)
		}
	}
	return errors.Join(errs...)
}

// watchTLS reads the files of certificates again when they have changed.
func (p *Proxy) watchTLS(ctx context.Context) {
	watched := false
	for _, l := range p.listeners {
		watched = watched || l.tls.Load() != nil
	}
	if !watched {
		return
	}
	t := time.NewTicker(tlsPeriod)
	defer t.Stop()
	var told string
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		text := ""
		if err := p.Reload(); err != nil {
			text = err.Error()
		}
		if text != "" && text != told {
			p.log.Error("certificates refused; the last good ones stay in use", "error", text)
		}
		told = text
	}
}
