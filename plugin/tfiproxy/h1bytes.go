package tfiproxy

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// tokenBytes are the bytes of a method or a header name (RFC 9110, 5.6.2).
var tokenBytes = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

func isToken(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for _, c := range b {
		if !tokenBytes[c] {
			return false
		}
	}
	return true
}

// isFieldValue reports whether b has no control byte but tabs. It looks at eight
// bytes at a time: nearly all values are plain, and long ones cost most.
func isFieldValue(b []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		del := x ^ 0x7f*ones
		// A byte below 0x20, or 0x7f, leaves its high bit; so may a neighbour of one.
		if ((x-0x20*ones)&^x|(del-ones)&^del)&highs != 0 && !plainValue(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return plainValue(b)
}

func plainValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// trimBlanks cuts spaces and tabs off both ends.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// sameFold compares ASCII without regard to case; lower has no capitals.
func sameFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// listHas reports whether a comma-separated list has the token lower.
func listHas(list []byte, lower string) bool {
	for len(list) > 0 {
		var item []byte
		if i := bytes.IndexByte(list, ','); i >= 0 {
			item, list = list[:i], list[i+1:]
		} else {
			item, list = list, nil
		}
		if sameFold(trimBlanks(item), lower) {
			return true
		}
	}
	return false
}

// view is b as a string that lives as long as b stays as it is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
