package workload

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// traceMagic opens the trace ids of all trials; sidecars look for nothing else.
const traceMagic = 0x5f1c

// Key is an activation key: 56 random bits, used once.
type Key [7]byte

// String returns 14 hex digits, which is also the trial's id.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// TraceID is a W3C trace id.
type TraceID [16]byte

// String returns 32 hex digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// SpanID is a W3C span id.
type SpanID [8]byte

// String returns 16 hex digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// NewKey draws an activation key. random should be crypto/rand's Reader: a key
// that cannot be guessed is what keeps clients from causing faults.
func NewKey(random io.Reader) (Key, error) {
	var key Key
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return Key{}, fmt.Errorf("draw an activation key: %w", err)
	}
	return key, nil
}

// NewTraceID makes a trace id of the trial: the magic, the key, and 7 random bytes,
// which are the part that samplers use.
func NewTraceID(key Key, random io.Reader) (TraceID, error) {
	var id TraceID
	binary.BigEndian.PutUint16(id[:], traceMagic)
	copy(id[2:], key[:])
	if _, err := io.ReadFull(random, id[9:]); err != nil {
		return TraceID{}, fmt.Errorf("draw a trace id: %w", err)
	}
	return id, nil
}

// shortHalf is a trace id of 64 bits: the magic, and as much of the key as there is room for.
func shortHalf(key Key) []byte {
	return append(binary.BigEndian.AppendUint16(nil, traceMagic), key[:6]...)
}

// shortTraceID is how one of 64 bits is reported.
func shortTraceID(key Key) (id TraceID) {
	copy(id[8:], shortHalf(key))
	return id
}

// statedTraceID is what sidecars report where tracestate alone names the trial.
func statedTraceID(key Key) (id TraceID) {
	binary.BigEndian.PutUint16(id[:], traceMagic)
	copy(id[2:], key[:])
	return id
}

func newSpanID(random io.Reader) (span SpanID, err error) {
	if _, err := io.ReadFull(random, span[:]); err != nil {
		return span, fmt.Errorf("draw a span id: %w", err)
	}
	if span == (SpanID{}) {
		span[7] = 1 // all zeros is not a span id
	}
	return span, nil
}

// traceState returns the tracestate header that marks a trace the application
// started itself.
func traceState(key Key) string { return "sfi=" + key.String() }
