// Package envoy starts a stock Envoy process, waits until it serves, reads its
// admin interface, and ends it.
//
// It builds no configuration: the caller hands in a bootstrap with an admin
// address. The three things to read first are [Find], [Start] and [Process].
package envoy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/deploy/process"
)

// Options of [Start].
type Options struct {
	// Path of the binary; empty means what Find returns for Version.
	Path string
	// Bootstrap in JSON or YAML. Its admin address must be Admin.
	Bootstrap []byte
	// Admin is the host:port of the admin interface; required.
	Admin string
	// Concurrency is the number of workers; 0 means 1.
	Concurrency int
	// Dir is where bootstrap and log are written; empty means a temporary folder
	// that Stop removes.
	Dir string
	// Name of this process in file names; empty means "envoy".
	Name string
	// LogLevel as Envoy names it; empty means "warning".
	LogLevel string
	// Args are further command-line arguments.
	Args []string
}

// Process is a running Envoy.
type Process struct {
	*process.Process
	*process.Admin
	remove func() // takes a temporary folder away
}

// readyTimeout bounds how long Envoy may take to serve; a plugin in a static
// configuration is compiled first, which takes seconds on a busy machine.
const readyTimeout = 60 * time.Second

// Start starts Envoy and returns when its /ready answers 200. The process ends
// with Stop, or when this process dies.
//
// Errors: ErrNotFound; [process.ErrEnded] with the end of its log; ctx's.
func Start(ctx context.Context, o Options) (*Process, error) {
	if o.Admin == "" {
		return nil, errors.New("envoy: Options.Admin is empty")
	}
	if o.Path == "" {
		path, err := Find(Version)
		if err != nil {
			return nil, err
		}
		o.Path = path
	}
	if o.Name == "" {
		o.Name = "envoy"
	}
	if o.LogLevel == "" {
		o.LogLevel = "warning"
	}
	remove := func() {}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "sequencefi-envoy-")
		if err != nil {
			return nil, err
		}
		o.Dir, remove = dir, func() { _ = os.RemoveAll(dir) } // temporary anyway
	}
	running, err := start(o)
	if err != nil {
		remove()
		return nil, err
	}
	p := &Process{Process: running, Admin: process.NewAdmin(o.Admin), remove: remove}
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

func start(o Options) (*process.Process, error) {
	config := filepath.Join(o.Dir, o.Name+".bootstrap"+configSuffix(o.Bootstrap))
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"-c", config, "--concurrency", strconv.Itoa(max(1, o.Concurrency)),
		"-l", o.LogLevel, "--disable-hot-restart",
	}
	return process.Start(process.Options{Name: o.Name, Path: o.Path, Args: append(args, o.Args...), LogDir: o.Dir})
}

func configSuffix(bootstrap []byte) string {
	if bytes.HasPrefix(bytes.TrimSpace(bootstrap), []byte("{")) {
		return ".json"
	}
	return ".yaml"
}

// Stats returns the counters and gauges whose names match the pattern.
func (p *Process) Stats(ctx context.Context, pattern *regexp.Regexp) (map[string]int64, error) {
	body, err := p.Get(ctx, "/stats")
	if err != nil {
		return nil, err
	}
	stats := map[string]int64{}
	for line := range strings.SplitSeq(string(body), "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || !pattern.MatchString(name) {
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			stats[name] = n
		}
	}
	return stats, nil
}

// vmCount is the gauge that every version has; 1.40 has wasm_vm_count beside it.
var vmCount = regexp.MustCompile(`^wasm\.envoy\.wasm\.runtime\..*\.active$`)

// VMs returns how many wasm VMs the process holds.
func (p *Process) VMs(ctx context.Context) (int64, error) {
	stats, err := p.Stats(ctx, vmCount)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, v := range stats {
		n += v
	}
	return n, nil
}

// Stop ends the process, gently for five seconds, and returns when it has
// ended. It may be called more than once.
func (p *Process) Stop() {
	p.Process.Stop()
	p.remove()
}
