package tfiproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// Options of [Start].
type Options struct {
	// Path of the program; required.
	Path string
	// Config in JSON. Its admin address must be Admin.
	Config []byte
	// Admin is the host:port of the admin port; required.
	Admin string
	// Dir is where configuration and log are written; required.
	Dir string
	// Name of this process in file names; empty means "tfiproxy".
	Name string
}

// Process is a running TFIProxy.
type Process struct {
	*process.Process
	*process.Admin
}

// readyTimeout bounds how long it may take to serve, on a busy machine.
const readyTimeout = 30 * time.Second

// Start starts a TFIProxy and returns when its /ready answers 200. The process ends
// with Stop, or when this process dies.
//
// Errors: [process.ErrEnded] with the end of its log; ctx's.
func Start(ctx context.Context, o Options) (*Process, error) {
	if o.Path == "" || o.Admin == "" || o.Dir == "" {
		return nil, errors.New("tfiproxy: Options must have Path, Admin and Dir")
	}
	if o.Name == "" {
		o.Name = "tfiproxy"
	}
	config := filepath.Join(o.Dir, o.Name+".json")
	if err := os.WriteFile(config, o.Config, 0o600); err != nil {
		return nil, err
	}
	running, err := process.Start(process.Options{Name: o.Name, Path: o.Path, Args: []string{config}, LogDir: o.Dir})
	if err != nil {
		return nil, err
	}
	p := &Process{Process: running, Admin: process.NewAdmin(o.Admin)}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, func(ctx context.Context) error {
		_, err := p.Get(ctx, "/ready")
		return err
	}); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// Policy returns the version of the policy in force; empty: there is none.
func (p *Process) Policy(ctx context.Context) (version string, err error) {
	b, err := p.Get(ctx, "/policy")
	if err != nil {
		return "", err
	}
	var state struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return "", fmt.Errorf("/policy: %w", err)
	}
	return state.Version, nil
}

// Metric returns the sum of a counter over its labels.
func (p *Process) Metric(ctx context.Context, name string) (uint64, error) {
	b, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	var sum uint64
	for line := range strings.Lines(string(b)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if of, _, _ := strings.Cut(series, "{"); !ok || of != name {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/metrics: %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}
