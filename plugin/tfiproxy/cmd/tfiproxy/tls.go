package main

import (
	"errors"
	"flag"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfiproxy"
)

// errFlags says that flags contradict each other.
var errFlags = errors.New("bad flags")

// secretFlags are a short way to say what a configuration file says a listener:
// TLS is terminated on inbound ports, and originated on outbound ones. What the file
// says of a listener wins.
type secretFlags struct {
	cert, key string
	upstream  bool
	ca, name  string
}

func (f *secretFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.cert, "tls-cert", "", "PEM `file` with the certificate for TLS on inbound ports")
	flags.StringVar(&f.key, "tls-key", "", "PEM `file` with its key")
	flags.BoolVar(&f.upstream, "upstream-tls", false, "speak TLS to the upstreams of outbound ports")
	flags.StringVar(&f.ca, "upstream-ca", "", "PEM `file` of those who may sign upstreams' certificates (default: the host's)")
	flags.StringVar(&f.name, "upstream-name", "", "`name` that upstreams' certificates must be made out to (default: the upstream's host)")
}

// apply changes listeners that have nothing of their own. Errors: errFlags.
func (f *secretFlags) apply(cfg *tfiproxy.Config) error {
	var errs []error
	if (f.cert == "") != (f.key == "") {
		errs = append(errs, errors.New("-tls-cert and -tls-key need each other"))
	}
	if !f.upstream && (f.ca != "" || f.name != "") {
		errs = append(errs, errors.New("-upstream-ca and -upstream-name need -upstream-tls"))
	}
	if len(errs) > 0 {
		return errors.Join(append([]error{errFlags}, errs...)...)
	}
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		switch {
		case l.Role == tfi.RoleServer && f.cert != "" && l.TLS == nil:
			l.TLS = &tfiproxy.ServerTLS{Cert: f.cert, Key: f.key}
		case l.Role == tfi.RoleClient && f.upstream && l.UpstreamTLS == nil:
			l.UpstreamTLS = &tfiproxy.ClientTLS{CA: f.ca, ServerName: f.name}
		}
	}
	return nil
}
