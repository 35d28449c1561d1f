package tfi

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// Key names one immutable set of TFICs and switches it on for one trial.
type Key [7]byte

// ErrKey says that a text is no activation key.
var ErrKey = errors.New("not an activation key")

// ParseKey reads a key from 14 hex digits of either case. Errors: ErrKey.
func ParseKey(s string) (Key, error) {
	var k Key
	if len(s) != 2*len(k) || !hexInto(k[:], s) {
		return Key{}, fmt.Errorf("%w: %q, want 14 hex digits", ErrKey, s)
	}
	return k, nil
}

// String returns the key's 14 hex digits.
func (k Key) String() string { return string(k.AppendText(nil)) }

// AppendText appends the key's 14 hex digits.
func (k Key) AppendText(b []byte) []byte { return hex.AppendEncode(b, k[:]) }

// prefix is all of a key that a 64-bit trace id has room for. A policy has no
// two keys with the same prefix.
type prefix [6]byte

func (k Key) prefix() prefix { return prefix(k[:6]) }

// Tag names one sidecar's state of one trial: 48 random bits, drawn anew
// whenever the state starts anew. 0 is no tag.
type Tag uint64

const tagMask = 1<<48 - 1

// String returns the tag's 12 hex digits.
func (t Tag) String() string { return string(t.AppendText(nil)) }

// AppendText appends the tag's 12 hex digits.
func (t Tag) AppendText(b []byte) []byte {
	const digits = "0123456789abcdef"
	for shift := 44; shift >= 0; shift -= 4 {
		b = append(b, digits[t>>shift&15])
	}
	return b
}

// TraceID is a 128-bit trace id; one of 64 bits stands in its last 8 bytes.
type TraceID [16]byte

// String returns the id's 32 hex digits.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// SpanID is a span id; zero where there is none.
type SpanID [8]byte

// The first two bytes of a trial's trace ids.
const (
	magic0 = 0x5f
	magic1 = 0x1c
)

// NewTraceID returns a trace id that belongs to the trial of k. Its last 7 bytes
// are taken from random: they are the part that samplers look at.
func NewTraceID(k Key, random uint64) TraceID {
	var t TraceID
	t[0], t[1] = magic0, magic1
	copy(t[2:9], k[:])
	for i := 9; i < 16; i++ {
		t[i] = byte(random)
		random >>= 8
	}
	return t
}

// ref is the mark of a trial that a trace id bears: a whole key, or as much of
// it as 64 bits have room for.
type ref struct {
	key   Key
	whole bool
}

// ref finds the mark in t.
func (t *TraceID) ref() (r ref, ok bool) {
	switch {
	case t[0] == magic0 && t[1] == magic1:
		copy(r.key[:], t[2:9])
		r.whole = true
		return r, true
	case [8]byte(t[:8]) == [8]byte{} && t[8] == magic0 && t[9] == magic1:
		copy(r.key[:6], t[10:16])
		return r, true
	}
	return ref{}, false
}

// hexInto decodes s, of exactly 2*len(dst) hex digits of either case. If s is none,
// dst holds anything.
func hexInto(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	var all byte
	for i := range dst {
		hi, lo := hexValues[s[2*i]], hexValues[s[2*i+1]]
		all |= hi | lo
		dst[i] = hi<<4 | lo
	}
	return all != noHex
}

func hexDigit(c byte) (byte, bool) {
	v := hexValues[c]
	return v, v != noHex
}

const noHex = 0xff

// hexValues are the values of hex digits; noHex for all else.
var hexValues = func() (t [256]byte) {
	for c := range t {
		switch {
		case '0' <= c && c <= '9':
			t[c] = byte(c - '0')
		case 'a' <= c && c <= 'f':
			t[c] = byte(c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			t[c] = byte(c - 'A' + 10)
		default:
			t[c] = noHex
		}
	}
	return t
}()
