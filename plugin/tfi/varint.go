package tfi

import "encoding/binary"

// appendUvarint writes n in base 128, least significant group first.
func appendUvarint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

// uvarintLen is the number of bytes that appendUvarint writes.
func uvarintLen(n uint64) int {
	size := 1
	for n >= 0x80 {
		n >>= 7
		size++
	}
	return size
}

// reader takes values off the front of b. Once something was wrong it stays bad
// and yields zeros, so that the end of a parse is the only place to look.
type reader struct {
	b   []byte
	bad bool
}

// uvarint reads a number up to limit in its shortest form: one value has one
// encoding only.
func (r *reader) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if r.bad || size <= 0 || n > limit || (size > 1 && r.b[size-1] == 0) {
		r.bad = true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) uint32() uint32 { return uint32(r.uvarint(1<<32 - 1)) }

// take returns the next n bytes, which stay part of the input.
func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) copyTo(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *reader) uint64() uint64 {
	v := r.take(8)
	if v == nil {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

func (r *reader) tag() Tag {
	v := r.take(6)
	if v == nil {
		return 0
	}
	var t Tag
	for _, b := range v {
		t = t<<8 | Tag(b)
	}
	if t == 0 {
		r.bad = true
	}
	return t
}

func appendTag(b []byte, t Tag) []byte {
	return append(b, byte(t>>40), byte(t>>32), byte(t>>24), byte(t>>16), byte(t>>8), byte(t))
}
