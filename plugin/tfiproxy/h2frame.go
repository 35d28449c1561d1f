package tfiproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// frameType of HTTP/2 (RFC 9113, 6).
type frameType uint8

const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	framePriority     frameType = 2
	frameReset        frameType = 3
	frameSettings     frameType = 4
	framePushPromise  frameType = 5
	framePing         frameType = 6
	frameGoAway       frameType = 7
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
)

// Flags of frames.
const (
	flagEndStream  = 0x01 // DATA, HEADERS
	flagAck        = 0x01 // SETTINGS, PING
	flagEndHeaders = 0x04
	flagPadded     = 0x08
	flagPriority   = 0x20
)

// errorCode of HTTP/2 (RFC 9113, 7).
type errorCode uint32

const (
	codeNone          errorCode = 0
	codeProtocol      errorCode = 1
	codeInternal      errorCode = 2
	codeFlowControl   errorCode = 3
	codeStreamClosed  errorCode = 5
	codeFrameSize     errorCode = 6
	codeRefusedStream errorCode = 7
	codeCancel        errorCode = 8
	codeCompression   errorCode = 9
	codeCalm          errorCode = 11 // ENHANCE_YOUR_CALM
	codeHTTP1         errorCode = 13 // HTTP_1_1_REQUIRED
)

// Settings that the sidecar cares about.
const (
	settingTableSize  = 1
	settingEnablePush = 2
	settingMaxStreams = 3
	settingWindow     = 4
	settingFrameSize  = 5
	settingSize       = 6
	defaultWindow     = 65535
	maxWindow         = 1<<31 - 1
	maxStreamID       = 1<<31 - 1
	frameHeaderSize   = 9
	// ownFrameSize is what every peer takes; frames that the sidecar makes are no larger.
	ownFrameSize = 16384
	// maxFrameSize is what peers may be told that they may send: a frame must fit a
	// buffer, with others before it.
	maxFrameSize = 48 << 10
)

// protocolError ends a connection with a code.
type protocolError struct {
	code errorCode
	why  string
}

func (e *protocolError) Error() string { return fmt.Sprintf("HTTP/2: %s (code %d)", e.why, e.code) }

func violation(code errorCode, why string) error { return &protocolError{code: code, why: why} }

// errClosing says that a connection is at its end in good order.
var errClosing = errors.New("connection closes")

// frameHeader is the first nine bytes of a frame.
type frameHeader struct {
	length int
	kind   frameType
	flags  uint8
	stream uint32
}

func parseFrameHeader(b []byte) frameHeader {
	_ = b[frameHeaderSize-1]
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   frameType(b[3]),
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & maxStreamID,
	}
}

func (f frameHeader) has(flag uint8) bool { return f.flags&flag != 0 }

func appendFrameHeader(b []byte, f frameHeader) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), byte(f.kind), f.flags)
	return binary.BigEndian.AppendUint32(b, f.stream)
}

// check refuses frames whose form is wrong whatever the state.
func (f frameHeader) check(limit int) error {
	if f.length > limit {
		return violation(codeFrameSize, "frame too large")
	}
	onStream := f.stream != 0
	switch f.kind {
	case frameData, frameHeaders, frameContinuation:
		if !onStream {
			return violation(codeProtocol, "frame needs a stream")
		}
	case framePriority:
		if !onStream {
			return violation(codeProtocol, "PRIORITY needs a stream")
		}
		if f.length != 5 {
			return violation(codeFrameSize, "PRIORITY is not 5 bytes")
		}
	case frameReset:
		if !onStream {
			return violation(codeProtocol, "RST_STREAM needs a stream")
		}
		if f.length != 4 {
			return violation(codeFrameSize, "RST_STREAM is not 4 bytes")
		}
	case frameSettings:
		if onStream {
			return violation(codeProtocol, "SETTINGS on a stream")
		}
		if f.has(flagAck) && f.length != 0 || f.length%settingSize != 0 {
			return violation(codeFrameSize, "SETTINGS of a wrong size")
		}
	case framePushPromise:
		return violation(codeProtocol, "PUSH_PROMISE was not allowed")
	case framePing:
		if onStream {
			return violation(codeProtocol, "PING on a stream")
		}
		if f.length != 8 {
			return violation(codeFrameSize, "PING is not 8 bytes")
		}
	case frameGoAway:
		if onStream {
			return violation(codeProtocol, "GOAWAY on a stream")
		}
		if f.length < 8 {
			return violation(codeFrameSize, "GOAWAY shorter than 8 bytes")
		}
	case frameWindowUpdate:
		if f.length != 4 {
			return violation(codeFrameSize, "WINDOW_UPDATE is not 4 bytes")
		}
	}
	return nil
}

// headerFragment cuts padding and priority off a HEADERS frame's payload.
func headerFragment(f frameHeader, payload []byte) ([]byte, error) {
	pad := 0
	if f.has(flagPadded) {
		if len(payload) < 1 {
			return nil, violation(codeFrameSize, "HEADERS without its padding")
		}
		pad = int(payload[0])
		payload = payload[1:]
	}
	if f.has(flagPriority) {
		if len(payload) < 5 {
			return nil, violation(codeFrameSize, "HEADERS without its priority")
		}
		payload = payload[5:]
	}
	if pad > len(payload) {
		return nil, violation(codeProtocol, "padding longer than the frame")
	}
	return payload[:len(payload)-pad], nil
}

// Frames that the sidecar makes.

func appendReset(b []byte, stream uint32, code errorCode) []byte {
	b = appendFrameHeader(b, frameHeader{length: 4, kind: frameReset, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendWindowUpdate(b []byte, stream uint32, n int) []byte {
	if n <= 0 {
		return b
	}
	b = appendFrameHeader(b, frameHeader{length: 4, kind: frameWindowUpdate, stream: stream})
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendGoAway(b []byte, last uint32, code errorCode) []byte {
	b = appendFrameHeader(b, frameHeader{length: 8, kind: frameGoAway})
	b = binary.BigEndian.AppendUint32(b, last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// appendHeaders appends a header block in HEADERS and as many CONTINUATIONs as it takes.
func appendHeaders(b []byte, stream uint32, block []byte, end bool) []byte {
	f := frameHeader{kind: frameHeaders, stream: stream}
	if end {
		f.flags = flagEndStream
	}
	for {
		n := min(len(block), ownFrameSize)
		f.length = n
		if n == len(block) {
			f.flags |= flagEndHeaders
		}
		b = appendFrameHeader(b, f)
		b = append(b, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		f.kind, f.flags = frameContinuation, 0
	}
}

// appendData appends a body in DATA frames, the last of which ends the stream.
func appendData(b []byte, stream uint32, data []byte) []byte {
	for {
		n := min(len(data), ownFrameSize)
		f := frameHeader{kind: frameData, stream: stream, length: n}
		if n == len(data) {
			f.flags = flagEndStream
		}
		b = appendFrameHeader(b, f)
		b = append(b, data[:n]...)
		if data = data[n:]; len(data) == 0 {
			return b
		}
	}
}
