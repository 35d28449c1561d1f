package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// command is a program whose exit code is the outcome. Its requests are marked in
// two ways: it may take TRACEPARENT and its kin from its environment, and what it sends
// through HTTP_PROXY is marked by a proxy on the loopback interface. (Go's own client uses
// no proxy for localhost: such programs need the variables.)
type command struct{ spec *campaignv1.Command }

var _ action = command{}

// run implements action.
func (c command) run(ctx context.Context, r *run) Answer {
	start := time.Now()
	answer := c.exec(ctx, r)
	answer.Duration = durationpb.New(time.Since(start))
	return answer
}

func (c command) exec(ctx context.Context, r *run) Answer {
	argv := c.spec.GetArgv()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the user's own command
	cmd.Env = append(os.Environ(), "SEQUENCEFI_TRIAL_ID="+r.key.String())
	if r.stamped {
		c, err := r.context()
		if err != nil {
			return failed(err.Error())
		}
		p, err := startProxy(ctx, c)
		if err != nil {
			return failed(err.Error())
		}
		defer func() {
			seen, unmarked := p.stop()
			r.traces, r.unmarked = append(r.traces, seen...), unmarked
		}()
		r.traces = append(r.traces, c.reported())
		cmd.Env = append(slices.DeleteFunc(cmd.Env, namesTrace), c.variables()...)
		cmd.Env = append(cmd.Env,
			"HTTP_PROXY="+p.url(), "http_proxy="+p.url(), "NO_PROXY=", "no_proxy=")
	}
	cmd.Env = append(cmd.Env, environment(c.spec.GetEnv())...)
	// What the command starts must end with it, also where it ends by itself: it gets a
	// process group of its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output

	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // nobody may be left
	}
	answer := Answer{Answer: &campaignv1.Answer{Body: output.buf, BodyTruncated: output.cut}, Whole: output.buf}
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		answer.Error = ErrorTimeout
	case ctx.Err() != nil:
		answer.Error = ctx.Err().Error()
	case errors.As(err, &exit):
		answer.ExitCode = int32(exit.ExitCode()) //nolint:gosec // -1 to 255
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			answer.Error = fmt.Sprintf("killed by %s", status.Signal())
		}
	case err != nil:
		answer.Error = err.Error()
	}
	return answer
}

// namesTrace says whether a variable has trace context, in whichever format: one that
// SequenceFI was started with is none of the trial's.
func namesTrace(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == strings.ToUpper(name) && valid.TraceHeader(strings.ReplaceAll(name, "_", "-"))
}

func environment(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// tail keeps the end of a command's output, where a failing test says why.
type tail struct {
	buf []byte
	cut bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if excess := len(t.buf) - MaxBody; excess > 0 {
		t.buf = bytes.Clone(t.buf[excess:])
		t.cut = true
	}
	return len(p), nil
}
