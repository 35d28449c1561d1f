package tfiproxy

import (
	"strconv"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// trialAnswer takes a header block of a trial's answer: interim, head or trailers.
func (h *h2conn) trialAnswer(s *h2stream, block []byte, end bool) error {
	x := s.trial
	if err := x.h.fields.index(block); err != nil {
		return violation(codeCompression, err.Error())
	}
	if !x.begun {
		v, _ := x.h.fields.Header(":status")
		status, err := strconv.Atoi(v)
		if err != nil || status < 100 || status > 999 {
			return violation(codeProtocol, "answer without a status")
		}
		if status < 200 {
			h.down.enqueueHeaders(s.client, x.stripped(block), false)
			return nil
		}
		x.begun, x.status = true, status
		if v, ok := x.h.fields.Header("content-length"); ok {
			if n, ok := parseLength([]byte(v)); ok {
				x.left = n
			}
		}
		x.takeType(x.left >= 0, &x.h.fields)
		if !x.grpc {
			return x.answerHead(block, end)
		}
		if !end {
			x.passHead(x.stripped(block), false)
			return nil
		}
	}
	s.serverDone = s.serverDone || end
	if x.grpc && !x.answered && end {
		x.answerTrailers(block)
		return nil
	}
	x.passHead(x.stripped(block), end)
	return nil
}

// stripped is a block that is no event without its evidence, which is nothing for
// applications.
func (x *h2trial) stripped(block []byte) []byte {
	if _, ok := x.h.fields.Header(tfi.EvidenceHeader); !ok {
		return block
	}
	x.h.out = x.h.fields.appendWithout(x.h.out[:0], &nameEvidence)
	return x.h.out
}

// passHead is sendDown of a header block.
func (x *h2trial) passHead(block []byte, end bool) {
	if x.down.state == flowing {
		x.down.ended = x.down.ended || end
		x.h.down.enqueueHeaders(x.s.client, block, end)
		return
	}
	x.sendDown(x.headers(x.s.client, block, end), 0, end)
}

// answerHead is the event of an HTTP answer: its head has come.
func (x *h2trial) answerHead(block []byte, end bool) error {
	s := x.s
	s.serverDone = end
	d := x.judge(&tfi.Response{Status: x.status, Headers: &x.h.fields})
	block = x.attach(&d, block)
	switch d.Action {
	case tfi.ActionDelay:
		x.down.state = waiting
		x.arm(d.Delay, (*h2trial).releaseDown)
	case tfi.ActionDrop:
		x.down.state = swallowed
		x.arm(d.Delay, (*h2trial).resetBoth)
	case tfi.ActionError, tfi.ActionAbort:
		if end {
			x.strike()
			return nil
		}
		x.down.state = doomed
		if x.mayHold() {
			x.down.state = holding
			x.arm(x.h.proxy.cfg.Timeouts.Hold, (*h2trial).holdExpired)
		}
	case tfi.ActionForward:
	}
	x.passHead(block, end)
	return nil
}

// judge tells the engine of the answer's event.
func (x *h2trial) judge(r *tfi.Response) tfi.Decision {
	x.answered = true
	r.Made = x.h.void.Load() != nil
	x.decided = x.respond(r)
	return x.decided
}

// answerTrailers is the event of a gRPC answer: its trailers, or its
// trailers-only head, have come.
func (x *h2trial) answerTrailers(block []byte) {
	d := x.judge(&tfi.Response{Status: grpcStatus(&x.h.fields, x.status), Headers: &x.h.fields})
	if d.Action == tfi.ActionError {
		block = x.rewrite(&d.TFIC.Fault.Error)
	} else {
		block = x.attach(&d, block)
	}
	if x.endGRPC(&d) {
		x.passHead(block, true)
	}
}

// endGRPC does what was decided at the end of a gRPC answer, and reports whether
// what ends the stream is still to be sent, in whatever state.
func (x *h2trial) endGRPC(d *tfi.Decision) bool {
	switch d.Action {
	case tfi.ActionDelay:
		x.down.state = waiting
		x.arm(d.Delay, (*h2trial).releaseDown)
	case tfi.ActionDrop:
		x.down.state = swallowed
		x.arm(d.Delay, (*h2trial).resetBoth)
	case tfi.ActionAbort:
		x.resetBoth()
		return false
	case tfi.ActionForward, tfi.ActionError:
	}
	return true
}

// rewrite turns the end of a gRPC answer into a failure; a rich status would
// contradict it, and clients believe it more. A trailers-only head becomes one that a gRPC server
// sends: where it is a proxy's, as a 502 with an HTML page's type, clients make a status of HTTP's
// and do not look for another.
func (x *h2trial) rewrite(f *tfi.ErrorSpec) []byte {
	names := []*hpackName{&nameGRPCStatus, &nameGRPCMessage, &nameGRPCDetails, &nameInjected, &nameEvidence}
	for _, h := range f.Headers {
		name := newHpackName(h.Name)
		names = append(names, &name)
	}
	b := x.h.out[:0]
	contentType, _ := x.h.fields.Header("content-type")
	_, only := x.h.fields.Header(":status")
	foreign := only && !isGRPC(contentType)
	if foreign {
		names = append(names, &nameContentType)
	}
	if only && x.status != 200 {
		b = x.h.fields.appendWithStatus(b, "200", names...)
	} else {
		b = x.h.fields.appendWithout(b, names...)
	}
	if foreign {
		b = appendLiteral(b, "content-type", "application/grpc")
	}
	b = appendLiteral(b, "grpc-status", strconv.Itoa(f.GRPCStatus))
	b = appendLiteral(b, "grpc-message", appendGRPCMessage(nil, f.GRPCMessage))
	x.h.out = x.appendExtras(b, f, x.decided.Evidence, false)
	return x.h.out
}

// answerData takes a DATA frame of the answer.
func (x *h2trial) answerData(raw []byte, f frameHeader) {
	end := f.has(flagEndStream)
	s := x.s
	s.serverDone = s.serverDone || end
	if n := dataLength(f, raw); n > 0 {
		x.count(n)
		if x.left >= 0 {
			x.left -= int64(n)
		}
	}
	renumber(raw, s.client)
	if x.grpc && end && !x.answered {
		// Not from a gRPC server; its client makes a status of the HTTP status.
		d := x.judge(&tfi.Response{Status: grpcStatusOf(x.status), Headers: noHeaders{}})
		if d.Action == tfi.ActionError {
			x.h.up.enqueueWindow(f.length)
			x.resetBoth() // there is no status to rewrite
			return
		}
		if d.Action == tfi.ActionDelay {
			x.down.state = waiting
			x.arm(d.Delay, (*h2trial).releaseDown)
		} else if d.Action != tfi.ActionForward {
			x.h.up.enqueueWindow(f.length)
			if x.endGRPC(&d) {
				x.sendDown(nil, 0, true)
			}
			return
		}
	}
	x.sendDown(raw, f.length, end)
}

// dataLength is the size of a DATA frame's data without its padding.
func dataLength(f frameHeader, raw []byte) int {
	if f.has(flagPadded) && f.length > 0 {
		return max(f.length-1-int(raw[frameHeaderSize]), 0)
	}
	return f.length
}

// sendDown passes on frames of the answer, as far as they may go on; data is how
// much of the window they take.
func (x *h2trial) sendDown(frames []byte, data int, end bool) {
	x.down.ended = x.down.ended || end
	switch x.down.state {
	case flowing, pouring:
		x.send(frames, data)
	case waiting:
		x.down.keep(&x.h.down, frames, data)
	case holding:
		x.down.keep(&x.h.down, frames, data)
		if x.down.kept() > keepBytes || x.h.down.kept > maxKept {
			x.repay(x.down.data)
			x.down.drop(&x.h.down)
			x.down.state = discarding
		}
		if end {
			x.strike()
		}
	case discarding:
		x.repay(data)
		if end {
			x.strike()
		}
	case swallowed:
		x.repay(data)
	case doomed:
		// The last byte of an announced length would complete the answer.
		if end || data > 0 && x.left == 0 {
			x.repay(data)
			x.resetBoth()
			return
		}
		x.send(frames, data)
	}
}

// repay lets the callee go on with an answer that nobody gets.
func (x *h2trial) repay(data int) {
	x.h.up.enqueueWindow(data)
	if !x.s.serverDone {
		x.h.up.enqueue(appendWindowUpdate(nil, x.s.server, data))
	}
}

// strike makes the fault that was decided, now that the callee has finished.
func (x *h2trial) strike() {
	if x.decided.Action == tfi.ActionError {
		x.reply()
		return
	}
	x.resetBoth()
}

// releaseDown sends an answer that was kept back.
func (x *h2trial) releaseDown() {
	x.down.state = pouring
	x.pour()
}

// holdExpired decides about an answer that has been held for long and has not
// ended: while all of it is there it is let go. Later there is no way back, so one that
// still comes is waited for, and one that has stopped is faulted.
func (x *h2trial) holdExpired() {
	if x.down.state == holding {
		x.engine.LetGo(&x.call)
		x.releaseDown()
		return
	}
	if x.bytes > int64(x.held) {
		x.held = int(x.bytes)
		x.arm(x.h.proxy.cfg.Timeouts.Hold, (*h2trial).holdExpired)
		return
	}
	x.strike()
}
