package behaviour

import (
	"fmt"
	"strings"
	"time"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Shorthands of the table.
const (
	req       = tfiv1.Phase_PHASE_REQ
	resp      = tfiv1.Phase_PHASE_RESP
	unary     = tfiv1.AnswerKind_ANSWER_KIND_UNARY
	streaming = tfiv1.AnswerKind_ANSWER_KIND_STREAMING
	unknown   = tfiv1.AnswerKind_ANSWER_KIND_UNSPECIFIED
)

const (
	getItems   = "GET /items"
	postItems  = "POST /items"
	grpcAPI    = "cart.Cart/Add"
	grpcPath   = "/cart.Cart/Add"
	grpcFrame  = "\x00\x00\x00\x00\x05hello"
	shortDelay = 60 * time.Millisecond
	// soon bounds a call that nothing delays, on a busy machine.
	soon = 5 * time.Second
)

var (
	someItems = []string{`{"items":[1,2,3]}`}
	grpcOK    = []Header{{"grpc-status", "0"}}
	// A rich error that a made status must not be contradicted by.
	grpcRich = []Header{{"grpc-status", "0"}, {"grpc-message", "fine"}, {"grpc-status-details-bin", "CAESBGZpbmU"}}
)

// large is a body in chunks, 1 MiB in all: more than the windows and most
// buffers of a proxy.
func large(chunks int) []string {
	out := make([]string, chunks)
	for i := range out {
		out[i] = strings.Repeat(string(rune('a'+i%26)), 1<<20/chunks)
	}
	return out
}

// Table is the behaviour of a sidecar.
func Table() []Case {
	var all []Case
	for _, part := range [][]Case{passing(), httpFaults(), streamFaults(), grpcFaults(), leaving(), unmade(), guarded()} {
		all = append(all, part...)
	}
	return all
}

// namedCalls have each header by which applications may pass a trial on.
func namedCalls() (calls []Call) {
	for _, header := range []string{"tracestate", "b3", "x-b3-traceid", "uber-trace-id"} {
		for _, http2 := range []bool{false, true} {
			calls = append(calls,
				Call{Named: header, HTTP2: http2, Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}},
				Call{Named: header, HTTP2: http2, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}})
		}
	}
	return calls
}

// passing are the exchanges that a trial's sidecar must not change.
func passing() []Case {
	cases := []Case{
		{Name: "ordinary traffic", Calls: []Call{
			{Ordinary: true, Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}},
			{Ordinary: true, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}},
		}},
		{Name: "a trial that another header than traceparent names", Calls: namedCalls()},
		{Name: "no answer body", Calls: []Call{
			{Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Status: 204}},
			{Request: Message{Path: "/items"}, Answer: Message{Status: 304}},
		}},
		{Name: "client cannot smuggle evidence in", Calls: []Call{
			{Request: Message{Path: "/items", Headers: []Header{{"x-fic-evidence", "AQEBAQ"}}}, Answer: Message{Chunks: someItems}},
			{
				Outbound: true,
				Request:  Message{Path: "/items", Headers: []Header{{"x-fic-evidence", "AQEBAQ"}}},
				Answer:   Message{Chunks: someItems, Headers: []Header{{"x-fic-evidence", "AQEBAQ"}}},
			},
		}},
		{Name: "evidence of no live trial comes off", Calls: strayEvidence()},
		{Name: "evidence where no sidecar puts it comes off", Calls: []Call{
			{
				Outbound: true, HTTP2: true,
				Request: Message{Path: "/items", Chunks: []string{"x"}, Trailers: []Header{{"x-fic-evidence", "AQEBAQ"}}},
				Answer:  Message{Chunks: someItems, Trailers: []Header{{"x-fic-evidence", "AQEBAQ"}}},
			},
			{
				Ordinary: true, HTTP2: true,
				Request: Message{Path: "/items", Chunks: []string{"x"}, Trailers: []Header{{"x-sum", "1"}}}, Answer: Message{Chunks: someItems},
			},
			{
				Outbound: true, GRPC: true, Request: Message{Path: grpcPath, Chunks: []string{grpcFrame}},
				Answer: Message{Headers: []Header{{"x-fic-evidence", "AQEBAQ"}}, Chunks: []string{grpcFrame}, Trailers: grpcOK},
			},
		}},
		{Name: "health check in a trial", Calls: []Call{
			{Request: Message{Path: "/healthz"}, Answer: Message{Chunks: []string{"ok"}}, Want: Want{NoSpan: true}},
		}},
		{Name: "HEAD", Needs: Sockets, Calls: []Call{
			{Outbound: true, Request: Message{Method: "HEAD", Path: "/items"}, Answer: Message{Headers: []Header{{"content-length", "17"}}}},
		}},
		{Name: "expect 100-continue", Needs: Sockets, Calls: []Call{
			{Outbound: true, Continue: true, Request: Message{Path: "/items", Chunks: []string{"a", "b"}}, Answer: Message{Chunks: someItems}},
			{Continue: true, Request: Message{Path: "/items", Chunks: []string{"a", "b"}}, Answer: Message{Chunks: someItems}},
		}},
		{Name: "websocket", Needs: Sockets, Calls: []Call{
			{Outbound: true, Upgrade: true, Lockstep: true, Duplex: true, Request: Message{Path: "/ws", Chunks: []string{"ping", "pong"}}, Answer: Message{Status: 101, Chunks: []string{"PING", "PONG"}}},
			{Upgrade: true, Lockstep: true, Duplex: true, Request: Message{Path: "/ws", Chunks: []string{"ping", "pong"}}, Answer: Message{Status: 101, Chunks: []string{"PING", "PONG"}}},
		}},
		{Name: "server-sent events flow", Calls: []Call{
			{Outbound: true, Lockstep: true, Request: Message{Path: "/events"}, Answer: Message{Headers: []Header{{"content-type", "text/event-stream"}}, Chunks: []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}}},
			{Lockstep: true, Request: Message{Path: "/events"}, Answer: Message{Headers: []Header{{"content-type", "text/event-stream"}}, Chunks: []string{"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}}},
		}},
		{Name: "callee fails", Calls: []Call{
			{Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Status: 503, Chunks: []string{"busy"}}},
			{Outbound: true, GRPC: true, Request: Message{Path: grpcPath, Chunks: []string{grpcFrame}}, Answer: Message{Headers: []Header{{"grpc-status", "5"}, {"grpc-message", "none"}}}},
			{GRPC: true, Request: Message{Path: grpcPath, Chunks: []string{grpcFrame}}, Answer: Message{Headers: []Header{{"grpc-status", "5"}, {"grpc-message", "none"}}}},
		}},
	}
	for _, http2 := range []bool{false, true} {
		name := map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2]
		cases = append(cases,
			Case{Name: "clean " + name, Calls: []Call{
				{Outbound: true, HTTP2: http2, Request: Message{Path: "/items?q=1"}, Answer: Message{Chunks: someItems, Headers: []Header{{"x-own", "1"}}}},
				{HTTP2: http2, Request: Message{Path: "/items", Chunks: []string{"one", "two"}}, Answer: Message{Chunks: someItems}},
			}},
			Case{Name: "large bodies " + name, Calls: []Call{
				{Outbound: true, HTTP2: http2, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(32)}},
				{HTTP2: http2, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(32)}},
			}})
	}
	cases = append(cases, Case{Name: "trailers", Calls: []Call{{
		Outbound: true, HTTP2: true, Request: Message{Path: "/items", Chunks: []string{"x"}, Trailers: []Header{{"x-sum", "1"}}},
		Answer: Message{Chunks: someItems, Trailers: []Header{{"x-sum", "2"}}},
	}}})
	for _, shape := range []struct {
		name           string
		ask, reply     int
		lockstep, both bool
	}{
		{"unary", 1, 1, false, false},
		{"client streaming", 3, 1, true, false},
		{"server streaming", 1, 3, true, false},
		{"bidirectional", 3, 3, true, true},
	} {
		var calls []Call
		for _, out := range []bool{true, false} {
			calls = append(calls, Call{
				Outbound: out, GRPC: true, Lockstep: shape.lockstep, Duplex: shape.both,
				Request: Message{Path: grpcPath, Chunks: frames(shape.ask)},
				Answer:  Message{Chunks: frames(shape.reply), Trailers: grpcOK},
			})
		}
		cases = append(cases, Case{Name: "gRPC " + shape.name, Calls: calls})
	}
	return cases
}

// strayEvidence are calls that are marked, bear evidence, and are not judged: their
// trial is another's, or their path is exempt.
func strayEvidence() (calls []Call) {
	stray := []Header{{"x-fic-evidence", "AQEBAQ"}}
	for _, http2 := range []bool{false, true} {
		for _, out := range []bool{false, true} {
			for _, path := range []string{"/items", "/healthz"} {
				calls = append(calls, Call{
					Outbound: out, HTTP2: http2, Foreign: path == "/items",
					Request: Message{Path: path, Headers: stray}, Answer: Message{Chunks: someItems, Headers: stray},
					Want: Want{NoSpan: true},
				})
			}
		}
	}
	return calls
}

func frames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("\x00\x00\x00\x00\x05hell%d", i)
	}
	return out
}

// httpFaults are the faults of plain HTTP calls whose answers may be held.
func httpFaults() []Case {
	var cases []Case
	sides := []struct {
		name     string
		outbound bool
		target   func(string, tfiv1.Phase) *tfiv1.StaticConfiguration
	}{{"at the caller", true, outbound}, {"at the callee", false, inbound}}
	for _, side := range sides {
		for _, http2 := range []bool{false, true} {
			name := side.name + map[bool]string{false: ", HTTP/1.1", true: ", HTTP/2"}[http2]
			get := func(w Want) []Call {
				return []Call{
					{Outbound: side.outbound, HTTP2: http2, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}, Want: w},
					// It fires once.
					{Outbound: side.outbound, HTTP2: http2, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}},
				}
			}
			for _, phase := range []tfiv1.Phase{req, resp} {
				phaseName := map[tfiv1.Phase]string{req: "req", resp: "resp"}[phase]
				mk := func(f *tfiv1.Fault) []*tfiv1.Tfic {
					return []*tfiv1.Tfic{tfic("t1", side.target(getItems, phase), f, unary)}
				}
				fired := func(fault string, w Want) Want {
					w.Fired, w.Phase, w.Fault = "t1", phaseName, fault
					w.NotCalled = phase == req && fault != "delay"
					return w
				}
				cases = append(cases,
					Case{
						Name: "delay " + phaseName + " " + name, TFICs: mk(delayed(shortDelay)),
						Calls: get(fired("delay", Want{AtLeast: shortDelay, AtMost: soon})),
					},
					Case{
						Name:  "error " + phaseName + " " + name,
						TFICs: mk(failed(&tfiv1.Error{HttpStatus: 502, Body: []byte("no luck"), Headers: []*tfiv1.Header{{Name: "retry-after", Value: "7"}}})),
						Calls: get(fired("error", Want{
							Status: 502, Replaced: true, Body: "no luck", Injected: "t1",
							Headers: []Header{{"retry-after", "7"}}, AtMost: soon,
						})),
					},
					Case{Name: "default error " + phaseName + " " + name, TFICs: mk(failed(&tfiv1.Error{})), Calls: get(fired("error", Want{
						Status: 503, Replaced: true, Injected: "t1",
					}))},
					Case{Name: "abort " + phaseName + " " + name, TFICs: mk(aborted()), Calls: get(fired("abort", Want{Reset: true, AtMost: soon}))},
					Case{
						Name: "drop " + phaseName + " " + name, TFICs: mk(dropped(shortDelay)),
						Calls: get(fired("drop", Want{Reset: true, AtLeast: shortDelay, AtMost: soon})),
					})
			}
		}
	}
	return append(cases, heldAnswers()...)
}

// heldAnswers are those that a response-phase fault keeps until their end.
func heldAnswers() []Case {
	fail := []*tfiv1.Tfic{tfic("t1", outbound(postItems, resp), failed(&tfiv1.Error{HttpStatus: 500}), unary)}
	failGet := []*tfiv1.Tfic{tfic("t1", outbound(getItems, resp), failed(&tfiv1.Error{HttpStatus: 500, Body: []byte("sorry")}), unary)}
	fired := Want{Status: 500, Replaced: true, Injected: "t1", Fired: "t1", Phase: "resp", Fault: "error"}
	with := func(body string) Want { w := fired; w.Body = body; return w }
	return []Case{
		{Name: "held answer larger than any buffer, HTTP/1.1", TFICs: fail, Calls: []Call{
			{Outbound: true, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(64)}, Want: fired},
		}},
		{Name: "held answer larger than any buffer, HTTP/2", TFICs: fail, Calls: []Call{
			{Outbound: true, HTTP2: true, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(64)}, Want: fired},
		}},
		{Name: "held answer with trailers", TFICs: failGet, Calls: []Call{
			{Outbound: true, HTTP2: true, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems, Trailers: []Header{{"x-sum", "2"}}}, Want: with("sorry")},
		}},
		{Name: "held answer without body", TFICs: failGet, Calls: []Call{
			{Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Status: 204}, Want: with("sorry")},
		}},
		{
			Name: "held HEAD", Needs: Sockets,
			TFICs: []*tfiv1.Tfic{tfic("t1", outbound("HEAD /items", resp), failed(&tfiv1.Error{HttpStatus: 500}), unary)},
			Calls: []Call{{Outbound: true, Request: Message{Method: "HEAD", Path: "/items"}, Answer: Message{}, Want: fired}},
		},
		{
			Name: "event stream that was taken for unary is not held", Needs: Sockets,
			TFICs: []*tfiv1.Tfic{tfic("t1", outbound("GET /events", resp), failed(&tfiv1.Error{}), unary)},
			Calls: []Call{{
				Outbound: true, Lockstep: true, Request: Message{Path: "/events"},
				Answer: Message{Headers: []Header{{"content-type", "text/event-stream"}}, Chunks: []string{"data: 1\n\n", "data: 2\n\n"}},
				Want:   Want{Reset: true, Fired: "t1", Phase: "resp", Fault: "error"},
			}},
		},
	}
}

// streamFaults are the faults of HTTP answers that stream, or may do so.
func streamFaults() []Case {
	var cases []Case
	for kind, name := range map[tfiv1.AnswerKind]string{streaming: "streaming", unknown: "unknown"} {
		for fault, f := range map[string]*tfiv1.Fault{"error": failed(&tfiv1.Error{}), "abort": aborted()} {
			cases = append(cases, Case{
				Name:  fault + " of an answer that is " + name,
				TFICs: []*tfiv1.Tfic{tfic("t1", outbound("GET /feed", resp), f, kind)},
				Calls: []Call{{
					Outbound: true, Lockstep: true, Request: Message{Path: "/feed"}, Answer: Message{Chunks: []string{"one", "two"}},
					Want: Want{Reset: true, Fired: "t1", Phase: "resp", Fault: fault},
				}},
			})
		}
	}
	return append(cases, Case{
		Name:  "delayed large answer",
		TFICs: []*tfiv1.Tfic{tfic("t1", outbound(postItems, resp), delayed(shortDelay), unary)},
		Calls: []Call{{
			Outbound: true, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(32)},
			Want: Want{AtLeast: shortDelay, Fired: "t1", Phase: "resp", Fault: "delay"},
		}},
	}, Case{
		Name:  "delayed large request",
		TFICs: []*tfiv1.Tfic{tfic("t1", outbound(postItems, req), delayed(shortDelay), unary)},
		Calls: []Call{{
			Outbound: true, HTTP2: true, Request: Message{Path: "/items", Chunks: large(16)}, Answer: Message{Chunks: large(32)},
			Want: Want{AtLeast: shortDelay, Fired: "t1", Phase: "req", Fault: "delay"},
		}},
	})
}

// leaving are clients that do not wait until a fault ends. Their sidecar says which of
// their requests were never sent on; nobody else can report those.
func leaving() []Case {
	plain := Call{Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}}
	http2 := plain
	http2.HTTP2 = true
	// More than a sidecar's buffer has room for, but not more than a socket's: that would
	// keep the client's end back, too.
	upload := plain
	upload.Request.Chunks = []string{strings.Repeat("x", 32<<10)}
	upload2 := http2
	upload2.Request.Chunks = large(16)
	grpc := Call{
		GRPC: true, Request: Message{Path: grpcPath, Chunks: []string{grpcFrame}},
		Answer: Message{Chunks: []string{grpcFrame}, Trailers: grpcOK},
	}
	var cases []Case
	for _, side := range []struct {
		name     string
		outbound bool
		target   func(string, tfiv1.Phase) *tfiv1.StaticConfiguration
	}{{"at the caller", true, outbound}, {"at the callee", false, inbound}} {
		for _, shape := range []struct {
			name, api string
			call      Call
		}{
			{"HTTP/1.1", getItems, plain},
			{"HTTP/2", getItems, http2},
			{"with a body, HTTP/1.1", postItems, upload},
			{"with a large body, HTTP/2", postItems, upload2},
			{"gRPC", grpcAPI, grpc},
		} {
			for _, leaves := range []struct {
				what  string
				phase tfiv1.Phase
				fault *tfiv1.Fault
				want  Want
			}{
				{"delayed request", req, delayed(time.Minute), Want{NotCalled: true, Unsent: true, Fired: "t1", Phase: "req", Fault: "delay"}},
				{"dropped request", req, dropped(time.Minute), Want{NotCalled: true, Fired: "t1", Phase: "req", Fault: "drop"}},
				{"delayed answer", resp, delayed(time.Minute), Want{Fired: "t1", Phase: "resp", Fault: "delay"}},
			} {
				if leaves.phase == resp && len(shape.call.Request.Chunks) > 1 {
					continue // whether it has been asked for by then is a matter of luck
				}
				stays := shape.call
				stays.Outbound = side.outbound
				goes := stays
				goes.LeaveAfter, goes.Want = shortDelay, leaves.want
				cases = append(cases, Case{
					Name: "client leaves a " + leaves.what + " " + side.name + ", " + shape.name, Needs: Sockets,
					TFICs: []*tfiv1.Tfic{tfic("t1", side.target(shape.api, leaves.phase), leaves.fault, unary)},
					Calls: []Call{goes, stays},
				})
			}
		}
	}
	return cases
}

// unmade are faults that were to be made at the end of an answer which does not come: the
// sidecar says that they were let go.
func unmade() []Case {
	var cases []Case
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		call := Call{
			Outbound: true, HTTP2: http2, Lockstep: true, Request: Message{Path: "/feed"},
			Answer: Message{Chunks: []string{"one", "two"}},
			Want:   Want{Reset: true, Fired: "t1", Phase: "resp", Fault: "error", LetGo: true},
		}
		leaves, breaks := call, call
		leaves.LeaveAfter = 5 * shortDelay // the second chunk does not come, since the first is held
		breaks.Answer.Break = true
		fail := failed(&tfiv1.Error{})
		cases = append(cases, Case{
			Name: "client leaves a held answer, " + name, Needs: Sockets,
			TFICs: []*tfiv1.Tfic{tfic("t1", outbound("GET /feed", resp), fail, unary)}, Calls: []Call{leaves},
		}, Case{
			Name: "answer that is to be reset breaks off by itself, " + name, Needs: Sockets,
			TFICs: []*tfiv1.Tfic{tfic("t1", outbound("GET /feed", resp), fail, streaming)}, Calls: []Call{breaks},
		})
	}
	return cases
}

// grpcFaults are the faults of gRPC calls, which are never held.
func grpcFaults() []Case {
	var cases []Case
	for _, side := range []struct {
		name     string
		outbound bool
		target   func(string, tfiv1.Phase) *tfiv1.StaticConfiguration
	}{{"at the caller", true, outbound}, {"at the callee", false, inbound}} {
		call := func(w Want) []Call {
			ask := Message{Path: grpcPath, Chunks: []string{grpcFrame}}
			return []Call{
				{Outbound: side.outbound, GRPC: true, Request: ask, Answer: Message{Chunks: []string{grpcFrame}, Trailers: grpcRich}, Want: w},
				{Outbound: side.outbound, GRPC: true, Request: ask, Answer: Message{Chunks: []string{grpcFrame}, Trailers: grpcOK}},
			}
		}
		trailersOnly := func(w Want) []Call {
			return []Call{{
				Outbound: side.outbound, GRPC: true, Request: Message{Path: grpcPath, Chunks: []string{grpcFrame}},
				Answer: Message{Headers: []Header{{"grpc-status", "0"}}}, Want: w,
			}}
		}
		for _, phase := range []tfiv1.Phase{req, resp} {
			phaseName := map[tfiv1.Phase]string{req: "req", resp: "resp"}[phase]
			mk := func(f *tfiv1.Fault) []*tfiv1.Tfic {
				return []*tfiv1.Tfic{tfic("g1", side.target(grpcAPI, phase), f, unknown)}
			}
			fired := func(fault string, w Want) Want {
				w.Fired, w.Phase, w.Fault = "g1", phaseName, fault
				w.NotCalled = phase == req && fault != "delay"
				return w
			}
			failure := fired("error", Want{GRPCFails: true, GRPCStatus: "8", GRPCMessage: "50%25 full", Injected: "g1"})
			if phase == req {
				failure.Replaced = true
			}
			name := phaseName + " gRPC " + side.name
			spec := &tfiv1.Error{GrpcStatus: 8, GrpcMessage: "50% full"}
			cases = append(cases,
				Case{Name: "delay " + name, TFICs: mk(delayed(shortDelay)), Calls: call(fired("delay", Want{AtLeast: shortDelay, AtMost: soon}))},
				Case{Name: "error " + name, TFICs: mk(failed(spec)), Calls: call(failure)},
				Case{Name: "abort " + name, TFICs: mk(aborted()), Calls: call(fired("abort", Want{Reset: true, AtMost: soon}))},
				Case{Name: "drop " + name, TFICs: mk(dropped(shortDelay)), Calls: call(fired("drop", Want{Reset: true, AtLeast: shortDelay, AtMost: soon}))},
			)
			if phase == resp {
				only := failure
				only.Replaced = true
				cases = append(cases,
					Case{Name: "error trailers-only " + name, TFICs: mk(failed(spec)), Calls: trailersOnly(only)},
					Case{Name: "delay trailers-only " + name, TFICs: mk(delayed(shortDelay)), Calls: trailersOnly(fired("delay", Want{AtLeast: shortDelay}))},
					Case{Name: "abort trailers-only " + name, TFICs: mk(aborted()), Calls: trailersOnly(fired("abort", Want{Reset: true}))})
				only.Status, only.Headers = 200, []Header{{"content-type", "application/grpc"}}
				for _, from := range []struct {
					name    string
					headers []Header
				}{
					{"a server", []Header{{"grpc-status", "14"}, {"grpc-message", "no"}}},
					{"a proxy", []Header{{"content-type", "text/html"}}},
				} {
					refused := trailersOnly(only)[0]
					refused.Answer = Message{Status: 503, Headers: from.headers}
					passed := refused
					passed.Want = Want{}
					cases = append(cases, Case{
						Name: "error trailers-only of status 503 from " + from.name + ", " + name, TFICs: mk(failed(spec)),
						Calls: []Call{refused, passed},
					})
				}
			}
		}
	}
	stream := Call{
		Outbound: true, GRPC: true, Lockstep: true, Request: Message{Path: grpcPath, Chunks: frames(1)},
		Answer: Message{Chunks: frames(3), Trailers: grpcOK},
	}
	stream.Want = Want{GRPCFails: true, GRPCStatus: "14", GRPCMessage: "fault injected by SequenceFI", Injected: "g1", Fired: "g1", Phase: "resp", Fault: "error"}
	return append(cases, Case{
		Name:  "error of a gRPC stream comes after its messages",
		TFICs: []*tfiv1.Tfic{tfic("g1", outbound(grpcAPI, resp), failed(&tfiv1.Error{}), streaming)},
		Calls: []Call{stream},
	})
}

// guarded are the cases in which it matters when the fault fires.
func guarded() []Case {
	seen := func(api string, n uint32, phase tfiv1.Phase, delivered bool) *tfiv1.Guard {
		return &tfiv1.Guard{Expr: &tfiv1.Guard_After{After: &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{
			Count: n,
			Event: &tfiv1.EventPredicate{
				Op:        &tfiv1.Op{Observer: Service, Role: tfiv1.Role_ROLE_CLIENT, Peer: Peer, Api: api, Phase: phase},
				Delivered: delivered,
			},
		}}}}}
	}
	get := Call{Outbound: true, Request: Message{Path: "/items"}, Answer: Message{Chunks: someItems}}
	other := Call{Outbound: true, Request: Message{Path: "/prices"}, Answer: Message{Chunks: someItems}}
	fails := get
	fails.Want = Want{Status: 503, Replaced: true, NotCalled: true, Injected: "t1", Fired: "t1", Phase: "req", Fault: "error"}
	after := tfic("t1", outbound(getItems, req), failed(&tfiv1.Error{}), unary)
	after.Guard = seen("GET /prices", 2, resp, true)
	third := tfic("t1", outbound(getItems, req), failed(&tfiv1.Error{}), unary)
	third.Target.K, third.Target.EnforceK = 3, true
	busy := get
	busy.Answer = Message{Status: 429, Chunks: []string{"busy"}}
	replaced := get
	replaced.Want = Want{Status: 503, Replaced: true, Injected: "t1", Fired: "t1", Phase: "resp", Fault: "error"}
	success := tfic("t1", outbound(getItems, resp), failed(&tfiv1.Error{}), unary)
	success.Target.When = tfiv1.Outcome_OUTCOME_SUCCESS
	return []Case{
		{Name: "after two delivered answers", TFICs: []*tfiv1.Tfic{after}, Calls: []Call{get, other, get, other, fails, get}},
		{Name: "third of its kind", TFICs: []*tfiv1.Tfic{third}, Calls: []Call{get, other, get, fails, get}},
		{Name: "after success only", TFICs: []*tfiv1.Tfic{success}, Calls: []Call{busy, replaced, get}},
	}
}
