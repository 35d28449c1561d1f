package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/importer"
	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// initFlags are the flags of init.
type initFlags struct {
	curl, har, jaeger, traceID, match, name, dir string
	entry                                        int
	force                                        bool
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a first campaign and topology",
		Long: `Init writes campaign.yaml and topology.yaml from a curl command line, from a
browser's HAR file, or from a trace of Jaeger, which gives the topology as well.
With none of them it writes a commented example. Beside them it writes
campaign.schema.json, by which editors complete and check the campaign.`,
		Example: `  sequencefi init --curl "curl http://shop.example/checkout -d @cart.json"
  sequencefi init --har shop.har --match /checkout
  sequencefi init --jaeger trace.json --dir campaigns/checkout`,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&f.curl, "curl", "", "a curl command `line`, quoted as one argument")
	c.Flags().StringVar(&f.har, "har", "", "HAR `file`, as browsers save it")
	c.Flags().IntVar(&f.entry, "entry", 0, "`number` of the HAR file's entry")
	c.Flags().StringVar(&f.match, "match", "", "take the HAR file's entry whose URL contains this `text`")
	c.Flags().StringVar(&f.jaeger, "jaeger", "", "`file` with a trace, as Jaeger's page or API gives it")
	c.Flags().StringVar(&f.traceID, "trace-id", "", "`id` of the trace, where the file has several")
	c.Flags().StringVar(&f.name, "name", "", "the campaign's `name` (default: made of the URL)")
	c.Flags().StringVar(&f.dir, "dir", ".", "`directory` to write to")
	c.Flags().BoolVar(&f.force, "force", false, "overwrite files that are there")
	c.RunE = func(c *cobra.Command, _ []string) error {
		sources := 0
		for _, source := range []string{"curl", "har", "jaeger"} {
			if flag := c.Flags().Lookup(source); flag.Changed {
				if flag.Value.String() == "" {
					return badUsage(c, "--%s is empty: a shell variable that is not set?", source)
				}
				sources++
			}
		}
		if sources > 1 {
			return badUsage(c, "only one of --curl, --har and --jaeger can be given")
		}
		err := a.init(f)
		if errors.Is(err, importer.ErrInput) || errors.Is(err, fs.ErrExist) {
			return &usageError{c, err}
		}
		return err
	}
	return c
}

func (a *app) init(f initFlags) error {
	campaign, topo, notes, err := initFiles(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	files := []struct {
		name string
		text []byte
	}{{"campaign.yaml", campaign}, {campaignfile.DefaultTopology, topo}, {schemaName, campaignfile.Schema()}}
	if !f.force {
		for _, file := range files {
			if file.name == schemaName && same(filepath.Join(f.dir, file.name), file.text) {
				continue // the schema, which sequencefi schema wrote
			}
			if _, err := os.Lstat(filepath.Join(f.dir, file.name)); err == nil {
				return fmt.Errorf("%s: %w (--force overwrites it, --dir writes elsewhere)", filepath.Join(f.dir, file.name), fs.ErrExist)
			}
		}
	}
	for _, file := range files {
		path := filepath.Join(f.dir, file.name)
		if err := os.WriteFile(path, file.text, 0o600); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		fmt.Fprintf(a.stdout, "wrote %s\n", path)
	}
	for _, n := range notes {
		fmt.Fprintf(a.stdout, "note: %s\n", report.OneLine(n))
	}
	fmt.Fprintf(a.stdout, "next: complete %s, then sequencefi check %s\n", filepath.Join(f.dir, campaignfile.DefaultTopology), filepath.Join(f.dir, "campaign.yaml"))
	return nil
}

// same says whether a file has this content.
func same(path string, text []byte) bool {
	b, err := bounded.File(path, int64(len(text)))
	return err == nil && bytes.Equal(b, text)
}

// initFiles makes both files' text.
func initFiles(f initFlags) (campaign, topo []byte, notes []string, err error) {
	var in *importer.Imported
	switch {
	case f.curl != "":
		in, err = importer.Curl(f.curl, readBody)
	case f.har != "":
		var b []byte
		if b, err = bounded.File(f.har, maxTracesFile); err == nil {
			in, err = importer.HAR(b, f.entry, f.match)
		}
	case f.jaeger != "":
		var b []byte
		if b, err = bounded.File(f.jaeger, maxTracesFile); err == nil {
			in, err = importer.Jaeger(b, f.traceID)
		}
	default:
		return campaignfile.Example(), exampleTopology(), nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	spec := in.Campaign(f.name)
	if err := valid.Error(valid.CampaignSpec(spec)); err != nil {
		return nil, nil, nil, err
	}
	if campaign, err = campaignfile.Marshal(spec); err != nil {
		return nil, nil, nil, err
	}
	if topo, err = importer.TopologyYAML(in.Topology); err != nil {
		return nil, nil, nil, err
	}
	topo = append([]byte(topologyHead), topo...)
	if one := in.Topology.Services; len(one) == 1 && len(one[0].Calls) == 0 {
		if one[0].App == "" {
			topo = append(topo, topologyAddresses...)
		}
		topo = append(topo, topologyCalls...)
	}
	return append([]byte(campaignHead), campaign...), topo, in.Notes, nil
}

// maxBody bounds a body that a curl command names.
const maxBody = 1 << 20

func readBody(name string) ([]byte, error) { return bounded.File(name, maxBody) }

// schemaName is the file that the first line of a campaign names.
const schemaName = "campaign.schema.json"

const campaignHead = `# yaml-language-server: $schema=campaign.schema.json
# A campaign of SequenceFI; sequencefi init without flags writes an example with
# everything that can stand here, sequencefi schema the file that is named above.
# The request must go to the sidecar in front of the first service.
`

const topologyHead = `# The services with a sidecar, and who calls whom. For standalone Envoys:
#   app      where the application listens
#   inbound  where its sidecar listens for it; callers and clients go there
#   calls    the services it calls; listen is where its sidecar takes those calls,
#            so the application must be told this address instead of the callee's
#   protocol http (HTTP/1.1), http2 or grpc
#   sidecar  tfiproxy for SequenceFI's own sidecar, which needs neither Envoy nor
#            plugin; left out, it is an Envoy:
#              sidecar: tfiproxy
# Requests of a campaign carry their trace id in every format that services may
# forward: traceparent with tracestate, B3 in both its forms, and uber-trace-id. For
# services that forward none of these, but a header of their own:
#              traceHeader: x-trace
# and to send some formats only (w3c, b3, b3multi, jaeger):
#              propagation: [w3c]
# A mesh that brings its own listeners needs only names, calls and clusters.
# Services without a sidecar are named under leaves. The command sequencefi init
# without --curl, --har and --jaeger writes an example with all of it.
`

// What the topology of a single service lacks, to be filled in; it continues the file.
const (
	topologyAddresses = `    # app: 127.0.0.1:8080
    # inbound: 127.0.0.1:15080
`
	topologyCalls = `    # calls:
    #   - service: backend
    #     listen: 127.0.0.1:15181
  # - name: backend
  #   app: 127.0.0.1:8081
  #   inbound: 127.0.0.1:15081
`
)

func exampleTopology() []byte {
	t := topology.Topology{
		Services: []topology.Service{
			{
				Name: "shop", App: "127.0.0.1:8080", Inbound: "127.0.0.1:15080", Admin: "127.0.0.1:15000",
				Calls: []topology.Call{
					{Service: "pay", Listen: "127.0.0.1:15181"},
					{Service: "stock", Listen: "127.0.0.1:15182", Address: "127.0.0.1:8082"},
				},
			},
			{Name: "pay", App: "127.0.0.1:8081", Inbound: "127.0.0.1:15081", Admin: "127.0.0.1:15001", Protocol: topology.ProtocolGRPC},
		},
		Leaves:      []string{"stock"},
		Templates:   []string{"/orders/{id}"},
		ExemptPaths: []string{"/healthz"},
		XDS:         topology.DefaultXDS,
		OTLP:        topology.DefaultOTLP,
	}
	b, err := importer.TopologyYAML(&t)
	if err != nil {
		// A constant that cannot be written would be seen by the first test.
		return []byte(strings.TrimSpace(topologyHead))
	}
	return append([]byte(topologyHead), b...)
}
