package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/report"
	"github.com/sequencefi/sequencefi/deploy/process"
)

// RunOptions of [Run].
type RunOptions struct {
	Options
	// Product is the path of the `sequencefi` command; required. Without
	// Options.Plugin it finds the wasm module by itself.
	Product string
	// Output is the terminal, or the file, to which the product writes; nil:
	// standard output.
	Output *os.File
}

// Outcome is what a demonstration came to.
type Outcome struct {
	report.Summary
	// Dir has report.json, report.html, junit.xml and summary.json.
	Dir string
	// Search is how long the product ran, with loading the plugin.
	Search time.Duration
	// ExitCode of the product.
	ExitCode int
}

var (
	// ErrProduct says that the campaign could not be run to its end.
	ErrProduct = errors.New("the campaign failed")
	// ErrWasmBefore says that an Envoy had a wasm VM before any campaign.
	ErrWasmBefore = errors.New("an Envoy has a wasm VM before the campaign")
)

const (
	// stopGrace is how long the product may take to clear its activations.
	stopGrace = 15 * time.Second
	// wasmGone bounds how long the Envoys may take to drop the plugin.
	wasmGone = 20 * time.Second
	// The product's exit codes: nothing found, findings.
	exitNothing  = 0
	exitFindings = 1
)

// Run starts the environment, runs the campaign by the product's own command,
// and checks that nothing of it stays in the sidecars. Nothing is left running
// when it returns, also where ctx ended it.
//
// Errors: those of [Start]; ErrProduct; ErrWasmBefore; ctx's.
func Run(ctx context.Context, o RunOptions) (*Outcome, error) {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	if o.Output == nil {
		o.Output = os.Stdout
	}
	if _, err := os.Stat(o.Product); err != nil {
		return nil, fmt.Errorf("%w: run `make build` (%w)", ErrProduct, err)
	}
	env, err := Start(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	defer func() {
		o.Step("stopping everything")
		env.Close()
	}()
	vms, err := env.WasmVMs(ctx)
	if err != nil {
		return nil, err
	}
	idle := idleVMs(vms)
	if idle > 0 && o.EnvoyVersion == "" {
		return nil, fmt.Errorf("%w: %v", ErrWasmBefore, vms)
	}
	if idle == 0 {
		o.Step(env.idleText() + "; the campaign begins")
	} else {
		o.Step(fmt.Sprintf("the Envoys have %d idle wasm VMs, as this version needs; the campaign begins", idle))
	}
	out, err := env.campaign(ctx, o)
	if err != nil {
		return nil, err
	}
	if idle > 0 {
		return out, nil
	}
	gone, cancel := context.WithTimeout(ctx, wasmGone)
	defer cancel()
	if err := env.WaitNoWasm(gone); err != nil {
		return out, err
	}
	o.Step(env.idleText() + " again")
	return out, nil
}

func idleVMs(vms map[string]int) int {
	n := 0
	for _, of := range vms {
		n += of
	}
	return n
}

// campaign runs `sequencefi run` as a user would.
func (e *Env) campaign(ctx context.Context, o RunOptions) (*Outcome, error) {
	// The environment ends with the run: whoever shows its end says what replays.
	args := []string{"run", e.CampaignFile, "--out", e.Dir, "--throwaway"}
	if traces := e.Traces(); traces != "" {
		args = append(args, "--traces", traces)
	}
	if o.Plugin != "" {
		args = append(args, "--plugin", o.Plugin)
	}
	began := time.Now()
	if err := e.removeOldReports(); err != nil {
		return nil, err
	}
	p, err := process.Start(process.Options{Name: "sequencefi", Path: o.Product, Args: args, Output: o.Output, Grace: stopGrace})
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	select {
	case <-p.Done():
	case <-ctx.Done():
		// As Ctrl-C would: the product stops cleanly and keeps what it found.
		_ = p.Signal(os.Interrupt) // it has ended already
		stopped := time.NewTimer(stopGrace)
		defer stopped.Stop()
		select {
		case <-p.Done():
		case <-stopped.C:
		}
		return nil, ctx.Err()
	}
	out := &Outcome{Dir: e.Dir, Search: time.Since(began), ExitCode: p.ExitCode()}
	if out.ExitCode != exitNothing && out.ExitCode != exitFindings {
		return nil, fmt.Errorf("%w: exit code %d", ErrProduct, out.ExitCode)
	}
	b, err := os.ReadFile(filepath.Join(e.Dir, "summary.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProduct, err)
	}
	if err := json.Unmarshal(b, &out.Summary); err != nil {
		return nil, fmt.Errorf("%w: summary.json: %w", ErrProduct, err)
	}
	return out, nil
}

// removeOldReports makes sure that what is read afterwards is of this run.
func (e *Env) removeOldReports() error {
	for _, name := range []string{"summary.json", "report.json", "report.html", "junit.xml"} {
		if err := os.Remove(filepath.Join(e.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
