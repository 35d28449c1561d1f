// Package tracetest makes the spans that sidecars would report of a run, for
// tests. It keeps its own count of who saw what when, and so is independent of
// both the engine and the code under test.
package tracetest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
)

// Run is one run of a workload under way.
type Run struct {
	key   string
	now   time.Duration
	skew  map[string]time.Duration
	seq   map[string]int64
	ranks map[string]int64
	calls []*Call
	leaf  map[string]bool
	ended bool
}

// Start of all runs on an exact clock.
var Start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// New starts a run whose key is derived from name.
func New(name string) *Run {
	sum := sha256.Sum256([]byte(name))
	return &Run{
		key: hex.EncodeToString(sum[:7]), skew: map[string]time.Duration{}, seq: map[string]int64{},
		ranks: map[string]int64{}, leaf: map[string]bool{},
	}
}

// Key is the run's activation key in hex.
func (r *Run) Key() string { return r.key }

// Skew sets the clock of a service's sidecar apart.
func (r *Run) Skew(service string, by time.Duration) { r.skew[service] = by }

// Leaf says that a service has no sidecar.
func (r *Run) Leaf(service string) { r.leaf[service] = true }

// Pass lets time go by.
func (r *Run) Pass(d time.Duration) { r.now += d }

// moment is an event at one end.
type moment struct {
	seq     int64
	at      time.Time
	from    string
	fromSeq int64
}

// Call is one call of a run. Its methods are the steps that it takes, in any
// order that other calls' steps leave room for.
type Call struct {
	run                 *Run
	id                  int
	parent              int // the application's span that made it
	caller, callee, api string
	grpc                bool
	k                   int64

	sent, got, delivered moment // at the caller
	received, answered   moment // at the callee
	status               int64
	refused              bool

	// Fired, if set, is the id of a TFIC that fired at the caller in FiredPhase by Fault.
	Fired, FiredPhase, Fault string
	// Unsent: the caller left while a fault delayed the request.
	Unsent bool
	// Bytes of the answer, and its type; Chunked: its length was not announced.
	Bytes   int64
	Type    string
	Chunked bool
	// Lost reports.
	DropClient, DropServer bool
}

func instance(service string) string {
	sum := sha256.Sum256([]byte("instance " + service))
	return hex.EncodeToString(sum[:6])
}

func (r *Run) event(service string) moment {
	r.now += time.Millisecond
	r.seq[service]++
	return moment{seq: r.seq[service], at: Start.Add(r.now + r.skew[service])}
}

// serviceOf is the service of an instance; where several run, they are called
// `name#1`, `name#2`.
func serviceOf(instance string) string {
	name, _, _ := strings.Cut(instance, "#")
	return name
}

// Send lets the caller's sidecar see a request; caller "" is the client, which
// has none. Both ends are services, or instances of one.
func (r *Run) Send(caller, callee, api string) *Call {
	c := &Call{run: r, id: len(r.calls), parent: len(r.calls), caller: caller, callee: callee, api: api, Bytes: 100, Type: "application/json"}
	c.grpc = api[0] >= 'a' && api[0] <= 'z'
	r.calls = append(r.calls, c)
	edge := caller + "\x00" + serviceOf(callee) + "\x00" + api
	r.ranks[edge]++
	c.k = r.ranks[edge]
	if caller != "" {
		c.sent = r.event(caller)
	}
	return c
}

// Again has the caller make the call once more, out of the same span, as an HTTP client does
// whose connection broke.
func (c *Call) Again() *Call {
	d := c.run.Send(c.caller, c.callee, c.api)
	d.parent = c.parent
	return d
}

// Receive lets the callee's sidecar see the request.
func (c *Call) Receive() *Call {
	if c.run.leaf[c.callee] {
		return c
	}
	c.received = c.run.event(c.callee)
	if c.caller != "" {
		c.received.from, c.received.fromSeq = instance(c.caller), c.sent.seq
	}
	return c
}

// Answer lets the callee's sidecar see the answer: an HTTP or gRPC status.
func (c *Call) Answer(status int) *Call {
	c.status = int64(status)
	if !c.run.leaf[c.callee] {
		c.answered = c.run.event(c.callee)
	}
	return c
}

// Refuse lets a fault at the callee's sidecar answer the request itself: that
// answer is no event there, and carries the request's own number.
func (c *Call) Refuse(status int) *Call {
	c.status, c.refused = int64(status), !c.run.leaf[c.callee]
	return c
}

// Get lets the caller's sidecar see the answer.
func (c *Call) Get() *Call {
	if c.caller == "" {
		return c
	}
	c.got = c.run.event(c.caller)
	switch {
	case c.answered.seq != 0:
		c.got.from, c.got.fromSeq = instance(c.callee), c.answered.seq
	case c.refused:
		c.got.from, c.got.fromSeq = instance(c.callee), c.received.seq
	}
	return c
}

// Deliver lets the caller's sidecar see that the application has the answer.
func (c *Call) Deliver() *Call {
	if c.caller != "" {
		c.delivered = c.run.event(c.caller)
	}
	return c
}

// Done is all of a call that succeeds at once.
func (c *Call) Done() *Call {
	return c.Receive().Answer(c.OK()).Get().Deliver()
}

// OK is the status of success.
func (c *Call) OK() int {
	if c.grpc {
		return 0
	}
	return 200
}

// FailRequest lets a fault take the request's place at the caller.
func (c *Call) FailRequest(tfic, fault string) *Call {
	c.Fired, c.FiredPhase, c.Fault = tfic, "req", fault
	return c
}

// FailAnswer lets a fault take the answer's place at the caller.
func (c *Call) FailAnswer(tfic, fault string) *Call {
	c.Get()
	c.Fired, c.FiredPhase, c.Fault = tfic, "resp", fault
	return c
}

// End lets all sidecars report their final counts.
func (r *Run) End() *Run { r.ended = true; return r }

// Traces are the spans of the run so far.
func (r *Run) Traces() *tracev1.TracesData {
	by := map[string][]*tracev1.Span{}
	for _, c := range r.calls {
		if c.caller != "" && !c.DropClient {
			by[c.caller] = append(by[c.caller], c.span(true))
		}
		if c.received.seq != 0 && !c.DropServer {
			by[c.callee] = append(by[c.callee], c.span(false))
		}
	}
	var services []string
	for s := range by {
		services = append(services, s)
	}
	slices.Sort(services)
	td := &tracev1.TracesData{}
	for _, s := range services {
		if r.ended {
			by[s] = append(by[s], &tracev1.Span{
				TraceId: r.traceID(), SpanId: r.spanID(s, -1),
				Attributes: attributes(span.Kind, "trial_end", span.Key, r.key, span.Service, serviceOf(s), span.Instance, instance(s), span.Events, r.seq[s]),
			})
		}
		td.ResourceSpans = append(td.ResourceSpans, &tracev1.ResourceSpans{
			Resource:   &resourcev1.Resource{Attributes: attributes("service.name", serviceOf(s))},
			ScopeSpans: []*tracev1.ScopeSpans{{Spans: by[s]}},
		})
	}
	return td
}

// Recorded is the run as a solver gets it.
func (r *Run) Recorded() *solverv1.RecordedTrial {
	b, err := proto.Marshal(r.Traces())
	if err != nil {
		panic(fmt.Sprintf("tracetest: %v", err))
	}
	return &solverv1.RecordedTrial{Id: r.key, TracesData: b}
}

func (r *Run) traceID() []byte {
	id, _ := hex.DecodeString("5f1c" + r.key + "00000000000001")
	return id
}

func (r *Run) spanID(service string, n int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", r.key, service, n))
	return sum[:8]
}

func (c *Call) span(client bool) *tracev1.Span {
	r := c.run
	service, peer, role := c.callee, c.caller, "server"
	req, resp, delivered := c.received, c.answered, moment{}
	if client {
		service, peer, role = c.caller, c.callee, "client"
		req, resp, delivered = c.sent, c.got, c.delivered
	}
	protocol := "http"
	if c.grpc {
		protocol = "grpc"
	}
	kv := []any{
		span.Kind, "call", span.Key, r.key, span.Service, serviceOf(service), span.Instance, instance(service), span.Role, role,
		span.Peer, serviceOf(peer), span.API, c.api, span.K, c.k, span.Protocol, protocol, span.PolicyVersion, "1",
		span.ReqSeq, req.seq, span.ReqTime, req.at.UnixNano(),
	}
	if req.from != "" {
		kv = append(kv, span.ReqFromInstance, req.from, span.ReqFromSeq, req.fromSeq)
	}
	if resp.seq != 0 {
		outcome := "success"
		if c.grpc && c.status != 0 || !c.grpc && c.status >= 400 {
			outcome = "failure"
		}
		kv = append(kv, span.RespSeq, resp.seq, span.RespTime, resp.at.UnixNano(), span.Status, c.status, span.Outcome, outcome,
			span.Bytes, c.Bytes, span.Chunks, int64(1), span.ContentType, c.Type, span.Length, !c.Chunked)
	}
	if resp.from != "" {
		kv = append(kv, span.RespFromInstance, resp.from, span.RespFromSeq, resp.fromSeq)
	}
	if delivered.seq != 0 {
		kv = append(kv, span.DeliveredSeq, delivered.seq, span.DeliveredTime, delivered.at.UnixNano())
	}
	if client && c.Fired != "" {
		kv = append(kv, span.Fired, c.Fired, span.FiredPhase, c.FiredPhase, span.Fault, c.Fault)
	}
	if client && c.Unsent {
		kv = append(kv, span.Unsent, true)
	}
	return &tracev1.Span{
		TraceId: r.traceID(), SpanId: r.spanID(service, c.id), ParentSpanId: r.spanID("application", c.parent), Name: c.api,
		StartTimeUnixNano: binaryNano(req.at), EndTimeUnixNano: binaryNano(req.at), Attributes: attributes(kv...),
	}
}

func binaryNano(t time.Time) uint64 { return uint64(t.UnixNano()) }

func attributes(kv ...any) []*commonv1.KeyValue {
	var out []*commonv1.KeyValue
	for i := 0; i < len(kv); i += 2 {
		v := &commonv1.AnyValue{}
		switch x := kv[i+1].(type) {
		case string:
			v.Value = &commonv1.AnyValue_StringValue{StringValue: x}
		case int64:
			v.Value = &commonv1.AnyValue_IntValue{IntValue: x}
		case bool:
			v.Value = &commonv1.AnyValue_BoolValue{BoolValue: x}
		default:
			panic(fmt.Sprintf("tracetest: attribute %v of type %T", kv[i], x))
		}
		name, _ := kv[i].(string)
		out = append(out, &commonv1.KeyValue{Key: name, Value: v})
	}
	return out
}

// seeded gives numbers that only depend on the seed.
func seeded(seed uint64, i int) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(i))
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint64(sum[:8])
}
