package span

import "unicode/utf8"

// appendUTF8 appends v with '?' in place of each byte that is not part of UTF-8.
func appendUTF8[T string | []byte](b []byte, v T) []byte {
	start := len(b)
	b = append(b, v...)
	for i := start; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 {
			b[i] = '?'
		}
		i += max(size, 1)
	}
	return b
}
