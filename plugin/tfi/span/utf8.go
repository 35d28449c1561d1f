package span

import (
	"encoding/binary"
	"unicode/utf8"
)

// clean puts '?' in place of each byte that is not part of UTF-8. What comes from
// the wire need not be UTF-8, and one such attribute would cost the whole batch.
func clean(b []byte) {
	const high = 0x8080808080808080
	i := 0
	for i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:])&high == 0 {
		i += 8
	}
	for i < len(b) {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			b[i] = '?'
		}
		i += max(size, 1)
	}
}
