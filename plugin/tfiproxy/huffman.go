package tfiproxy

import (
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// huffmanBits is how many bits of a string are looked up at once. They hold two
// characters of trace ids, and of most else; codes that are longer are of characters that
// headers hardly have.
const huffmanBits = 12

// huffmanCode is what is known of the bits that a string goes on with.
type huffmanCode struct {
	chars [2]byte
	count uint8 // of characters
	// bits of the first one, and of all; 0: it is longer, or none.
	first, both uint8
}

// huffmanCodes are those of all bits (RFC 7541, appendix B).
var huffmanCodes = func() *[1 << huffmanBits]huffmanCode {
	var table [1 << huffmanBits]huffmanCode
	for c := range 256 {
		// Eight of them take as many bytes as one takes bits.
		eight := strings.Repeat(string([]byte{byte(c)}), 8)
		bits := hpack.HuffmanEncodeLength(eight)
		if bits > huffmanBits {
			continue
		}
		code := hpack.AppendHuffmanString(nil, eight)
		from := (int(code[0])<<8 | int(code[1])) >> (16 - bits) << (huffmanBits - bits)
		for i := range 1 << (huffmanBits - bits) {
			table[from+i] = huffmanCode{chars: [2]byte{byte(c)}, count: 1, first: uint8(bits), both: uint8(bits)}
		}
	}
	for i := range table {
		one := &table[i]
		// What the second one's code has too few bits for is looked up as if zeros followed.
		two := table[i<<one.first&(len(table)-1)]
		if one.first > 0 && two.first > 0 && one.first+two.first <= huffmanBits {
			one.chars[1], one.count, one.both = two.chars[0], 2, one.first+two.first
		}
	}
	return &table // it would be copied by way of the stack
}()

// appendHuffman appends the string that s encodes. Errors: errHPACK.
func appendHuffman(dst, s []byte) ([]byte, error) {
	const rest = 64 - huffmanBits
	codes, start := huffmanCodes, len(dst)
	// No code is shorter than 5 bits, and a look-up writes two characters.
	dst = slices.Grow(dst, len(s)*8/5+2)
	out := dst[start:cap(dst)]
	n := 0
	var have uint64 // the next bits, the first of them on top
	bits := 0       // how many they are; what is below may be those that follow
	for i := 0; ; {
		if len(s)-i >= 8 {
			have |= binary.BigEndian.Uint64(s[i:]) >> bits
			i += (63 - bits) >> 3
			bits |= 56
		}
		for ; bits <= 56 && i < len(s); i++ {
			have |= uint64(s[i]) << (56 - bits)
			bits += 8
		}
		if bits < huffmanBits {
			break
		}
		for bits >= huffmanBits {
			c := codes[have>>rest]
			if c.first == 0 {
				return appendHuffmanSlowly(dst, s)
			}
			out[n], out[n+1] = c.chars[0], c.chars[1]
			n += int(c.count)
			bits -= int(c.both)
			have <<= c.both
		}
	}
	for bits > 0 {
		// A string ends with ones, fewer than eight.
		c := codes[(have|^uint64(0)>>bits)>>rest]
		if c.first == 0 || int(c.first) > bits {
			break
		}
		out[n] = c.chars[0]
		n++
		bits -= int(c.first)
		have <<= c.first
	}
	if bits >= 8 || have|^uint64(0)>>bits != ^uint64(0) {
		return appendHuffmanSlowly(dst, s)
	}
	return dst[:start+n], nil
}

// appendHuffmanSlowly knows all characters, and says what is malformed.
func appendHuffmanSlowly(dst, s []byte) ([]byte, error) {
	text, err := hpack.HuffmanDecodeToString(s)
	if err != nil {
		return dst, errHPACK
	}
	return append(dst, text...), nil
}
