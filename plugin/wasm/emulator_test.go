//go:build !wasm

package wasm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// resetLog counts the streams that were reset: the SDK's emulator knows no reset
// and only logs that it was asked for one. What else it logs is kept for a failed test.
type resetLog struct {
	resets int
	text   bytes.Buffer
}

func (l *resetLog) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("ProxyCloseStream")) {
		l.resets++
	}
	if !bytes.Contains(b, []byte("[http callout")) {
		l.text.Write(b)
	}
	return len(b), nil
}

// emulator runs the filter in the SDK's emulator: as Go code, or as built wasm.
type emulator struct {
	t       testing.TB
	vm      types.VMContext
	vmConf  string
	host    proxytest.HostEmulator
	release func()
	log     resetLog
	seen    int // call-outs read
	spans   map[tfi.Key][]behaviour.Span
	// answers: the emulator can call the filter's call-out callbacks (Go only).
	answers bool
}

var _ behaviour.Sidecar = (*emulator)(nil)

func newEmulator(t testing.TB, vm types.VMContext, vmConf string) *emulator {
	e := &emulator{t: t, vm: vm, vmConf: vmConf, spans: map[tfi.Key][]behaviour.Span{}}
	_, e.answers = vm.(proxytest.WasmVMContext)
	e.answers = !e.answers
	log.SetOutput(&e.log)
	t.Cleanup(func() {
		log.SetOutput(os.Stderr)
		if e.release != nil {
			e.release()
		}
		if t.Failed() {
			text := e.log.text.Bytes()
			t.Logf("%s", text[max(0, len(text)-4096):])
		}
	})
	return e
}

// start starts the filter anew with a plugin configuration.
func (e *emulator) start(config []byte) error {
	if e.release != nil {
		e.release()
	}
	o := proxytest.NewEmulatorOption().WithVMContext(e.vm).WithPluginConfiguration(config)
	if e.vmConf != "" {
		o = o.WithVMConfiguration([]byte(e.vmConf))
	}
	e.host, e.release = proxytest.NewHostEmulator(o)
	e.seen = 0
	if e.host.StartVM() != types.OnVMStartStatusOK || e.host.StartPlugin() != types.OnPluginStartStatusOK {
		return errors.New("did not start")
	}
	return nil
}

// Apply implements behaviour.Sidecar.
func (e *emulator) Apply(_ context.Context, p *tfiv1.Policy) error {
	b, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	if err := e.start(b); err != nil {
		return err
	}
	if bad := e.host.GetErrorLogs(); len(bad) > 0 {
		return fmt.Errorf("filter says: %s", bad)
	}
	return nil
}

func (e *emulator) set(property string, value []byte) {
	if err := e.host.SetProperty(strings.Split(property, "."), value); err != nil {
		e.t.Fatal(err)
	}
}

// exchange is one call in the emulator.
type exchange struct {
	e      *emulator
	id     uint32
	resets int
	seen   *behaviour.Seen
	held   string // chunks that the filter keeps
	ended  bool   // replaced or reset
}

var errStuck = errors.New("stopped and did not go on")

// Do implements behaviour.Sidecar.
func (e *emulator) Do(ctx context.Context, c *behaviour.Call, trace tfi.TraceID) (*behaviour.Seen, error) {
	direction, cluster := uint64(1), "app"
	if c.Outbound {
		direction, cluster = 2, behaviour.PeerHTTP1
	}
	e.set("xds.listener_direction", binary.LittleEndian.AppendUint64(nil, direction))
	e.set("xds.cluster_name", []byte(cluster))
	e.set("response.code_details", []byte("via_upstream"))
	x := &exchange{e: e, id: e.host.InitializeHttpContext(), resets: e.log.resets, seen: &behaviour.Seen{TrailersUnseen: true}}
	begun := time.Now()
	err := x.run(ctx, c, trace)
	x.seen.Elapsed = time.Since(begun)
	if !e.answers {
		x.seen.Elapsed = max(x.seen.Elapsed, c.Want.AtLeast) // the emulated wasm has a clock of its own
	}
	e.host.CompleteHttpContext(x.id)
	return x.seen, err
}

func (x *exchange) run(ctx context.Context, c *behaviour.Call, trace tfi.TraceID) error {
	host := x.e.host
	headers := [][2]string{
		{":method", c.Request.Method},
		{":path", c.Request.Path},
		{":authority", "test"},
		{"traceparent", "00-" + trace.String() + "-00f067aa0ba902b7-01"},
	}
	for _, h := range c.Request.Headers {
		headers = append(headers, [2]string{h.Name, h.Value})
	}
	bare := len(c.Request.Chunks) == 0 && len(c.Request.Trailers) == 0
	if err := x.settle(ctx, host.CallOnRequestHeaders(x.id, headers, bare), false); err != nil {
		return err
	}
	if x.ended {
		return nil
	}
	x.seen.Called = true
	x.seen.RequestHeaders = lines(host.GetCurrentRequestHeaders(x.id))
	for i, chunk := range c.Request.Chunks {
		end := i == len(c.Request.Chunks)-1 && len(c.Request.Trailers) == 0
		if a := host.CallOnRequestBody(x.id, []byte(chunk), end); a != types.ActionContinue {
			return fmt.Errorf("request chunk %d: action %d", i, a)
		}
		x.seen.RequestBody += chunk
	}
	if len(c.Request.Trailers) > 0 {
		if a := host.CallOnRequestTrailers(x.id, pairs(c.Request.Trailers)); a != types.ActionContinue {
			return fmt.Errorf("request trailers: action %d", a)
		}
		// The emulator shows no trailers, and so not that evidence is gone from them.
		x.seen.RequestTrailers = slices.DeleteFunc(slices.Clone(c.Request.Trailers), func(h behaviour.Header) bool {
			return h.Name == tfi.EvidenceHeader
		})
	}
	return x.answer(ctx, c)
}

func (x *exchange) answer(ctx context.Context, c *behaviour.Call) error {
	host := x.e.host
	headers := append([][2]string{{":status", strconv.Itoa(c.Answer.Status)}}, pairs(c.Answer.Headers)...)
	bare := len(c.Answer.Chunks) == 0 && len(c.Answer.Trailers) == 0
	a := host.CallOnResponseHeaders(x.id, headers, bare)
	stopped := a == types.ActionPause && !bare
	if !stopped {
		if err := x.settle(ctx, a, true); err != nil || x.ended {
			return err
		}
	}
	for i, chunk := range c.Answer.Chunks {
		end := i == len(c.Answer.Chunks)-1 && len(c.Answer.Trailers) == 0
		a := host.CallOnResponseBody(x.id, []byte(chunk), end)
		if x.over(); x.ended {
			return nil
		}
		switch a {
		case types.ActionContinue:
			if c.Lockstep && x.held != "" {
				return fmt.Errorf("chunk %d did not flow", i)
			}
			x.seen.Body += x.held + chunk
			x.held, stopped = "", false
		case 2:
			x.held += chunk
		case 3:
			stopped = true
		default:
			return fmt.Errorf("chunk %d: action %d", i, a)
		}
	}
	if len(c.Answer.Trailers) > 0 {
		if err := x.settle(ctx, host.CallOnResponseTrailers(x.id, pairs(c.Answer.Trailers)), true); err != nil || x.ended {
			return err
		}
		x.seen.Trailers = c.Answer.Trailers
	} else if stopped {
		if err := x.settle(ctx, types.ActionPause, true); err != nil || x.ended {
			return err
		}
	}
	x.seen.Body += x.held
	x.seen.Headers = lines(host.GetCurrentResponseHeaders(x.id))
	x.seen.Status, _ = strconv.Atoi(first(behaviour.Get(x.seen.Headers, ":status")))
	return nil
}

// over takes note of a made answer or a reset.
func (x *exchange) over() {
	if r := x.e.host.GetSentLocalResponse(x.id); r != nil && !x.ended {
		x.ended = true
		s := x.seen
		s.Status, s.Body, s.Headers, s.Trailers, s.TrailersUnseen = int(r.StatusCode), strings.Clone(string(r.Data)), nil, nil, false
		for _, h := range r.Headers {
			s.Headers = append(s.Headers, behaviour.Header{Name: strings.Clone(h[0]), Value: strings.Clone(h[1])})
		}
		if r.GRPCStatus >= 0 {
			// As Envoy does with it.
			s.Headers = append(s.Headers,
				behaviour.Header{Name: "grpc-status", Value: strconv.Itoa(int(r.GRPCStatus))},
				behaviour.Header{Name: "grpc-message", Value: strings.ReplaceAll(s.Body, "%", "%25")})
			s.Body = ""
		}
	}
	if x.e.log.resets > x.resets && !x.ended {
		x.ended, x.seen.Broken = true, true
	}
}

// settle lets the filter's clock run until the stream goes on or is over.
func (x *exchange) settle(ctx context.Context, a types.Action, answering bool) error {
	x.over()
	if a == types.ActionContinue && !x.ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !x.ended {
		if x.e.host.GetCurrentHttpStreamAction(x.id) == types.ActionContinue {
			return nil
		}
		if err := x.e.tick(ctx); err != nil {
			return fmt.Errorf("%w: action %d", errStuck, a)
		}
		x.over()
	}
	if !answering && !x.seen.Broken {
		// Envoy shows a made answer to the filter that made it.
		made := append([][2]string{{":status", strconv.Itoa(x.seen.Status)}}, pairs(x.seen.Headers)...)
		if a := x.e.host.CallOnResponseHeaders(x.id, made, true); a != types.ActionContinue {
			return fmt.Errorf("the made answer was stopped: action %d", a)
		}
	}
	return nil
}

// tick calls the filter's clock once, as the host would if it was asked to.
func (e *emulator) tick(ctx context.Context) error {
	period := e.host.GetTickPeriod()
	if period == 0 {
		return errors.New("no tick is set")
	}
	if e.answers {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(period) * time.Millisecond):
		}
	}
	e.host.Tick()
	return ctx.Err()
}

// Spans implements behaviour.Sidecar.
func (e *emulator) Spans(ctx context.Context, key tfi.Key, done func([]behaviour.Span) bool) []behaviour.Span {
	for {
		outs := e.host.GetCalloutAttributesFromContext(proxytest.PluginContextID)
		for ; e.seen < len(outs); e.seen++ {
			out := outs[e.seen]
			if out.Upstream != behaviour.ReportCluster {
				e.t.Errorf("report to %q", out.Upstream)
			}
			spans, err := behaviour.DecodeSpans(out.Body)
			if err != nil {
				e.t.Error(err)
			}
			for k, s := range spans {
				e.spans[k] = append(e.spans[k], s...)
			}
			if e.answers {
				e.host.CallOnHttpCallResponse(out.CalloutID, [][2]string{{":status", "200"}}, nil, nil)
			}
		}
		if done(e.spans[key]) || e.tick(ctx) != nil {
			return e.spans[key]
		}
	}
}

func pairs(headers []behaviour.Header) (out [][2]string) {
	for _, h := range headers {
		out = append(out, [2]string{h.Name, h.Value})
	}
	return out
}

func lines(headers [][2]string) (out []behaviour.Header) {
	for _, h := range headers {
		out = append(out, behaviour.Header{Name: h[0], Value: h[1]})
	}
	return out
}

func first(s string, _ bool) string { return s }
