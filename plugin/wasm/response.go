package wasm

import (
	"bytes"
	"strconv"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// keepBytes is how much of a held answer is kept, so that it can still be let go.
// It is below every buffer limit that proxies have by default (HTTP/1: 1 MiB;
// HTTP/2 windows: 64 KiB and more), and where one is smaller the host slows the
// callee down (keepBody) and the hold's time-out lets the answer go. Beyond it
// the body is thrown away as it comes: an answer that large has no end that is
// still to be waited for long, and nothing of it will be needed.
const keepBytes = 48 << 10

// viaUpstream is the code detail of an answer that came from the callee; all
// others are Envoy's own.
const viaUpstream = "via_upstream"

func (s *stream) onResponseHeaders(end bool) action {
	s.crashAt("answer")
	headers := s.headers(host.ResponseHeaders)
	if v, ok := headers.Header(":status"); ok {
		s.status, _ = strconv.Atoi(v) // Envoy's own; 0 is no success
	}
	contentType, _ := headers.Header("content-type")
	s.contentType = append(s.contentType[:0], contentType...)
	s.length = -1
	if v, ok := headers.Header("content-length"); ok {
		if n, err := strconv.Atoi(v); err == nil {
			s.length = n
		}
	}
	if s.grpc && !end {
		// The event is at the trailers, and so is its evidence.
		if _, ok := headers.Header(tfi.EvidenceHeader); ok {
			s.check(host.Remove(host.ResponseHeaders, tfi.EvidenceHeader))
		}
		return goOn
	}
	r := tfi.Response{Status: s.status, Headers: headers}
	if s.grpc {
		r.Status = grpcStatus(headers, s.status)
	}
	r.Made = s.made(r.Status)
	d := s.judge(&r)
	if s.grpc {
		return s.judgedTrailers(&d, host.ResponseHeaders)
	}
	return s.judgedHeaders(&d, end)
}

// judge tells the engine of the answer's event.
func (s *stream) judge(r *tfi.Response) tfi.Decision {
	r.Now = s.root.vm.clock()
	s.answered = true
	d := s.root.engine.Response(s.call, r)
	s.decided = d
	if d.TFIC != nil {
		s.fault = d.TFIC
		s.reportDecision()
	}
	return d
}

// made tells whether Envoy itself made an answer with that status. It is not
// asked about successes: what Envoy makes itself is a failure or a redirect.
func (s *stream) made(status int) bool {
	if s.grpc && status == 0 || !s.grpc && status < 300 {
		return false
	}
	b := host.Property(propertyCodeDetails)
	return len(b) > 0 && string(b) != viaUpstream
}

// grpcStatus reads the status of a gRPC answer.
func grpcStatus(m tfi.Headers, httpStatus int) int {
	if v, ok := m.Header("grpc-status"); ok {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return n
		}
	}
	return grpcStatusOf(httpStatus)
}

// judgedHeaders does what was decided at the headers of an HTTP answer.
func (s *stream) judgedHeaders(d *tfi.Decision, end bool) action {
	s.attach(d, host.ResponseHeaders)
	switch d.Action {
	case tfi.ActionDelay:
		s.response, s.ending = waiting, end
		s.pause(d.Delay, thenResumeResponse)
		return pauseAll
	case tfi.ActionDrop:
		s.response = swallowed
		s.pause(d.Delay, thenReset)
		return pauseHeaders
	case tfi.ActionError, tfi.ActionAbort:
		if end {
			return s.strike()
		}
		if !s.mayHold() {
			s.response = doomed
			return goOn
		}
		s.response = holding
		s.pause(s.root.vm.settings.Hold, thenLetGo)
		return pauseHeaders
	}
	if end {
		s.delivered()
	}
	return goOn
}

var eventStream = []byte("text/event-stream")

// mayHold tells whether the answer may be kept back until the callee has
// finished. What streams is never: its reader lives from what comes meanwhile.
func (s *stream) mayHold() bool {
	return s.fault.AnswerKind == tfi.AnswerUnary && s.status != 101 &&
		!bytes.HasPrefix(s.contentType, eventStream)
}

// strike makes the fault that was decided, now that the callee has finished.
func (s *stream) strike() action {
	s.unpause()
	if s.decided.Action == tfi.ActionError {
		return s.reply(&s.fault.Fault.Error, s.decided.Evidence)
	}
	s.reset()
	return pauseHeaders
}

func (s *stream) onResponseBody(size int, end bool) action {
	s.crashAt("body")
	s.bytes += size
	if size > 0 {
		s.chunks++
	}
	switch s.response {
	case flowing:
		if !end {
			return goOn
		}
		if s.grpc && !s.answered {
			return s.endWithoutTrailers()
		}
		s.delivered()
	case holding:
		if end {
			return s.strike()
		}
		if s.bytes <= keepBytes {
			return keepBody
		}
		s.response = discarding
		return discardBody
	case discarding:
		s.crashAt("discarding")
		if end {
			return s.strike()
		}
		return discardBody
	case swallowed:
		s.crashAt("swallowed")
		return discardBody
	case doomed:
		// The last byte of an announced length would complete the answer.
		if end || s.length >= 0 && s.bytes >= s.length {
			s.reset()
			return discardBody
		}
	case waiting:
		return keepBody
	}
	return goOn
}

// endWithoutTrailers is the event of a gRPC answer that has no trailers: it is
// not from a gRPC server, and its client makes a status of the HTTP status.
func (s *stream) endWithoutTrailers() action {
	r := tfi.Response{Status: grpcStatusOf(s.status), Headers: s.headers(host.ResponseHeaders)}
	r.Made = s.made(r.Status)
	d := s.judge(&r)
	switch d.Action {
	case tfi.ActionForward:
		s.delivered()
	case tfi.ActionDelay:
		s.response, s.ending = waiting, true
		s.pause(d.Delay, thenResumeResponse)
		return keepBody
	case tfi.ActionDrop:
		s.response = swallowed
		s.pause(d.Delay, thenReset)
		return discardBody
	default: // there is no status to rewrite
		s.reset()
		return discardBody
	}
	return goOn
}

func (s *stream) onResponseTrailers() action {
	switch s.response {
	case holding, discarding:
		return s.strike()
	case doomed:
		s.reset()
		return pauseHeaders
	case waiting, swallowed:
		return pauseHeaders
	}
	if !s.grpc || s.answered {
		s.check(host.Remove(host.ResponseTrailers, tfi.EvidenceHeader)) // what is there is not from a sidecar
		s.delivered()
		return goOn
	}
	trailers := s.headers(host.ResponseTrailers)
	r := tfi.Response{Status: grpcStatus(trailers, s.status), Headers: trailers}
	r.Made = s.made(r.Status)
	d := s.judge(&r)
	return s.judgedTrailers(&d, host.ResponseTrailers)
}

// judgedTrailers does what was decided at a gRPC answer's end; m is where its
// status stands.
func (s *stream) judgedTrailers(d *tfi.Decision, m host.HeaderMap) action {
	s.attach(d, m)
	switch d.Action {
	case tfi.ActionDelay:
		s.response, s.ending = waiting, true
		s.pause(d.Delay, thenResumeResponse)
		return pauseHeaders
	case tfi.ActionDrop:
		s.response = swallowed
		s.pause(d.Delay, thenReset)
		return pauseHeaders
	case tfi.ActionAbort:
		s.reset()
		return pauseHeaders
	case tfi.ActionError:
		s.rewrite(m, &d.TFIC.Fault.Error)
		s.response = replaced
		return goOn
	}
	s.delivered()
	return goOn
}

// delivered tells the engine that the whole answer has been passed on.
func (s *stream) delivered() {
	if s.role == tfi.RoleClient && s.answered {
		s.root.engine.Delivered(s.call, s.root.vm.clock())
	}
}

// Flags that say that the callee's side broke (Envoy's ResponseFlag).
const brokenUpstream = 0x10 | 0x20 | 0x40 // remote reset, connect failure, connection lost

// onDone reports the call, whose stream is gone.
func (s *stream) onDone() {
	if !s.answered && s.response == flowing && s.request == flowing && intProperty(propertyFlags)&brokenUpstream != 0 {
		if d := s.judge(&tfi.Response{Broken: true}); d.Action != tfi.ActionForward {
			s.root.engine.LetGo(s.call) // nobody is left to be faulted
		}
	}
	switch s.response {
	case holding, discarding, doomed:
		// The client has left, or the callee has broken off, before the fault was made.
		s.root.engine.LetGo(s.call)
	}
	s.reportCall()
}
