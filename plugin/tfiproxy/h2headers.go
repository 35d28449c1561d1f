package tfiproxy

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// headers looks at a HEADERS frame, and passes it on where it is whole, readable
// without a table, and of no trial.
func (r *h2half) headers(f frameHeader, raw []byte) (verdict, error) {
	h := r.h
	payload := raw[frameHeaderSize:]
	block, err := headerFragment(f, payload)
	if err != nil {
		return verdictDrop, err
	}
	if r.table != nil || !f.has(flagEndHeaders) {
		return verdictTake, nil
	}
	if len(block) > h.proxy.cfg.Limits.HeadBytes {
		return verdictDrop, violation(codeCalm, "header block too large")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.owesUpdate && !isUpdate(block) {
		return r.dealOrTake(f, block)
	}
	s, other := r.stream(f.stream)
	switch {
	case s != nil && r.ended(s):
		return verdictDrop, violation(codeStreamClosed, "HEADERS after the end")
	case s != nil && (s.trial != nil || r.fromClient):
		return r.dealOrTake(f, block) // a request's trailers may have to be edited
	case s == nil && (!r.fromClient || !r.idle(f.stream)):
		return r.dealOrTake(f, block) // of a stream that is over, or wrong
	case s == nil:
		wants, err := r.wants(block)
		if err != nil || wants || !r.mayOpen() {
			if r.looked, r.wanted = err == nil, wants; err != nil {
				return verdictDrop, err
			}
			return r.dealOrTake(f, block)
		}
		if err := r.openable(f.stream); err != nil {
			return verdictDrop, err
		}
		s = h.open(f.stream)
		h.assign(s)
		other = s.server
		h.proxy.metrics.inc(metricRequestsHTTP2)
	default:
		if err := r.gate.scan(block, nil); err != nil {
			return verdictDrop, violation(codeCompression, err.Error())
		}
	}
	s.begun = s.begun || !r.fromClient
	r.owesUpdate = false
	renumber(raw, other)
	if f.has(flagPriority) {
		// It depends on a stream by a number that the other end does not have.
		at := 0
		if f.has(flagPadded) {
			at = 1
		}
		binary.BigEndian.PutUint32(payload[at:], 0)
	}
	if f.has(flagEndStream) {
		r.done(s)
	}
	return verdictPass, nil
}

// wants reports whether a request's block may belong to a trial.
func (r *h2half) wants(block []byte) (bool, error) {
	g := r.h.proxy.policies.gate.Load()
	var header *hpackName
	if g != nil {
		header = g.name
	}
	if err := r.gate.scan(block, header); err != nil {
		return false, violation(codeCompression, err.Error())
	}
	return g != nil && g.wants(&r.gate.headFields), nil
}

// mayOpen reports whether the client may have one more stream.
func (r *h2half) mayOpen() bool {
	return !r.h.goingAway && len(r.h.byClient) < r.h.proxy.cfg.Limits.Streams
}

// openable takes note of the client's next stream.
func (r *h2half) openable(id uint32) error {
	h := r.h
	if id&1 == 0 || id <= h.lastClient {
		return violation(codeProtocol, "stream opened out of order")
	}
	if h.nextServer >= maxStreamID-2 {
		return violation(codeRefusedStream, "stream numbers are used up")
	}
	h.lastClient = id
	return nil
}

// ended reports whether this direction of a stream has ended.
func (r *h2half) ended(s *h2stream) bool {
	if r.fromClient {
		return s.clientDone
	}
	return s.serverDone
}

// late deals with a frame on a stream that is over. Its sender may not know that
// yet, but where a client has itself ended the stream (RFC 9113, 5.1).
func (r *h2half) late(id uint32) error {
	h := r.h
	if !r.fromClient {
		return nil
	}
	for _, f := range h.finished {
		switch {
		case f.id != id:
		case f.reset:
			r.back().enqueue(appendReset(nil, id, codeStreamClosed))
			r.dirty = true
			return r.flood.reset()
		default:
			return violation(codeStreamClosed, "a frame after the end of its stream")
		}
	}
	return nil
}

// done notes that this direction of a stream has ended.
func (r *h2half) done(s *h2stream) {
	if r.fromClient {
		s.clientDone = true
	} else {
		s.serverDone = true
	}
	r.h.settle(s)
}

// takeHeaders collects a header block that cannot simply be passed on.
func (r *h2half) takeHeaders(f frameHeader, raw []byte) error {
	fragment := raw[frameHeaderSize:]
	if f.kind == frameHeaders {
		var err error
		if fragment, err = headerFragment(f, fragment); err != nil {
			return err
		}
		r.block, r.blockHead, r.blockParts, r.inBlock = r.block[:0], f, 0, true
		r.blocks.Add(1)
	}
	block := fragment
	if f.kind == frameContinuation || !f.has(flagEndHeaders) {
		r.block = append(r.block, fragment...)
		block = r.block
	}
	if r.blockParts++; r.blockParts > maxBlockParts || len(block) > r.h.proxy.cfg.Limits.HeadBytes {
		return violation(codeCalm, "header block too large")
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	r.inBlock = false
	r.blocks.Add(1)
	if r.table != nil {
		var err error
		if block, err = r.untabled(block); err != nil {
			return err
		}
	}
	err := r.takeWhole(block)
	if cap(r.block) > largeBuffer {
		r.block, r.plain = nil, nil
	}
	r.dirty = true
	return err
}

// takeWhole is deal of the block under way.
func (r *h2half) takeWhole(block []byte) error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return r.deal(r.blockHead, block)
}

// dealOrTake deals with a block at once, if it may.
func (r *h2half) dealOrTake(f frameHeader, block []byte) (verdict, error) {
	if !r.alone {
		return verdictTake, nil
	}
	r.dirty = true
	return verdictDone, r.deal(f, block)
}

// deal is whole, with what goes before and after; the lock is held.
func (r *h2half) deal(f frameHeader, block []byte) error {
	r.h.at = r.clock()
	s, err := r.whole(f, block)
	r.h.dealt()
	if s != nil && s.trial != nil {
		r.touch(s)
	}
	return err
}

// untabled decodes a block that may refer to the sender's table, and makes one
// of it that needs none.
func (r *h2half) untabled(block []byte) ([]byte, error) {
	r.plain = r.plain[:0]
	limit := r.h.proxy.cfg.Limits.HeadBytes
	r.table.SetEmitEnabled(true)
	r.table.SetEmitFunc(func(f hpack.HeaderField) {
		if len(r.plain) > 4*limit {
			r.table.SetEmitEnabled(false)
			return
		}
		if f.Sensitive {
			r.plain = appendSensitive(r.plain, f.Name, f.Value)
		} else {
			r.plain = appendLiteral(r.plain, f.Name, f.Value)
		}
	})
	_, err := r.table.Write(block)
	if err == nil {
		err = r.table.Close()
	}
	if err != nil {
		return nil, violation(codeCompression, err.Error())
	}
	if len(r.plain) > 4*limit {
		return nil, violation(codeCalm, "header list too large")
	}
	return r.plain, nil
}

// whole deals with a header block that is complete and needs no table, and
// returns its stream; nil: there is none. The connection's lock is held.
func (r *h2half) whole(f frameHeader, block []byte) (*h2stream, error) {
	h := r.h
	s, other := r.stream(f.stream)
	end := f.has(flagEndStream)
	if s == nil && r.fromClient && r.idle(f.stream) {
		return r.request(f.stream, block, end)
	}
	if s == nil {
		if r.idle(f.stream) {
			return nil, violation(codeProtocol, "HEADERS on an idle stream")
		}
		return nil, r.late(f.stream)
	}
	if r.ended(s) {
		return nil, violation(codeStreamClosed, "HEADERS after the end")
	}
	if s.trial != nil {
		if r.fromClient {
			return s, h.trialTrailers(s, block, end)
		}
		return s, h.trialAnswer(s, block, end)
	}
	if err := r.gate.scan(block, nil); err != nil {
		return nil, violation(codeCompression, err.Error())
	}
	s.begun = s.begun || !r.fromClient
	if r.fromClient {
		var err error
		if block, err = r.bareTrailers(block); err != nil {
			return nil, err
		}
	}
	r.enqueueHeaders(other, block, end)
	if end {
		r.done(s)
	}
	return s, nil
}

// bareTrailers returns the trailers of a request of no trial without evidence, which may
// have outlived its trial.
func (r *h2half) bareTrailers(block []byte) ([]byte, error) {
	var fields h2fields // few requests have trailers
	if err := fields.index(block); err != nil {
		return nil, violation(codeCompression, err.Error())
	}
	if _, ok := fields.Header(tfi.EvidenceHeader); ok {
		block = fields.appendWithout(nil, &nameEvidence)
	}
	return block, nil
}

// request opens a stream for a client's request.
func (r *h2half) request(id uint32, block []byte, end bool) (*h2stream, error) {
	h := r.h
	may := r.mayOpen()
	wants := r.wanted
	if !r.looked {
		var err error
		if wants, err = r.wants(block); err != nil {
			return nil, err
		}
	}
	r.looked = false
	if err := r.openable(id); err != nil {
		return nil, err
	}
	if !may {
		r.back().enqueue(appendReset(nil, id, codeRefusedStream))
		return nil, r.flood.reset()
	}
	s := h.open(id)
	s.clientDone = end
	h.proxy.metrics.inc(metricRequestsHTTP2)
	if wants {
		taken, err := h.trialRequest(s, block, end)
		if taken || err != nil {
			return s, err
		}
	}
	h.assign(s)
	r.enqueueHeaders(s.server, block, end)
	return s, nil
}

// data looks at a DATA frame, of which raw need not hold all unless whole.
func (r *h2half) data(f frameHeader, raw []byte, whole bool) (verdict, error) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s, other := r.stream(f.stream)
	end := f.has(flagEndStream)
	if f.length == 0 && !end {
		if err := r.flood.empty(); err != nil {
			return verdictDrop, err
		}
	}
	switch {
	case s == nil && r.idle(f.stream):
		return verdictDrop, violation(codeProtocol, "DATA on an idle stream")
	case s == nil:
		if r.fromClient { // a callee's may fill a window of any size
			if err := r.flood.late(); err != nil {
				return verdictDrop, err
			}
		}
		return verdictDrop, r.late(f.stream)
	case r.ended(s):
		return verdictDrop, violation(codeStreamClosed, "DATA after the end")
	case s.trial != nil && s.trial.keepsBack(r, f.length) && r.isFull(f.length):
		return verdictWait, nil
	case s.trial != nil && !whole:
		return verdictWait, nil
	case s.trial != nil:
		if !r.alone {
			return verdictTake, nil
		}
		r.dealTrial(s, f, raw[:frameHeaderSize+f.length])
		return verdictDone, nil
	case !whole && f.has(flagPadded):
		return verdictWait, nil // in pieces its padding could not stay as long
	}
	renumber(raw, other)
	if !r.fromClient {
		h.window.Add(-int64(f.length))
	}
	if end && whole { // else with its last piece; see finish
		r.done(s)
	}
	return verdictPass, nil
}

// flush writes what the connection's lock has let be enqueued, first in this
// direction.
func (h *h2conn) flush(r *h2half) error {
	if err := r.flush(); err != nil {
		return err
	}
	return r.flushBack()
}
