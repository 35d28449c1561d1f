package tfi

import (
	"errors"
	"slices"
)

// Evidence errors.
var (
	errEvidenceSize = errors.New("evidence is larger than its limit")
	errEvidenceForm = errors.New("evidence is malformed")
)

// evidenceVersion is the first byte of the header's binary form:
//
//	version   1 byte
//	sender    6 bytes, its tag
//	seq       varint, at least 1, number of the event that the message carries
//	k         varint, rank of the call; 0 unknown
//	service   varint, index of the sender's service in the activation + 1; 0 unknown
//	rows      to the end, by ascending tag:
//	  tag     6 bytes
//	  n       varint, at least 1, number of entries
//	  n times by ascending index:
//	    skip  varint, indexes left out since the entry before
//	    count varint, at least 1
//
// It travels in base64url without padding. Every value has one form only;
// whatever deviates is refused as a whole.
const evidenceVersion = 1

// sender is what a message says of who sent it.
type sender struct {
	tag     Tag
	seq     uint32
	k       uint32
	service int // index of its service + 1; 0 unknown
}

// evidence is a decoded header. Its rows have been checked and stay in their
// binary form: they are only ever merged.
type evidence struct {
	sender
	rows []byte
}

// decodeEvidence decodes a header's value. buf is overwritten, and rows point
// into what is returned for it. Errors: errEvidenceSize, errEvidenceForm.
func decodeEvidence(buf []byte, value string, width, services, limit int) ([]byte, evidence, error) {
	if len(value) > limit {
		return buf, evidence{}, errEvidenceSize
	}
	buf, ok := appendBase64Decoded(buf[:0], value)
	if !ok {
		return buf, evidence{}, errEvidenceForm
	}
	r := reader{b: buf}
	if v := r.take(1); v == nil || v[0] != evidenceVersion {
		return buf, evidence{}, errEvidenceForm
	}
	var e evidence
	e.tag = r.tag()
	e.seq = r.uint32()
	if e.seq == 0 {
		r.bad = true
	}
	e.k = r.uint32()
	e.service = int(r.uvarint(uint64(services)))
	e.rows = r.b
	for last := Tag(0); !r.bad && len(r.b) > 0; {
		t := r.tag()
		if t <= last {
			r.bad = true
		}
		last = t
		checkRow(&r, width)
	}
	if r.bad {
		return buf, evidence{}, errEvidenceForm
	}
	return buf, e, nil
}

func checkRow(r *reader, width int) {
	n := r.uvarint(uint64(width))
	if n == 0 {
		r.bad = true
	}
	next := uint64(0)
	for ; n > 0 && !r.bad; n-- {
		next += r.uvarint(uint64(width)) + 1
		if next > uint64(width) || r.uint32() == 0 {
			r.bad = true
		}
	}
}

// mergeInto merges the rows into c, except those of own, of which c knows
// best. It returns false if c had no room for a row: then it has less than it
// might have, never more.
func (e *evidence) mergeInto(c *Counter, own Tag, instances int) bool {
	room := true
	r := reader{b: e.rows}
	for len(r.b) > 0 && !r.bad {
		t := r.tag()
		at, ok := c.find(t)
		if !ok && t != own {
			if ok = len(c.tags) < instances; ok {
				c.insert(at, t)
			} else {
				room = false
			}
		}
		var row []uint32 // none: passed over
		if ok && t != own {
			row = c.at(at)
		}
		index := -1
		for n := r.uvarint(uint64(c.width)); n > 0 && !r.bad; n-- {
			index += int(r.uvarint(uint64(c.width))) + 1
			if count := r.uint32(); index < len(row) {
				row[index] = max(row[index], count)
			}
		}
	}
	return room
}

// appendEvidence appends the binary form of what from knows. Rows that do not
// fit into limit bytes are left out, own is not: the receiver then knows less
// than it might, never more. full is false if any was.
func appendEvidence(b []byte, from sender, c *Counter, limit int) (_ []byte, full bool) {
	start := len(b)
	b = append(b, evidenceVersion)
	b = appendTag(b, from.tag)
	b = appendUvarint(b, uint64(from.seq))
	b = appendUvarint(b, uint64(from.k))
	b = appendUvarint(b, uint64(from.service))
	left := limit - (len(b) - start)
	if c.maxSize() <= left {
		for i, t := range c.tags {
			b = c.appendRow(b, i, t)
		}
		return b, true
	}
	own := -1
	if i, ok := c.find(from.tag); ok {
		if size := c.rowSize(i); size <= left {
			own = i
			left -= size
		}
	}
	full = true
	for i, t := range c.tags {
		if i != own {
			size := c.rowSize(i)
			if size > left {
				full = false
				continue
			}
			left -= size
		}
		b = c.appendRow(b, i, t)
	}
	return b, full
}

// maxSize is a number of bytes that appendRow never exceeds for all rows together.
func (c *Counter) maxSize() int {
	const perRow = 6 + maxUvarint32
	const perCell = maxUvarint32 + maxUvarint32
	return len(c.tags)*perRow + len(c.cells)*perCell
}

// rowSize is the number of bytes that appendRow writes.
func (c *Counter) rowSize(row int) int {
	entries, size, next := 0, 0, 0
	for i, n := range c.cells[row*c.width : (row+1)*c.width] {
		if n != 0 {
			entries++
			size += uvarintLen(uint64(i-next)) + uvarintLen(uint64(n))
			next = i + 1
		}
	}
	if entries == 0 {
		return 0
	}
	return 6 + uvarintLen(uint64(entries)) + size
}

// appendRow appends a row; nothing if all of its counts are 0.
func (c *Counter) appendRow(b []byte, row int, t Tag) []byte {
	start := len(b)
	b, entries := c.appendEntries(appendTag(b, t), row)
	if entries == 0 {
		return b[:start]
	}
	return b
}

// appendEntries appends a row's counts that are not 0, behind how many they are.
func (c *Counter) appendEntries(b []byte, row int) (_ []byte, entries int) {
	start := len(b)
	b = append(b, 0)
	next := 0
	for i, n := range c.at(row) {
		if n != 0 {
			entries++
			b = appendUvarint(b, uint64(i-next))
			b = appendUvarint(b, uint64(n))
			next = i + 1
		}
	}
	if entries < 0x80 {
		b[start] = byte(entries)
		return b, entries
	}
	// Only who replays traces has that many.
	from := start + 1
	var room [maxUvarint32]byte
	size := len(appendUvarint(room[:0], uint64(entries)))
	b = slices.Insert(b, from, room[1:size]...)
	b[start] = room[0]
	return b, entries
}

// evidenceRoom is the number of binary bytes that limit characters hold.
func evidenceRoom(limit int) int { return limit * 3 / 4 }

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range len(base64Digits) {
		t[base64Digits[i]] = byte(i)
	}
	return t
}()

// appendBase64 appends b in base64url without padding.
func appendBase64(dst, b []byte) []byte {
	const digits = base64Digits
	at := len(dst)
	dst = slices.Grow(dst, (len(b)+2)/3*4)
	dst = dst[:at+(len(b)*4+2)/3]
	to := dst[at:]
	for len(b) >= 3 && len(to) >= 4 {
		v := uint(b[0])<<16 | uint(b[1])<<8 | uint(b[2])
		to[0], to[1], to[2], to[3] = digits[v>>18&63], digits[v>>12&63], digits[v>>6&63], digits[v&63]
		b, to = b[3:], to[4:]
	}
	switch len(b) {
	case 1:
		v := uint(b[0]) << 4
		to[0], to[1] = digits[v>>6], digits[v&63]
	case 2:
		v := uint(b[0])<<10 | uint(b[1])<<2
		to[0], to[1], to[2] = digits[v>>12], digits[v>>6&63], digits[v&63]
	}
	return dst
}

// appendBase64Decoded is its inverse. Unlike encoding/base64 it reads a string
// without copying it first, and takes neither line breaks nor spare bits.
func appendBase64Decoded(dst []byte, s string) ([]byte, bool) {
	dst = slices.Grow(dst, len(s)/4*3+2) // the appends below find room
	for len(s) >= 4 {
		a, b, c, d := base64Values[s[0]], base64Values[s[1]], base64Values[s[2]], base64Values[s[3]]
		if a|b|c|d == 0xff {
			return dst, false
		}
		dst = append(dst, a<<2|b>>4, b<<4|c>>2, c<<6|d)
		s = s[4:]
	}
	switch len(s) {
	case 0:
		return dst, true
	case 2:
		a, b := base64Values[s[0]], base64Values[s[1]]
		if a|b == 0xff || b&15 != 0 {
			return dst, false
		}
		return append(dst, a<<2|b>>4), true
	case 3:
		a, b, c := base64Values[s[0]], base64Values[s[1]], base64Values[s[2]]
		if a|b|c == 0xff || c&3 != 0 {
			return dst, false
		}
		return append(dst, a<<2|b>>4, b<<4|c>>2), true
	}
	return dst, false
}
