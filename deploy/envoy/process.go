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
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
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
	cmd     *exec.Cmd
	admin   string
	dir     string
	tempDir bool
	logPath string
	client  *http.Client

	done chan struct{} // closed when the process has ended
	err  error         // its end; read after done
	stop sync.Once
}

// readyTimeout bounds how long Envoy may take to serve; a plugin in a static
// configuration is compiled first, which takes seconds on a busy machine.
const readyTimeout = 60 * time.Second

// Start starts Envoy and returns when its /ready answers 200. The process ends
// with Stop, or when this process dies.
//
// Errors: ErrNotFound; a process that ends first, with the end of its log; ctx's.
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
	p := &Process{admin: o.Admin, dir: o.Dir, done: make(chan struct{}), client: &http.Client{Transport: &http.Transport{}}}
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "sequencefi-envoy-")
		if err != nil {
			return nil, err
		}
		p.dir, p.tempDir = dir, true
	}
	if err := p.start(o); err != nil {
		p.removeDir()
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		tail := p.logTail()
		p.Stop()
		return nil, fmt.Errorf("envoy %s: %w%s", o.Name, err, tail)
	}
	return p, nil
}

func (p *Process) start(o Options) error {
	config := filepath.Join(p.dir, o.Name+".bootstrap"+configSuffix(o.Bootstrap))
	if err := os.WriteFile(config, o.Bootstrap, 0o600); err != nil {
		return err
	}
	p.logPath = filepath.Join(p.dir, o.Name+".log")
	log, err := os.Create(p.logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not bound to a context: Stop ends it gently, and Pdeathsig covers a crash.
	args := []string{
		"-c", config, "--concurrency", strconv.Itoa(max(1, o.Concurrency)),
		"-l", o.LogLevel, "--disable-hot-restart",
	}
	p.cmd = exec.Command(o.Path, append(args, o.Args...)...) //nolint:noctx // see above
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = endWithParent()
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends
		// (golang/go#27505), so this thread stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", o.Path, err)
	}
	return nil
}

func configSuffix(bootstrap []byte) string {
	if bytes.HasPrefix(bytes.TrimSpace(bootstrap), []byte("{")) {
		return ".json"
	}
	return ".yaml"
}

func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.Get(ctx, "/ready"); err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended before it was ready: %w", p.endError())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (p *Process) endError() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// logTail returns the last lines of the log, on lines of their own.
func (p *Process) logTail() string {
	log, err := p.Log()
	if err != nil || len(log) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return "\n" + strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// Get reads path of the admin interface.
//
// Errors: one that has the status and body where the status is not 200.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.200s", path, resp.Status, body)
	}
	return body, nil
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

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Admin is the host:port of the admin interface.
func (p *Process) Admin() string { return p.admin }

// Log returns all that the process has written.
func (p *Process) Log() ([]byte, error) { return os.ReadFile(p.logPath) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it has ended already
	<-p.done
}

// Stop ends the process, gently for five seconds, and returns when it has
// ended. It may be called more than once.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it has ended already
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
			p.Kill()
		}
		p.client.CloseIdleConnections()
		p.removeDir()
	})
}

func (p *Process) removeDir() {
	if p.tempDir {
		_ = os.RemoveAll(p.dir) // temporary anyway
	}
}
