package tfiproxy

import (
	"bytes"
	"errors"
)

// errChunk says that a chunked body is malformed.
var errChunk = errors.New("malformed chunked body")

// Bounds of what stands between a chunked body's data.
const (
	maxChunkLine = 1 << 10
	maxTrailers  = 16 << 10
)

// body follows a message's body through the bytes that are forwarded, in order to
// know its end. It never changes a byte.
type body struct {
	length int64 // as of bodyLength
	left   int64 // of a length, or of the chunk under way
	bytes  int64 // of data so far
	state  chunkState
	line   int // bytes of the line, or of all trailers, so far
	digits int
	done   bool
	// last is where in what was consumed last the terminating chunk begins, 0 if it
	// had begun before; -1: it is not in there.
	last int
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkExtension
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerStart
	trailerLine
	trailerLF
	trailerEndLF
)

func (s *body) begin(length int64) {
	*s = body{length: length, last: -1}
	switch {
	case length >= 0:
		s.left, s.done = length, length == 0
	case length == lengthChunked:
		s.state = chunkSize
	}
}

// consume returns how many bytes at the start of b belong to the body; fewer
// than all only if it ends there. Errors: errChunk.
func (s *body) consume(b []byte) (n int, err error) {
	s.last = -1
	if s.length == lengthChunked && s.state >= trailerStart {
		s.last = 0
	}
	switch {
	case s.done:
		return 0, nil
	case s.length == lengthEOF:
		s.bytes += int64(len(b))
		return len(b), nil
	case s.length >= 0:
		n = int(min(s.left, int64(len(b))))
		s.left -= int64(n)
		s.bytes += int64(n)
		s.done = s.left == 0
		return n, nil
	}
	return s.consumeChunks(b)
}

// plain returns how many of the bytes to come are data for certain: those of a length, or
// of the chunk under way.
func (s *body) plain() int64 {
	if s.done || s.length < 0 && (s.length != lengthChunked || s.state != chunkData) {
		return 0
	}
	return s.left
}

// pass is consume for n bytes that nobody has looked at, of those that plain told.
func (s *body) pass(n int) {
	s.last = -1
	s.left -= int64(n)
	s.bytes += int64(n)
	switch {
	case s.left > 0:
	case s.length == lengthChunked:
		s.state = chunkDataCR
	default:
		s.done = true
	}
}

func (s *body) consumeChunks(b []byte) (n int, err error) {
	start := 0 // of the size line under way
	for n < len(b) {
		c := b[n]
		switch s.state {
		case chunkData:
			m := int(min(s.left, int64(len(b)-n)))
			n += m
			s.left -= int64(m)
			s.bytes += int64(m)
			if s.left == 0 {
				s.state = chunkDataCR
			}
			continue
		case chunkSize:
			if s.digits == 0 {
				start = n
			}
			d, ok := hexValue(c)
			switch {
			case ok:
				// 15 digits keep the size below 2^60.
				if s.digits++; s.digits > 15 {
					return n, errChunk
				}
				s.left = s.left<<4 | int64(d)
			case s.digits == 0:
				return n, errChunk
			case c == '\r':
				s.state = chunkSizeLF
			case c == ';':
				s.state = chunkExtension
			default:
				return n, errChunk
			}
		case chunkExtension:
			if s.line++; s.line > maxChunkLine {
				return n, errChunk
			}
			switch {
			case c == '\r':
				s.state = chunkSizeLF
			case c < ' ' && c != '\t' || c == 0x7f:
				return n, errChunk
			}
		case chunkSizeLF:
			if c != '\n' {
				return n, errChunk
			}
			s.line, s.digits = 0, 0
			s.state = chunkData
			if s.left == 0 {
				s.state = trailerStart
				s.last = start
			}
		case chunkDataCR:
			if c != '\r' {
				return n, errChunk
			}
			s.state = chunkDataLF
		case chunkDataLF:
			if c != '\n' {
				return n, errChunk
			}
			s.state = chunkSize
		case trailerStart:
			switch {
			case c == '\r':
				s.state = trailerEndLF
			case !tokenBytes[c]:
				return n, errChunk // a fold, or a line without a name
			default:
				s.state = trailerLine
				s.digits = 0 // 1 once the name's colon has come
				continue
			}
		case trailerLine:
			m, err := s.consumeTrailer(b[n:])
			n += m
			if err != nil {
				return n, err
			}
			continue
		case trailerLF:
			if c != '\n' {
				return n, errChunk
			}
			s.state = trailerStart
		case trailerEndLF:
			if c != '\n' {
				return n, errChunk
			}
			s.done = true
			return n + 1, nil
		}
		n++
	}
	return n, nil
}

// consumeTrailer takes in a trailer line up to its CR.
func (s *body) consumeTrailer(b []byte) (n int, err error) {
	end := bytes.IndexByte(b, '\r')
	part := b
	if end >= 0 {
		part = b[:end]
	}
	if s.line += len(part); s.line > maxTrailers {
		return 0, errChunk
	}
	if s.digits == 0 {
		name := part
		if colon := bytes.IndexByte(part, ':'); colon >= 0 {
			s.digits = 1
			name = part[:colon]
			if !isFieldValue(part[colon:]) {
				return 0, errChunk
			}
		}
		if len(name) > 0 && !isToken(name) || end >= 0 && s.digits == 0 {
			return 0, errChunk
		}
	} else if !isFieldValue(part) {
		return 0, errChunk
	}
	if end < 0 {
		return len(part), nil
	}
	s.state = trailerLF
	return len(part) + 1, nil
}

func hexValue(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
