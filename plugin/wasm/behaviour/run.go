package behaviour

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/tfi/span"
)

// NewKey returns a random activation key.
func NewKey() (k tfi.Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// OrdinaryTrace is a trace id of no trial.
var OrdinaryTrace = tfi.TraceID{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36}

// callTimeout bounds one call of a case.
const callTimeout = 20 * time.Second

// Run runs the cases whose needs the sidecar's driver meets, each under a key of its own.
func Run(t *testing.T, sc Sidecar, can Feature, cases []Case) {
	for i := range cases {
		c := &cases[i]
		t.Run(c.Name, func(t *testing.T) {
			if c.Needs&^can != 0 {
				t.Skip("needs real connections, which this runner has not")
			}
			RunCase(t, sc, c)
		})
	}
}

// RunCase runs one case.
func RunCase(t *testing.T, sc Sidecar, c *Case) {
	t.Helper()
	for _, problem := range Check(t.Context(), sc, c) {
		t.Error(problem)
	}
}

// Check runs one case and returns what was not as it must be.
func Check(ctx context.Context, sc Sidecar, c *Case) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(c.Calls)+1)*callTimeout)
	defer cancel()
	key := NewKey()
	version := "case-" + key.String()
	if err := sc.Apply(ctx, Policy(version, Activation(key, c.Lifetime, c.TFICs...))); err != nil {
		return []string{"apply: " + err.Error()}
	}
	add := func(i int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("call %d: %s", i, fmt.Sprintf(format, args...)))
	}
	spans := 0
	for i := range c.Calls {
		call := c.Calls[i].withDefaults()
		trace := tfi.NewTraceID(key, uint64(i+1))
		if call.Ordinary {
			trace = OrdinaryTrace
		}
		if call.Foreign {
			trace = tfi.NewTraceID(NewKey(), uint64(i+1))
		}
		reported := trace
		if call.Named != "" {
			var mark Header
			mark, reported = named(call.Named, key)
			trace = OrdinaryTrace
			call.Request.Headers = append(slices.Clone(call.Request.Headers), mark)
		}
		seen, err := sc.Do(ctx, &call, trace)
		if err != nil {
			add(i, "%v", err)
			continue
		}
		for _, p := range compare(&call, seen) {
			add(i, "%s", p)
		}
		if call.Ordinary || call.Want.NoSpan {
			continue
		}
		spans++
		calls := callSpans(sc.Spans(ctx, key, func(s []Span) bool { return len(callSpans(s)) >= spans }))
		if len(calls) != spans {
			add(i, "%d spans of calls, want %d", len(calls), spans)
			continue
		}
		for _, p := range compareSpan(&call, calls[spans-1], version) {
			add(i, "%s", p)
		}
		if got := calls[spans-1].Trace; got != reported.String() {
			add(i, "reported in trace %s, want %s", got, reported)
		}
	}
	return problems
}

// named returns a header that names the trial, and the trace id under which such a call is
// reported: of 64 bits, or what follows from the key where the header has none.
func named(header string, key tfi.Key) (Header, tfi.TraceID) {
	const parent = "00f067aa0ba902b7"
	long := tfi.NewTraceID(key, 0)
	var padded tfi.TraceID
	copy(padded[8:], long[:8])
	short := padded.String()[16:]
	switch header {
	case "b3":
		return Header{header, short + "-" + parent + "-1"}, padded
	case "x-b3-traceid":
		return Header{header, short}, padded
	case "uber-trace-id":
		return Header{header, long.String() + ":" + parent + ":0:1"}, long
	default:
		return Header{header, "rojo=00f067aa0ba902b7,sfi=" + key.String()}, long
	}
}

func (c *Call) withDefaults() Call {
	out := *c
	if out.GRPC {
		out.HTTP2 = true
		out.Request.Method = "POST"
		out.Request.Headers = append(slices.Clone(out.Request.Headers), Header{"content-type", "application/grpc"}, Header{"te", "trailers"})
		if _, typed := Get(out.Answer.Headers, "content-type"); !typed {
			out.Answer.Headers = append(slices.Clone(out.Answer.Headers), Header{"content-type", "application/grpc"})
		}
	}
	if out.Request.Method == "" {
		out.Request.Method = "GET"
		if len(out.Request.Chunks) > 0 {
			out.Request.Method = "POST"
		}
	}
	if out.Answer.Status == 0 {
		out.Answer.Status = 200
	}
	return out
}

func callSpans(all []Span) (calls []Span) {
	for _, s := range all {
		if s.Attributes[span.Kind] == "call" {
			calls = append(calls, s)
		}
	}
	return calls
}

// compare lists what the two ends saw and should not have.
func compare(c *Call, s *Seen) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	w := &c.Want
	if s.Called == w.NotCalled {
		add("callee called: %v", s.Called)
	}
	if s.Called && !w.NotCalled {
		problems = append(problems, compareCallee(c, s)...)
	}
	if c.LeaveAfter > 0 {
		return problems // nobody saw an answer
	}
	if w.AtLeast > 0 && s.Elapsed < w.AtLeast {
		add("ended after %v, want at least %v", s.Elapsed, w.AtLeast)
	}
	if w.AtMost > 0 && s.Elapsed > w.AtMost {
		add("ended after %v, want at most %v", s.Elapsed, w.AtMost)
	}
	if s.Broken != w.Reset {
		add("answer broken: %v (status %d, body %.80q)", s.Broken, s.Status, s.Body)
	}
	if w.Reset {
		return problems
	}
	return append(problems, compareAnswer(c, s)...)
}

func compareCallee(c *Call, s *Seen) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	evidence, has := Get(s.RequestHeaders, tfi.EvidenceHeader)
	if want := c.Outbound && !c.Ordinary && !c.Want.NoSpan; has != want {
		add("callee sees evidence: %v (%q), want %v", has, evidence, want)
	}
	for _, h := range c.Request.Headers {
		if v, _ := Get(s.RequestHeaders, h.Name); v != h.Value && h.Name != "te" && h.Name != tfi.EvidenceHeader {
			add("callee sees %s: %q, want %q", h.Name, v, h.Value)
		}
	}
	if c.LeaveAfter > 0 {
		return problems
	}
	if want := strings.Join(c.Request.Chunks, ""); s.RequestBody != want {
		add("callee sees a body of %d bytes, want %d", len(s.RequestBody), len(want))
	}
	if v, ok := Get(s.RequestTrailers, tfi.EvidenceHeader); ok {
		add("callee sees evidence in trailers: %q", v)
	}
	for _, h := range c.Request.Trailers {
		if h.Name == tfi.EvidenceHeader {
			continue
		}
		if v, _ := Get(s.RequestTrailers, h.Name); v != h.Value {
			add("callee sees trailer %s: %q, want %q", h.Name, v, h.Value)
		}
	}
	return problems
}

func compareAnswer(c *Call, s *Seen) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	w := &c.Want
	status := c.Answer.Status
	if w.Status != 0 {
		status = w.Status
	}
	if s.Status != status {
		add("status %d, want %d", s.Status, status)
	}
	body := strings.Join(c.Answer.Chunks, "")
	if w.Replaced {
		body = w.Body
	}
	if c.Request.Method == "HEAD" {
		body = ""
	}
	if s.Body != body {
		add("body of %d bytes (%.80q), want %d (%.80q)", len(s.Body), s.Body, len(body), body)
	}
	ends := append(slices.Clone(s.Headers), s.Trailers...)
	if s.TrailersUnseen {
		return problems
	}
	if v, _ := Get(ends, tfi.InjectedHeader); v != w.Injected {
		add("%s: %q, want %q", tfi.InjectedHeader, v, w.Injected)
	}
	if v, ok := Get(ends, tfi.EvidenceHeader); ok && c.Outbound {
		add("application sees evidence %q", v)
	}
	want := slices.Clone(w.Headers)
	if !w.Replaced {
		want = append(want, c.Answer.Headers...)
	}
	for _, h := range want {
		if v, _ := Get(ends, h.Name); v != h.Value && h.Name != tfi.EvidenceHeader {
			add("client sees %s: %q, want %q", h.Name, v, h.Value)
		}
	}
	for _, h := range c.Answer.Trailers {
		switch {
		case h.Name == tfi.EvidenceHeader, w.Replaced:
		case w.GRPCFails && (h.Name == "grpc-status" || h.Name == "grpc-message" || h.Name == "grpc-status-details-bin"):
		default:
			if v, _ := Get(ends, h.Name); v != h.Value {
				add("client sees trailer %s: %q, want %q", h.Name, v, h.Value)
			}
		}
	}
	if w.GRPCFails {
		if v, _ := Get(ends, "grpc-status"); v != w.GRPCStatus {
			add("grpc-status %q, want %q", v, w.GRPCStatus)
		}
		if v, _ := Get(ends, "grpc-message"); v != w.GRPCMessage {
			add("grpc-message %q, want %q", v, w.GRPCMessage)
		}
		if _, ok := Get(ends, "grpc-status-details-bin"); ok {
			add("grpc-status-details-bin contradicts the status")
		}
	}
	return problems
}

// compareSpan lists what a call's span says and should not.
func compareSpan(c *Call, s Span, version string) (problems []string) {
	role := "server"
	if c.Outbound {
		role = "client"
	}
	for name, want := range map[string]any{
		span.Role: role, span.PolicyVersion: version, span.Service: Service,
		span.Fired: orNil(c.Want.Fired), span.FiredPhase: orNil(c.Want.Phase), span.Fault: orNil(c.Want.Fault),
		span.LetGo: trueOrNil(c.Want.LetGo), span.Unsent: trueOrNil(c.Want.Unsent),
	} {
		if got := s.Attributes[name]; got != want {
			problems = append(problems, fmt.Sprintf("span says %s = %v, want %v", name, got, want))
		}
	}
	return problems
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func trueOrNil(b bool) any {
	if !b {
		return nil
	}
	return true
}
