package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/controlplane/bounded"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile"
	"github.com/sequencefi/sequencefi/controlplane/campaignfile/protoyaml"
	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/search"
	"github.com/sequencefi/sequencefi/solver/trace"
)

func (a *app) solveCommand() *cobra.Command {
	var faults, phases, leaves []string
	var output string
	var limit int
	c := &cobra.Command{
		Use:   "solve traces.json...",
		Short: "Work out faults and guards from recorded traces, offline",
		Long: `Solve reads traces of clean runs of one workload (the JSON of Jaeger's page or
API, or OTLP as JSON or protobuf; - reads standard input) and prints the
candidates of the first round: where a fault could change the answer, and the
guard that names the moment. Each trace is one run.

Without sidecar spans the guards rest on the application's own spans, and are
marked "assumed".`,
		Example: `  sequencefi solve traces.json
  curl -s "http://jaeger:16686/api/traces?service=frontend&operation=/dispatch" | sequencefi solve - --output json
  sequencefi solve traces.json --fault abort --fault "error 500" --phase resp`,
		Args: cobra.MinimumNArgs(1),
	}
	c.Flags().StringArrayVar(&faults, "fault", nil, "`fault` to try: error, \"error 500\", abort, drop, \"delay 1s\" (repeatable; default: error and abort)")
	c.Flags().StringSliceVar(&phases, "phase", nil, "`phase` to try: req, resp (default: both)")
	c.Flags().StringSliceVar(&leaves, "leaf", nil, "`service` that has no sidecar (repeatable)")
	c.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	c.Flags().IntVar(&limit, "limit", 0, "print at most this many candidates (0: all)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if output != "yaml" && output != "json" {
			return badUsage(c, "--output must be yaml or json, not %q", output)
		}
		if limit < 0 {
			return badUsage(c, "--limit must not be negative, not %d", limit)
		}
		request := &solverv1.StartSessionRequest{Faults: &campaignv1.FaultModel{}, Leaves: leaves}
		for _, text := range faults {
			f, err := campaignfile.ParseFault(text)
			if err != nil {
				return badUsage(c, "--fault %q %w", text, err)
			}
			request.Faults.Faults = append(request.Faults.Faults, f)
		}
		for _, text := range phases {
			p := map[string]tfiv1.Phase{"req": tfiv1.Phase_PHASE_REQ, "resp": tfiv1.Phase_PHASE_RESP}[text]
			if p == 0 {
				return badUsage(c, "--phase must be req or resp, not %q", text)
			}
			request.Faults.Phases = append(request.Faults.Phases, p)
		}
		if err := valid.Error(valid.StartSessionRequest(request)); err != nil {
			return &usageError{c, err}
		}
		return a.solve(c.Context(), c.InOrStdin(), args, request, output, limit)
	}
	return c
}

// maxWarnings bounds what is said about odd spans: a data base's are many.
const maxWarnings = 5

func (a *app) solve(ctx context.Context, stdin io.Reader, files []string, request *solverv1.StartSessionRequest, output string, limit int) error {
	var runs []*trace.Trial
	for _, file := range files {
		more, err := readRuns(ctx, stdin, file)
		if err != nil {
			return err
		}
		runs = append(runs, more...)
	}
	session, err := search.New(request)
	if err != nil {
		return err
	}
	warnings, err := session.AddTrials(runs)
	if err != nil {
		return err
	}
	for i, w := range warnings {
		if i == maxWarnings {
			fmt.Fprintf(a.stderr, "warning: and %d more like these\n", len(warnings)-maxWarnings)
			break
		}
		fmt.Fprintf(a.stderr, "warning: %s\n", report.OneLine(w))
	}
	candidates, err := session.Next(ctx, limit)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "%s from %s\n", count(len(candidates), "candidate"), count(len(runs), "run"))
	if output == "json" {
		return writeJSONList(a.stdout, candidates)
	}
	if len(candidates) == 0 {
		return nil
	}
	b, err := protoyaml.Sequence(candidates)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(b)
	return err
}

// maxTracesFile bounds what is read of one file; it may hold several runs.
const maxTracesFile = 4 * valid.MaxTracesData

// readRuns reads a file's traces, one run for each activation key, or for each
// trace where no sidecar reported. ctx's end is an error of its own.
func readRuns(ctx context.Context, stdin io.Reader, file string) ([]*trace.Trial, error) {
	b, err := readUntil(ctx, stdin, file)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("stopped while waiting for the traces in %s: %w", file, ctx.Err())
	}
	if errors.Is(err, bounded.ErrTooLarge) {
		err = fmt.Errorf("%w: split them into several files", err)
	}
	if err != nil {
		return nil, &usageError{err: fmt.Errorf("traces: %w", err)}
	}
	data, _, err := trace.Read(b)
	if err != nil {
		return nil, fmt.Errorf("traces in %s: %w", file, err)
	}
	trials, err := trace.Trials(data)
	if err != nil {
		return nil, fmt.Errorf("traces in %s: %w", file, err)
	}
	return trials, nil
}

// readUntil reads a file, or standard input, until ctx ends. Whoever writes to a pipe may take
// its time, and no signal ends a read.
func readUntil(ctx context.Context, stdin io.Reader, file string) ([]byte, error) {
	read := make(chan struct{})
	var all []byte
	var failed error
	go func() {
		defer close(read)
		if file == "-" {
			all, failed = bounded.Read(stdin, maxTracesFile)
		} else {
			all, failed = bounded.File(file, maxTracesFile)
		}
	}()
	select {
	case <-read:
		return all, failed
	case <-ctx.Done():
		return nil, ctx.Err() // the program ends, and its read with it
	}
}

func writeJSONList[M proto.Message](w io.Writer, list []M) error {
	raw := make([]json.RawMessage, 0, len(list))
	for _, m := range list {
		b, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		raw = append(raw, b)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(raw)
}
