package tfi

import "encoding/binary"

// appendUvarint writes n in base 128, least significant group first.
func appendUvarint(b []byte, n uint64) []byte {
	if n < 0x80 { // by far the most, and so inlined
		return append(b, byte(n))
	}
	return binary.AppendUvarint(b, n)
}

// maxUvarint32 is the most bytes that appendUvarint writes of 32 bits.
const maxUvarint32 = 5

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
	if b := r.b; len(b) > 0 && b[0] < 0x80 && uint64(b[0]) <= limit && !r.bad {
		r.b = b[1:]
		return uint64(b[0])
	}
	return r.longUvarint(limit)
}

// longUvarint is uvarint of more than one byte, or of none that is right.
func (r *reader) longUvarint(limit uint64) uint64 {
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
	t := Tag(v[0])<<40 | Tag(v[1])<<32 | Tag(v[2])<<24 | Tag(v[3])<<16 | Tag(v[4])<<8 | Tag(v[5])
	if t == 0 {
		r.bad = true
	}
	return t
}

func appendTag(b []byte, t Tag) []byte {
	return append(b, byte(t>>40), byte(t>>32), byte(t>>24), byte(t>>16), byte(t>>8), byte(t))
}
