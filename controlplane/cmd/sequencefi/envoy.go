package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/bootstrap"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
)

func (a *app) envoyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "envoy",
		Short:   "Set up standalone Envoys",
		Example: `  sequencefi envoy bootstrap checkout --topology topology.yaml > checkout.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.bootstrapCommand())
	return c
}

func (a *app) bootstrapCommand() *cobra.Command {
	var f planeFlags
	var o bootstrap.Options
	var output string
	c := &cobra.Command{
		Use:   "bootstrap service",
		Short: "Print the bootstrap of the Envoy beside a service",
		Long: `Bootstrap prints a complete configuration for a standalone Envoy: an inbound
listener in front of the application, an outbound listener for each service that
it calls, and in each of them the place for the gate. Until a campaign runs the
filter there does nothing, and there is no wasm VM. Several Envoys on one machine
need --disable-hot-restart (or a --base-id each), or all but the first exit.

Envoy before 1.39 must hold the plugin from the start: name it by --envoy-version
and --plugin.`,
		Example: `  sequencefi envoy bootstrap checkout --topology topology.yaml > checkout.yaml
  envoy -c checkout.yaml --disable-hot-restart
  sequencefi envoy bootstrap checkout --envoy-version 1.37.0 --plugin /etc/envoy/sequencefi.wasm`,
		Args: oneFile("service of the topology"),
	}
	c.Flags().StringVar(&f.topology, "topology", campaignfile.DefaultTopology, "topology `file`")
	c.Flags().StringVar(&o.EnvoyVersion, "envoy-version", "", "`version` that will run, like 1.37.0 (default: 1.39 or later)")
	c.Flags().StringVar(&o.Instance, "instance", "", "`name` of this sidecar among those of its service (default: the service's with -1)")
	c.Flags().StringVar(&o.Plugin, "plugin", "", "`path` of the plugin on the sidecar's machine; only Envoy before 1.39 needs it")
	c.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	c.ValidArgsFunction = f.completeServices
	c.RunE = func(c *cobra.Command, args []string) error {
		if output != "yaml" && output != "json" {
			return badUsage(c, "--output must be yaml or json, not %q", output)
		}
		t, err := f.loadTopology(f.topology)
		if err != nil {
			return err
		}
		if o.Plugin != "" {
			if o.Plugin, err = filepath.Abs(o.Plugin); err != nil {
				return fmt.Errorf("--plugin: %w", err)
			}
		}
		b, err := bootstrap.Build(t, args[0], o)
		if err != nil {
			return err
		}
		write := bootstrap.YAML
		if output == "json" {
			write = bootstrap.JSON
		}
		text, err := write(b)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	return c
}
