package span

import (
	"encoding/binary"
	"unicode/utf8"
)

// clean puts '?' in place of each byte that is not part of UTF-8. What comes from
// the wire need not be UTF-8, and one such attribute would cost the whole batch.
func clean(b []byte) {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			b[i] = '?'
		}
		i += max(size, 1)
	}
}

// isASCII looks at eight bytes at a time; the last may have been looked at before.
func isASCII(b []byte) bool {
	const high = 0x8080808080808080
	if n := len(b); n >= 8 {
		bits := binary.LittleEndian.Uint64(b[n-8:])
		for ; len(b) > 8; b = b[8:] {
			bits |= binary.LittleEndian.Uint64(b)
		}
		return bits&high == 0
	}
	var bits byte
	for _, c := range b {
		bits |= c
	}
	return bits < utf8.RuneSelf
}
