package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// The errors of an answer that did not come; any other text is possible too.
const (
	ErrorTimeout = "timeout"
	ErrorReset   = "reset"
	ErrorRefused = "refused"
)

// request is a compiled HttpRequest.
type request struct {
	spec    *campaignv1.HttpRequest
	capture []capture
}

// capture is a variable and where its value comes from.
type capture struct {
	name string
	prg  *expr.Program
}

var _ action = (*request)(nil)

func compileRequest(spec *campaignv1.HttpRequest) (*request, []valid.Problem) {
	var problems []valid.Problem
	r := &request{spec: spec}
	names := make([]string, 0, len(spec.GetCapture()))
	for name := range spec.GetCapture() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		prg, err := expr.Compile(spec.GetCapture()[name], "answer")
		if err != nil {
			problems = append(problems, valid.Problem{
				Path: fmt.Sprintf("capture[%q]", name),
				Want: fmt.Sprintf("must be a CEL expression over `answer`: %v", err),
			})
			continue
		}
		r.capture = append(r.capture, capture{name, prg})
	}
	return r, problems
}

// run implements action.
func (q *request) run(ctx context.Context, r *run) Answer {
	start := time.Now()
	answer := q.send(ctx, r)
	answer.Duration = durationpb.New(time.Since(start))
	if answer.Error != "" {
		return answer
	}
	// A failed capture is not this answer's fault; the step that needs it says so.
	_ = q.captureFrom(ctx, answer, r.values)
	return answer
}

func (q *request) send(ctx context.Context, r *run) Answer {
	httpRequest, err := q.build(ctx, r)
	if err != nil {
		answer := failed(err.Error())
		answer.Unsent = true
		return answer
	}
	// A transport of its own: Go silently repeats a request whose reused connection
	// was reset, and the client would not see the fault. Following a redirect would be
	// a second request, and its answer another one.
	transport := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 1 << 20}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(httpRequest)
	if err != nil {
		return failed(errorText(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxWhole))
	answer := Answer{Whole: body, Answer: &campaignv1.Answer{
		Status:  uint32(response.StatusCode), //nolint:gosec // three digits
		Headers: flatten(response.Header),
	}}
	answer.Body, answer.BodyTruncated = cut(body)
	if err != nil {
		answer.Error = errorText(err)
	}
	return answer
}

func (q *request) build(ctx context.Context, r *run) (*http.Request, error) {
	target, err := expandURL(q.spec.GetUrl(), r.values)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	body, err := expand(q.spec.GetBody(), r.values, verbatim)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	out, err := http.NewRequestWithContext(ctx, q.spec.GetMethod(), target, reader)
	if err != nil {
		return nil, err
	}
	for name, value := range q.spec.GetHeaders() {
		value, err := expand(value, r.values, verbatim)
		if err != nil {
			return nil, fmt.Errorf("headers[%q]: %w", name, err)
		}
		if strings.EqualFold(name, "host") {
			out.Host = value
			continue
		}
		out.Header.Set(name, value)
	}
	if r.stamped {
		c, err := r.context()
		if err != nil {
			return nil, err
		}
		for _, h := range c.headers() {
			out.Header.Set(h.name, h.value)
		}
		r.traces = append(r.traces, c.reported())
	}
	return out, nil
}

// captureFrom puts what the answer gives into values; what it does not give is
// taken away, so that no step works with the value of an earlier one.
func (q *request) captureFrom(ctx context.Context, answer Answer, values map[string]string) error {
	var errs []error
	for _, c := range q.capture {
		delete(values, c.name)
		value, err := c.prg.Eval(ctx, variables(answer))
		if err != nil {
			errs = append(errs, fmt.Errorf("capture[%q]: %w", c.name, err))
			continue
		}
		text, ok := expr.Text(value)
		if !ok {
			errs = append(errs, fmt.Errorf("capture[%q]: %w: it gives a %T", c.name, ErrUnset, value))
			continue
		}
		values[c.name] = text
	}
	return errors.Join(errs...)
}

func failed(text string) Answer {
	return Answer{Answer: &campaignv1.Answer{Error: strings.ToValidUTF8(text, "\ufffd")}}
}

// errorText tells the errors apart that a client would tell apart.
func errorText(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return ErrorTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrorRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrorReset
	}
	return err.Error()
}

// flatten joins repeated headers as RFC 9110 §5.2 does; names are in lower case. Values
// may have any bytes (obs-text); those that a report's strings cannot hold become U+FFFD.
func flatten(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\ufffd")
	}
	return out
}

// cut returns the part of a body that a report keeps.
func cut(body []byte) ([]byte, bool) {
	if len(body) <= MaxBody {
		return body, false
	}
	return body[:MaxBody], true
}
