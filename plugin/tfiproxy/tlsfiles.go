package tfiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfiproxy/config"
)

// tlsPeriod is how often the files of certificates are looked at.
const tlsPeriod = time.Second

// sessions is how many upstream sessions may be kept to shorten handshakes with.
const sessions = 64

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
	problems []config.Problem
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
	f.problems = append(f.problems, config.Problem{Path: f.path + "." + field, Want: "must be a usable PEM file: " + err.Error()})
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

// loadTLS reads a listener's files. path is the listener's in the configuration.
//
// Errors: a [*config.Error].
func loadTLS(l *Listener, path string) (*tlsFiles, error) {
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
		return nil, &config.Error{Problems: f.problems}
	}
	return made, nil
}

// CheckFiles reads the files of certificates that a configuration names.
//
// Errors: a [*config.Error] that lists all that is wrong.
func CheckFiles(c *Config) error {
	var all config.Error
	for i := range c.Listeners {
		_, err := loadTLS(&c.Listeners[i], c.Path(i))
		var e *config.Error
		if errors.As(err, &e) {
			all.Problems = append(all.Problems, e.Problems...)
		}
	}
	if len(all.Problems) > 0 {
		return &all
	}
	return nil
}

// Reload reads the files of certificates again. New connections use what it finds;
// those that there are go on. A file that cannot be used leaves all of its listener
// as it was.
//
// Errors: a [*config.Error].
func (p *Proxy) Reload() error {
	var errs []error
	for i, l := range p.listeners {
		old := l.tls.Load()
		if old == nil {
			continue
		}
		made, err := loadTLS(l.cfg, p.cfg.Path(i))
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
