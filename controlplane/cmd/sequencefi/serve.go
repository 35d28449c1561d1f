package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/campaign"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/report"
)

func (a *app) serveCommand() *cobra.Command {
	var f planeFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a control plane that sidecars can connect to, without a campaign",
		Long: `Serve runs the control plane until it is stopped: xDS, the polls of TFIProxies, the
OTLP receiver, and the plugin where Envoys fetch it. It tells the sidecars nothing,
so none of them loads the plugin, and prints which are connected whenever that
changes. It shows whether sidecars reach the addresses of the topology before a
campaign needs them.`,
		Example: `  sequencefi serve --topology topology.yaml
  sequencefi serve --topology topology.yaml --xds 0.0.0.0:18000 --otlp 0.0.0.0:18001`,
		Args: cobra.NoArgs,
	}
	f.add(c)
	// It waits for nobody.
	_ = c.Flags().MarkHidden("wait")
	c.RunE = func(c *cobra.Command, _ []string) error {
		t, err := f.loadTopology(campaignfile.DefaultTopology)
		if err != nil {
			return err
		}
		p, err := startPlane(c.Context(), f, t, a.stderr)
		if err != nil {
			return err
		}
		defer p.close()
		begun := time.Now()
		for _, note := range p.notes {
			fmt.Fprintln(a.stdout, note)
		}
		var before []string
		for {
			changed := p.server.Changed()
			var strangers <-chan struct{}
			if p.polls != nil {
				strangers = p.polls.Changed()
			}
			now := describeFleet(fleet{p}.Sidecars())
			if !slices.Equal(before, now) {
				fmt.Fprintf(a.stdout, "%s  %s\n", time.Since(begun).Round(100*time.Millisecond), strings.Join(now, "; "))
				before = now
			}
			select {
			case <-changed:
			case <-strangers:
			case <-c.Context().Done():
				fmt.Fprintln(a.stdout, "stopped")
				return nil
			}
		}
	}
	return c
}

// describeFleet says in a few words which sidecars there are.
func describeFleet(sidecars []campaign.Sidecar) []string {
	out := []string{count(len(sidecars), "sidecar")}
	for _, s := range sidecars {
		out = append(out, report.OneLine(fmt.Sprintf("%s/%s (%s) %s", s.Service, s.Instance, s.Proxy, stateOf(s))))
	}
	return out
}
