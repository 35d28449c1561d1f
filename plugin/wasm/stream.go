package wasm

import (
	"strconv"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// What a callback may answer besides Continue. The SDK names only one Pause; the
// host knows these as well (proxy-wasm-cpp-host's FilterHeadersStatus and
// FilterDataStatus).
const (
	// pauseAll stops headers and all that follows, with back-pressure instead of a
	// buffer that overflows: no further callback comes until the stream is resumed.
	pauseAll = types.Action(4)
	// pauseHeaders stops the headers (or trailers) but body callbacks go on.
	pauseHeaders = types.ActionPause
	// keepBody keeps a chunk; over the buffer limit the sender is slowed down.
	keepBody = types.Action(2)
	// discardBody throws a chunk away and lets the sender go on.
	discardBody = types.Action(3)
)

// flow says how one direction of a stream goes on.
type flow uint8

const (
	flowing    flow = iota
	waiting         // stopped until the timer
	holding         // an answer kept until its end, which decides
	discarding      // the same, but too large to keep: there is no way back
	swallowed       // thrown away; the timer resets the stream
	doomed          // streams on, and is reset at its end
	replaced        // made by us, or reset: nothing more to do
)

// stream is the life of one call: the callbacks of one HTTP stream.
type stream struct {
	types.DefaultHttpContext
	root *root
	id   uint32
	call *tfi.Call // nil: not of a trial

	request, response flow
	timer             timer
	role              tfi.Role
	grpc              bool
	answered          bool // the answer's event has happened
	ending            bool // what waits in the response is its end
	status            int  // HTTP status of the answer
	fault             *tfi.TFIC

	decided     tfi.Decision // about the answer
	bytes, seen int          // of its body
	chunks      int
	length      int // announced; -1: not
	contentType string
}

// recovered is deferred by every callback: whatever goes wrong in here must not
// cost the application its request. It forwards from now on.
func (s *stream) recovered(a *types.Action) {
	if r := recover(); r != nil {
		s.root.vm.caught("stream", r)
		s.abandon()
		*a = types.ActionContinue
	}
	if m := s.root.vm.metrics; m != nil && m.pending {
		s.root.tick() // to tell the host
	}
}

// abandon leaves the stream to itself. A direction that is stopped goes on by
// the Continue of the callback that failed, or here.
func (s *stream) abandon() {
	s.unpause()
	request, response := s.request, s.response
	s.request, s.response, s.call = flowing, flowing, nil
	if request == waiting {
		_ = proxywasm.ResumeHttpRequest() // best effort
	}
	if response == waiting {
		_ = proxywasm.ResumeHttpResponse() // best effort
	}
}

// OnHttpRequestHeaders implements the same method of [types.HttpContext].
func (s *stream) OnHttpRequestHeaders(_ int, _ bool) (a types.Action) { //nolint:revive // the SDK names it
	defer s.recovered(&a)
	return s.onRequest()
}

// OnHttpRequestBody implements the same method of [types.HttpContext].
func (s *stream) OnHttpRequestBody(int, bool) types.Action { return s.requestGoesOn(keepBody) } //nolint:revive // the SDK names it

// OnHttpRequestTrailers implements the same method of [types.HttpContext].
func (s *stream) OnHttpRequestTrailers(int) types.Action { return s.requestGoesOn(pauseHeaders) } //nolint:revive // the SDK names it

func (s *stream) requestGoesOn(stop types.Action) types.Action {
	if s.request == waiting || s.request == swallowed {
		// Not reached while pauseAll holds; an emulator may differ.
		return stop
	}
	return types.ActionContinue
}

// OnHttpResponseHeaders implements the same method of [types.HttpContext].
func (s *stream) OnHttpResponseHeaders(_ int, end bool) (a types.Action) { //nolint:revive // the SDK names it
	if s.call == nil || s.response == replaced {
		return types.ActionContinue
	}
	defer s.recovered(&a)
	return s.onResponseHeaders(end)
}

// OnHttpResponseBody implements the same method of [types.HttpContext].
func (s *stream) OnHttpResponseBody(size int, end bool) (a types.Action) { //nolint:revive // the SDK names it
	if s.call == nil || s.response == replaced {
		return types.ActionContinue
	}
	defer s.recovered(&a)
	return s.onResponseBody(size, end)
}

// OnHttpResponseTrailers implements the same method of [types.HttpContext].
func (s *stream) OnHttpResponseTrailers(int) (a types.Action) { //nolint:revive // the SDK names it
	if s.call == nil || s.response == replaced {
		return types.ActionContinue
	}
	defer s.recovered(&a)
	return s.onResponseTrailers()
}

// OnHttpStreamDone implements the same method of [types.HttpContext].
func (s *stream) OnHttpStreamDone() { //nolint:revive // the SDK names it
	var a types.Action
	defer s.recovered(&a)
	s.unpause()
	if s.call == nil {
		return
	}
	s.onDone()
	s.root.vm.putCall(s.call)
	s.call = nil
}

// pause stops a direction until the timer.
func (s *stream) pause(after time.Duration, then timerAction) {
	s.timer = timer{due: monotonic() + after, stream: s, then: then}
	s.root.arm(&s.timer)
}

func (s *stream) unpause() { s.root.disarm(&s.timer) }

// reset ends the stream towards both sides.
func (s *stream) reset() {
	s.unpause()
	s.request, s.response = replaced, replaced
	resetStream()
}

// reply answers in the callee's place, for calls that are not gRPC.
func (s *stream) reply(f *tfi.ErrorSpec, evidence []byte) types.Action {
	headers := s.replyHeaders(f, evidence)
	status, body, grpcStatus := f.HTTPStatus, f.Body, int32(-1)
	if s.grpc {
		// Envoy puts the body into grpc-message, percent-encoded.
		status, body, grpcStatus = 200, []byte(f.GRPCMessage), int32(f.GRPCStatus)
	}
	s.request, s.response = replaced, replaced
	if err := proxywasm.SendHttpResponse(uint32(status), headers, body, grpcStatus); err != nil {
		s.root.vm.problem("local reply", err)
		s.request, s.response = flowing, flowing
		return types.ActionContinue
	}
	return pauseHeaders
}

func (s *stream) replyHeaders(f *tfi.ErrorSpec, evidence []byte) [][2]string {
	headers := make([][2]string, 0, len(f.Headers)+2)
	for _, h := range f.Headers {
		headers = append(headers, [2]string{h.Name, h.Value})
	}
	headers = append(headers, [2]string{tfi.InjectedHeader, s.fault.ID})
	if len(evidence) > 0 {
		headers = append(headers, [2]string{tfi.EvidenceHeader, string(evidence)})
	}
	return headers
}

// rewrite turns a gRPC answer's trailers, or trailers-only headers, into a failure.
func (s *stream) rewrite(m part, f *tfi.ErrorSpec) {
	s.check(m.replace("grpc-status", strconv.Itoa(f.GRPCStatus)))
	s.check(m.replace("grpc-message", percentEncode(f.GRPCMessage)))
	// It repeats status and message, and clients believe it more than those.
	s.check(m.remove("grpc-status-details-bin"))
	for _, h := range f.Headers {
		s.check(m.replace(h.Name, h.Value))
	}
	s.check(m.replace(tfi.InjectedHeader, s.fault.ID))
}

// attach sets or strips the evidence of a message as decided.
func (s *stream) attach(d *tfi.Decision, replace func(k, v string) error, remove func(k string) error) {
	switch {
	case len(d.Evidence) > 0:
		s.check(replace(tfi.EvidenceHeader, string(d.Evidence)))
	case d.Strip:
		s.check(remove(tfi.EvidenceHeader))
	}
}

// check counts a host call that failed; the stream goes on.
func (s *stream) check(err error) {
	if err != nil {
		s.root.vm.problem("header", err)
	}
}
