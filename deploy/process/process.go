// Package process starts programs that a demonstration or a test needs, and
// makes sure that they end.
//
// A program ends with [Process.Stop], or when this process dies, however it
// dies. Each has a process group of its own, so that a Ctrl-C in the terminal
// reaches only this process, which can then end its programs in good order. The
// two things to read first are [Start] and [Process].
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrEnded says that a program ended before it was ready.
var ErrEnded = errors.New("ended too early")

// Options of [Start].
type Options struct {
	// Name in messages and of the log file; required.
	Name string
	// Path of the program, and its arguments.
	Path string
	Args []string
	// Env is added to this process's environment, as NAME=value.
	Env []string
	// LogDir is where NAME.log with all output is written; required without Output.
	LogDir string
	// Output gets the program's output, so that it may be a terminal; nil: its log
	// file.
	Output *os.File
	// Grace is how long Stop waits after SIGTERM before it kills; 0 means 5 s.
	Grace time.Duration
}

// Process is a program that was started.
type Process struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	grace   time.Duration
	done    chan struct{} // closed when it has ended
	err     error         // its end; read after done
	stop    sync.Once
}

// Start starts a program.
//
// Errors: a log file that cannot be written, a program that cannot be started.
func Start(o Options) (*Process, error) {
	p := &Process{name: o.Name, logPath: filepath.Join(o.LogDir, o.Name+".log"), grace: o.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = 5 * time.Second
	}
	output := o.Output
	if output == nil {
		log, err := os.Create(p.logPath)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		}
		defer log.Close() // the child has its own descriptor
		output = log
	}
	// Not bound to a context: Stop ends it gently.
	p.cmd = exec.Command(o.Path, o.Args...) //nolint:noctx // see above
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the child ends
		// (golang/go#27505): keep it until the child has ended.
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
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	return p, nil
}

// WaitReady calls check every 10 ms until it returns nil.
//
// Errors: ErrEnded, with the end of the log; ctx's, with the last error of check.
func (p *Process) WaitReady(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s: %w: %w%s", p.name, ErrEnded, p.endError(), p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w%s", p.name, ctx.Err(), err, p.logTail())
		case <-tick.C:
		}
	}
}

// Name is what the program was called.
func (p *Process) Name() string { return p.name }

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is the program's exit code once it has ended, -1 where a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to the program.
//
// Errors: [os.ErrProcessDone].
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Log returns all that the program has written.
func (p *Process) Log() ([]byte, error) { return os.ReadFile(p.logPath) }

// LogPath is where the program's output is.
func (p *Process) LogPath() string { return p.logPath }

// Kill ends the program at once, as a crash would.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it has ended already
	<-p.done
}

// Stop ends the program, gently at first, and returns when it has ended. It may
// be called more than once.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it has ended already
		giveUp := time.NewTimer(p.grace)
		defer giveUp.Stop()
		select {
		case <-p.done:
		case <-giveUp.C:
			p.Kill()
		}
	})
}

func (p *Process) endError() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// logTail returns the last lines of the log, each on a line of its own.
func (p *Process) logTail() string {
	log, err := p.Log()
	if err != nil || len(log) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return "\n  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
