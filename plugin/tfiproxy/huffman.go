package tfiproxy

import (
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// huffmanBits is how many bits of a string are looked up at once: codes that are
// longer are of characters that headers hardly have.
const huffmanBits = 11

// huffmanCodes tells which character's code begins with these bits, and how long it
// is; 0: longer, or none (RFC 7541, appendix B).
var huffmanCodes = func() (table [1 << huffmanBits]struct{ char, bits uint8 }) {
	for c := range 256 {
		// Eight of them take as many bytes as one takes bits.
		eight := strings.Repeat(string([]byte{byte(c)}), 8)
		bits := hpack.HuffmanEncodeLength(eight)
		if bits > huffmanBits {
			continue
		}
		code := hpack.AppendHuffmanString(nil, eight)
		first := (int(code[0])<<8 | int(code[1])) >> (16 - bits) << (huffmanBits - bits)
		for i := range 1 << (huffmanBits - bits) {
			table[first+i].char, table[first+i].bits = byte(c), uint8(bits)
		}
	}
	return table
}()

// appendHuffman appends the string that s encodes. Errors: errHPACK.
func appendHuffman(dst, s []byte) ([]byte, error) {
	const mask = 1<<huffmanBits - 1
	start := len(dst)
	dst = slices.Grow(dst, len(s)*8/5) // no code is shorter than 5 bits
	var have uint64                    // the lowest bits are those to be looked up
	bits := 0
	for i := 0; ; {
		for bits <= 56 && i < len(s) {
			have = have<<8 | uint64(s[i])
			bits += 8
			i++
		}
		if bits < huffmanBits {
			break
		}
		c := huffmanCodes[have>>(bits-huffmanBits)&mask]
		if c.bits == 0 {
			return appendHuffmanSlowly(dst[:start], s)
		}
		dst = append(dst, c.char)
		bits -= int(c.bits)
	}
	for bits > 0 {
		// A string ends with ones, fewer than eight.
		c := huffmanCodes[(have<<(huffmanBits-bits)|mask>>bits)&mask]
		if c.bits == 0 || int(c.bits) > bits {
			break
		}
		dst = append(dst, c.char)
		bits -= int(c.bits)
	}
	if ones := uint64(1)<<bits - 1; bits >= 8 || have&ones != ones {
		return appendHuffmanSlowly(dst[:start], s)
	}
	return dst, nil
}

// appendHuffmanSlowly knows all characters, and says what is malformed.
func appendHuffmanSlowly(dst, s []byte) ([]byte, error) {
	text, err := hpack.HuffmanDecodeToString(s)
	if err != nil {
		return dst, errHPACK
	}
	return append(dst, text...), nil
}
