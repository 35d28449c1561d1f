package wasm

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// action is what a callback answers (proxy-wasm-cpp-host's FilterHeadersStatus and
// FilterDataStatus).
type action uint32

const (
	goOn action = 0
	// pauseHeaders stops the headers (or trailers) but body callbacks go on.
	pauseHeaders action = 1
	// keepBody keeps a chunk; over the buffer limit the sender is slowed down.
	keepBody action = 2
	// discardBody throws a chunk away and lets the sender go on.
	discardBody action = 3
	// pauseAll stops headers and all that follows, with back-pressure instead of a
	// buffer that overflows: no further callback comes until the stream is resumed.
	pauseAll action = 4
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
	root *root
	id   uint32
	call *tfi.Call

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
	contentType []byte
}

// pause stops a direction until the timer. A stream has one: where the host itself
// answers a call whose request waits, the request has no more to wait for.
func (s *stream) pause(after time.Duration, then timerAction) {
	s.unpause()
	s.timer = timer{due: s.root.vm.clock() + after, stream: s, then: then}
	s.root.arm(&s.timer)
	s.crashAt("paused")
}

func (s *stream) unpause() { s.root.disarm(&s.timer) }

// reset ends the stream towards both sides.
func (s *stream) reset() {
	s.unpause()
	s.request, s.response = replaced, replaced
	host.Reset()
}

// reply answers in the callee's place, for calls that are not gRPC.
func (s *stream) reply(f *tfi.ErrorSpec, evidence []byte) action {
	headers := s.replyHeaders(f, evidence)
	status, body, grpcStatus := f.HTTPStatus, f.Body, int32(-1)
	if s.grpc {
		// Envoy puts the body into grpc-message, percent-encoded.
		status, body, grpcStatus = 200, []byte(f.GRPCMessage), int32(f.GRPCStatus)
	}
	lost := s.response == discarding
	s.request, s.response = replaced, replaced
	if err := host.Reply(uint32(status), headers, body, grpcStatus); err != nil {
		s.root.vm.problem("local reply", err)
		s.root.engine.LetGo(s.call)
		if lost {
			s.reset() // what is left of the answer is none
			return pauseHeaders
		}
		s.request, s.response = flowing, flowing
		return goOn
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

// rewrite turns a gRPC answer's trailers, or trailers-only headers, into a failure. Headers become
// those that a gRPC server sends: where they are a proxy's, as a 502 with an HTML page's type, clients
// make a status of HTTP's and do not look for another.
func (s *stream) rewrite(m host.HeaderMap, f *tfi.ErrorSpec) {
	if m == host.ResponseHeaders {
		if s.status != 200 {
			s.check(host.Replace(m, ":status", "200"))
		}
		if !isGRPC(string(s.contentType)) {
			s.check(host.Replace(m, "content-type", "application/grpc"))
		}
	}
	s.check(host.Replace(m, "grpc-status", strconv.Itoa(f.GRPCStatus)))
	s.check(host.Replace(m, "grpc-message", percentEncode(f.GRPCMessage)))
	// It repeats status and message, and clients believe it more than those.
	s.check(host.Remove(m, "grpc-status-details-bin"))
	for _, h := range f.Headers {
		s.check(host.Replace(m, h.Name, h.Value))
	}
	s.check(host.Replace(m, tfi.InjectedHeader, s.fault.ID))
}

// attach sets or strips the evidence of a message as decided.
func (s *stream) attach(d *tfi.Decision, m host.HeaderMap) {
	switch {
	case len(d.Evidence) > 0:
		s.check(host.Replace(m, tfi.EvidenceHeader, unsafe.String(unsafe.SliceData(d.Evidence), len(d.Evidence))))
	case d.Strip:
		s.check(host.Remove(m, tfi.EvidenceHeader))
	}
}

// headers reads a header map of the message at hand; the next one replaces it.
func (s *stream) headers(m host.HeaderMap) *headerMap {
	h := &s.root.vm.headers
	h.read(host.Headers(m))
	return h
}

// check counts a host call that failed; the stream goes on.
func (s *stream) check(err error) {
	if err != nil {
		s.root.vm.problem("header", err)
	}
}
