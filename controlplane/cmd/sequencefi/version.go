package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/report"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: `  sequencefi version`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version
			if info, ok := debug.ReadBuildInfo(); ok && v == "unknown" && info.Main.Version != "" {
				v = info.Main.Version
			}
			_, err := fmt.Fprintf(a.stdout, "sequencefi %s (%s, %s/%s)\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of campaign files, for editors",
		Long: `Schema prints the JSON schema of campaign files. The first line of a campaign
that init writes names it, so that an editor completes and checks the file.`,
		Example: `  sequencefi schema > campaign.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(campaignfile.Schema())
			return err
		},
	}
}

func (a *app) reportCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "report directory|report.json",
		Short: "Show a campaign's report again, or write its pages anew",
		Long:  `Report shows the report that run wrote: its --out directory, or report.json in it.`,
		Example: `  sequencefi report out/checkout
  sequencefi report out/checkout/report.json --out /tmp/checkout`,
		Args: oneFile("directory or report.json"),
	}
	c.Flags().StringVar(&out, "out", "", "`directory` for report.html, report.json, junit.xml and summary.json (default: none are written)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		path := args[0]
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, report.JSONFile)
		}
		b, err := bounded.File(path, maxTracesFile)
		if errors.Is(err, fs.ErrNotExist) && path != args[0] {
			return badUsage(c, "no campaign's report is in %s (no %s): sequencefi run campaign.yaml --out %s writes one", args[0], report.JSONFile, args[0])
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) == 0 {
			return badUsage(c, "%s: not a %s: it is empty", path, kindReport)
		}
		r, err := report.ReadJSON(b)
		if err != nil {
			return explainKind(path, kindReport, &usageError{c, err})
		}
		o := report.TerminalOptions{Width: width(a.stdout), Colour: colour(a.stdout)}
		if out != "" {
			if err := report.Write(out, r); err != nil {
				return err
			}
			o.HTML = filepath.Join(out, report.HTMLFile)
		}
		return report.Terminal(a.stdout, r, o)
	}
	return c
}
