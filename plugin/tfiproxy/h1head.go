package tfiproxy

import (
	"bytes"
	"errors"
	"math"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// The length of the one is the case of the other in [headFields.note].
var _ = [1]struct{}{}[len(tfi.EvidenceHeader)-len("content-length")]

// Errors of HTTP/1 heads and bodies. What is strict here is strict because two
// parsers that disagree about where a message ends let one message hide in another.
var (
	errHeadForm    = errors.New("malformed HTTP/1 head")
	errHeadSize    = errors.New("head larger than its limit")
	errHeadVersion = errors.New("HTTP version is neither 1.0 nor 1.1")
	errFraming     = errors.New("ambiguous message length")
	errEncoding    = errors.New("transfer coding other than chunked")
)

// Lengths of a body that is not delimited by its length.
const (
	lengthNone    int64 = -1 // not announced
	lengthChunked int64 = -2
	lengthEOF     int64 = -3
)

// headFields is what a head's field lines say about the connection. It is filled
// in one pass and keeps slices of the head.
type headFields struct {
	length    int64 // announced; lengthNone, lengthChunked
	closing   bool  // Connection: close
	keepAlive bool  // Connection: keep-alive
	upgrade   bool  // there is an Upgrade header
	h2c       bool  // it says h2c, among others maybe
	evidence  bool  // there is evidence
	expect    bool  // Expect: 100-continue
	hosts     int
	traced    bool // a trace header that edge rules respect
	marked    bool // a trace header that bears a trial's mark
}

// requestHead is a scanned request line with its fields.
type requestHead struct {
	headFields
	method []byte
	target []byte
	minor  byte // of HTTP/1.x
	size   int  // of the whole head in bytes
}

// responseHead is a scanned status line with its fields.
type responseHead struct {
	headFields
	status int
	minor  byte
	size   int
}

// headEnd returns the size of the head at the start of b, or 0 if its end has
// not come. Bytes before from have been searched already.
func headEnd(b []byte, from int) int {
	from = max(from-3, 0)
	if i := bytes.Index(b[from:], []byte("\r\n\r\n")); i >= 0 {
		return from + i + 4
	}
	return 0
}

// bareLF reports whether a head whose end has not come has a line without its CR:
// its end will not come. Bytes before from have been searched already.
func bareLF(b []byte, from int) bool {
	for i := from; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return false
		}
		if i += n; i == 0 || b[i-1] != '\r' {
			return true
		}
	}
	return false
}

// scan reads the request head b, which ends with its empty line. traceHeader is
// a further header that carries a trace id; empty: none.
//
// Errors: errHeadForm, errHeadVersion, errFraming, errEncoding.
func (h *requestHead) scan(b []byte, traceHeader string) error {
	*h = requestHead{size: len(b), headFields: headFields{length: lengthNone}}
	end := bytes.IndexByte(b, '\r')
	if end < 0 || end+1 >= len(b) || b[end+1] != '\n' {
		return errHeadForm
	}
	line := b[:end]
	space := bytes.IndexByte(line, ' ')
	if space <= 0 || !isToken(line[:space]) {
		return errHeadForm
	}
	h.method = line[:space]
	line = line[space+1:]
	space = bytes.IndexByte(line, ' ')
	if space <= 0 {
		return errHeadForm
	}
	h.target = line[:space]
	for _, c := range h.target {
		if c <= ' ' || c == 0x7f {
			return errHeadForm
		}
	}
	var ok bool
	if h.minor, ok = minorVersion(line[space+1:]); !ok {
		return errHeadVersion
	}
	if err := h.scanFields(b[end+2:], traceHeader, true); err != nil {
		return err
	}
	switch {
	case h.hosts > 1 || h.hosts == 0 && h.minor == 1:
		return errHeadForm
	case h.length == lengthChunked && h.minor == 0:
		return errFraming
	}
	return nil
}

// scan reads the answer's head b, which ends with its empty line. Errors: as of a
// request.
func (h *responseHead) scan(b []byte) error {
	*h = responseHead{size: len(b), headFields: headFields{length: lengthNone}}
	end := bytes.IndexByte(b, '\r')
	if end < 0 || end+1 >= len(b) || b[end+1] != '\n' {
		return errHeadForm
	}
	line := b[:end]
	// HTTP/1.1 200[ reason]
	if len(line) < 12 || line[8] != ' ' || len(line) > 12 && line[12] != ' ' || !isFieldValue(line) {
		return errHeadForm
	}
	var ok bool
	if h.minor, ok = minorVersion(line[:8]); !ok {
		return errHeadVersion
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return errHeadForm
		}
		h.status = 10*h.status + int(c-'0')
	}
	if h.status < 100 {
		return errHeadForm
	}
	if err := h.scanFields(b[end+2:], "", false); err != nil {
		return err
	}
	if h.length == lengthChunked && h.minor == 0 {
		return errFraming
	}
	return nil
}

func minorVersion(b []byte) (byte, bool) {
	if len(b) != 8 || string(b[:7]) != "HTTP/1." || b[7] != '0' && b[7] != '1' {
		return 0, false
	}
	return b[7] - '0', true
}

// bodyLength says how the answer's body ends, given the request's method.
func (h *responseHead) bodyLength(method []byte) int64 {
	switch {
	case string(method) == "HEAD", h.status < 200, h.status == 204, h.status == 304:
		return 0
	case string(method) == "CONNECT" && h.status < 300:
		return 0
	case h.length == lengthNone:
		return lengthEOF
	}
	return h.length
}

// bodyLength says how the request's body ends.
func (h *requestHead) bodyLength() int64 {
	if h.length == lengthNone {
		return 0
	}
	return h.length
}

// persists reports whether the connection outlives the message.
func (h *headFields) persists(minor byte) bool {
	if h.closing {
		return false
	}
	return minor == 1 || h.keepAlive
}

// scanFields reads field lines to the empty one that must end b.
func (h *headFields) scanFields(b []byte, traceHeader string, request bool) error {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 1 || b[end-1] != '\r' {
			return errHeadForm
		}
		line := b[:end-1]
		b = b[end+1:]
		if len(line) == 0 {
			if len(b) != 0 {
				return errHeadForm
			}
			return nil
		}
		name, value, ok := cutField(line)
		if !ok {
			return errHeadForm
		}
		if err := h.note(name, value); err != nil {
			return err
		}
		if request {
			h.noteTrace(name, value, traceHeader)
		}
	}
}

// cutField cuts a field line. A line that continues another one (obs-fold)
// has no name, so it is refused as well as a blank before the colon.
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 || !isToken(line[:colon]) {
		return nil, nil, false
	}
	value = trimBlanks(line[colon+1:])
	return line[:colon], value, isFieldValue(value)
}

// note takes down what a field says about message and connection.
func (h *headFields) note(name, value []byte) error {
	switch len(name) {
	case len("host"):
		if sameFold(name, "host") {
			h.hosts++
		}
	case len("expect"):
		if sameFold(name, "expect") {
			h.expect = sameFold(value, "100-continue")
		}
	case len("upgrade"):
		if sameFold(name, "upgrade") {
			h.h2c = h.h2c || listHas(value, "h2c")
			h.upgrade = true
		}
	case len("connection"):
		if sameFold(name, "connection") {
			h.closing = h.closing || listHas(value, "close")
			h.keepAlive = h.keepAlive || listHas(value, "keep-alive")
		}
	case len("content-length"):
		if sameFold(name, "content-length") {
			n, ok := parseLength(value)
			if !ok || h.length != lengthNone {
				return errFraming
			}
			h.length = n
		} else if sameFold(name, tfi.EvidenceHeader) {
			h.evidence = true
		}
	case len("transfer-encoding"):
		if sameFold(name, "transfer-encoding") {
			if h.length != lengthNone {
				return errFraming
			}
			if !sameFold(value, "chunked") {
				return errEncoding
			}
			h.length = lengthChunked
		}
	}
	return nil
}

func parseLength(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		d := int64(c) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = 10*n + d
	}
	return n, true
}

// noteTrace is the gate: it looks whether a trace header may belong to a trial.
func (h *headFields) noteTrace(name, value []byte, traceHeader string) {
	switch len(name) {
	case len("b3"):
		if sameFold(name, "b3") {
			h.trace(value)
		}
	case len("traceparent"):
		if sameFold(name, "traceparent") {
			h.trace(value[min(len("00-"), len(value)):])
		}
	case len("tracestate"):
		if sameFold(name, "tracestate") {
			h.marked = h.marked || bytes.Contains(value, []byte("sfi="))
		}
	case len("x-b3-traceid"):
		if sameFold(name, "x-b3-traceid") {
			h.trace(value)
		}
	case len("uber-trace-id"):
		if sameFold(name, "uber-trace-id") {
			h.trace(value)
		}
	}
	if traceHeader != "" && sameFold(name, traceHeader) {
		h.trace(value)
	}
}

// zeroUpper is how a 64-bit id is written where 128 bits are asked for.
const zeroUpper = "0000000000000000"

// trace notes a trace id: marked is one that begins with the magic, or does so
// in its lower 64 bits with nothing above, as the engine has it.
func (h *headFields) trace(id []byte) {
	h.traced = true
	h.marked = h.marked || hasMagic(id) || len(id) >= 20 && string(id[:16]) == zeroUpper && hasMagic(id[16:])
}

// hasMagic compares the four characters that a trial's trace ids begin with.
func hasMagic(id []byte) bool {
	return len(id) >= 4 && id[0] == '5' && id[1]|0x20 == 'f' && id[2] == '1' && id[3]|0x20 == 'c'
}
