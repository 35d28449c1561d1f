package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/policypoll"
	"github.com/sequencefi/sequencefi/controlplane/report"
)

func (a *app) tfiproxyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "tfiproxy",
		Short:   "Set up native sidecars",
		Example: `  sequencefi tfiproxy config checkout --topology topology.yaml > checkout.json`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.tfiproxyConfigCommand())
	return c
}

func (a *app) tfiproxyConfigCommand() *cobra.Command {
	var f planeFlags
	var o policypoll.SidecarConfig
	c := &cobra.Command{
		Use:   "config service",
		Short: "Print the configuration of the TFIProxy beside a service",
		Long: `Config prints a complete configuration for TFIProxy, the native sidecar, beside a
service that has "sidecar: tfiproxy" in the topology: an inbound port in front of
the application, an outbound port for each service that it calls, and where the
control plane is polled. Until a campaign runs, the sidecar passes bytes on.

The control plane and its TFIProxies share a token. The first call makes the
topology's token file, readable by its owner only; sidecars elsewhere need a copy,
and --token-file says where it is on their machine.

Where nftables redirects connections (deploy/tfiproxy/redirect.sh), applications
and their callers keep their addresses: "inbound" in the topology is then where the
application itself is reached, and a call needs no "listen". Ports may be several,
as for IPv4 and IPv6.

The files of TLS are on the sidecar's machine, where tfiproxy -check reads them.`,
		Example: `  sequencefi tfiproxy config checkout --topology topology.yaml > checkout.json
  tfiproxy checkout.json
  sequencefi tfiproxy config checkout --token-file /run/secrets/sequencefi > checkout.json
  sequencefi tfiproxy config checkout --transparent-inbound [::]:15006 --transparent-outbound 127.0.0.1:15001 > checkout.json
  sequencefi tfiproxy config checkout --tls-cert tls.crt --tls-key tls.key --upstream-tls cart,bank=bank.example > checkout.json`,
		Args: oneFile("service of the topology"),
	}
	c.Flags().StringVar(&f.topology, "topology", campaignfile.DefaultTopology, "topology `file`")
	c.Flags().StringVar(&o.Instance, "instance", "", "`name` of this sidecar among those of its service (default: it names itself after its host and process)")
	c.Flags().StringVar(&o.TokenFile, "token-file", "", "`path` of the token on the sidecar's machine (default: the topology's file, which is made if there is none)")
	c.Flags().StringSliceVar(&o.TransparentInbound, "transparent-inbound", nil, "`address` where redirected connections to the application come out")
	c.Flags().StringSliceVar(&o.TransparentOutbound, "transparent-outbound", nil, "`address` where redirected connections of the application come out")
	c.Flags().StringVar(&o.TLS.Cert, "tls-cert", "", "PEM `file` with the certificate for TLS on inbound ports")
	c.Flags().StringVar(&o.TLS.Key, "tls-key", "", "PEM `file` with its key")
	c.Flags().StringVar(&o.TLS.ClientCA, "tls-client-ca", "", "PEM `file` of those who may sign clients' certificates (default: clients need none)")
	c.Flags().StringSliceVar(&o.TLS.ALPN, "tls-alpn", nil, "`protocol` that TLS clients are offered, h2 or http/1.1 (default: both)")
	c.Flags().StringSliceVar(&o.UpstreamTLS.Services, "upstream-tls", nil, "`service` to speak TLS to, or service=host by its certificate, or * for all and transparent ports")
	c.Flags().StringVar(&o.UpstreamTLS.CA, "upstream-ca", "", "PEM `file` of those who may sign their certificates (default: the host's)")
	c.Flags().StringVar(&o.UpstreamTLS.Cert, "upstream-cert", "", "PEM `file` with the sidecar's own certificate for them")
	c.Flags().StringVar(&o.UpstreamTLS.Key, "upstream-key", "", "PEM `file` with its key")
	c.ValidArgsFunction = f.completeServices
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := f.loadTopology(f.topology)
		if err != nil {
			return err
		}
		fetched := o.TokenFile != ""
		if !fetched {
			o.TokenFile = t.PolicyToken
		} else if o.TokenFile, err = filepath.Abs(o.TokenFile); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		for _, file := range []struct {
			flag string
			name *string
		}{
			{"--tls-cert", &o.TLS.Cert},
			{"--tls-key", &o.TLS.Key},
			{"--tls-client-ca", &o.TLS.ClientCA},
			{"--upstream-ca", &o.UpstreamTLS.CA},
			{"--upstream-cert", &o.UpstreamTLS.Cert},
			{"--upstream-key", &o.UpstreamTLS.Key},
		} {
			if *file.name == "" {
				continue
			}
			if *file.name, err = filepath.Abs(*file.name); err != nil {
				return fmt.Errorf("%s: %w", file.flag, err)
			}
		}
		text, err := policypoll.NativeConfig(t, args[0], o)
		if err != nil {
			return err
		}
		token := ""
		if !fetched {
			var made bool
			if token, made, err = makeToken(t.PolicyToken); err != nil {
				return err
			}
			if made {
				fmt.Fprintf(a.stderr, "made %s: control plane and sidecars share it\n", report.OneLine(t.PolicyToken))
			}
		}
		if warning := overridden(token); warning != "" {
			fmt.Fprintf(a.stderr, "warning: %s\n", warning)
		}
		_, err = a.stdout.Write(text)
		return err
	}
	return c
}

// completeServices completes the names of the topology's services.
func (f *planeFlags) completeServices(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	t, err := f.loadTopology(f.topology)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return t.Names(), cobra.ShellCompDirectiveNoFileComp
}
