package tfiproxy

import (
	"bytes"
	"slices"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// h2fields reads a header block's fields by name. Strings are decoded when they are
// asked for, names never: what is looked for is encoded instead.
type h2fields struct {
	block []byte
	list  []hpackField
	arena []byte
}

var _ tfi.Headers = (*h2fields)(nil)

// index takes over a block; it keeps a slice of it. Errors: errHPACK.
func (f *h2fields) index(block []byte) error {
	f.block, f.list, f.arena = block, f.list[:0], f.arena[:0]
	for at := 0; at < len(block); {
		n := len(f.list)
		f.list = slices.Grow(f.list, 1)[:n+1]
		x := &f.list[n]
		if err := x.next(block, at); err != nil {
			return err
		}
		at = int(x.end)
		if x.update {
			f.list = f.list[:n]
		}
	}
	return nil
}

// Bounds of what is kept for the next block.
const (
	maxFields = 64
	maxArena  = 16 << 10
)

// forget lets go of the block, and of more room than most need.
func (f *h2fields) forget() {
	f.block, f.arena = nil, little(f.arena)
	if cap(f.list) > maxFields {
		f.list = nil
	}
}

// little is scratch that may be kept.
func little(b []byte) []byte {
	if cap(b) > maxArena {
		return nil
	}
	return b
}

// Header implements [tfi.Headers]: the first field of that name. The value lives
// until the next index. One that cannot be decoded is empty, and its receiver will say so.
func (f *h2fields) Header(name string) (string, bool) {
	var room [64]byte
	var encoded []byte // name in Huffman's code, of which there is only one; nil: not needed yet
	for i := range f.list {
		x := &f.list[i]
		switch {
		case x.index != 0:
			if staticTable[x.index-1].name != name {
				continue
			}
		case !x.name.huffman:
			if string(x.name.in(f.block)) != name {
				continue
			}
		default:
			if encoded == nil {
				encoded = appendName(room[:0], name)
			}
			if !bytes.Equal(x.name.in(f.block), encoded) {
				continue
			}
		}
		return f.value(x), true
	}
	return "", false
}

func (f *h2fields) value(x *hpackField) string {
	switch {
	case x.indexed:
		return staticTable[x.index-1].value
	case !x.value.huffman:
		return view(x.value.in(f.block))
	}
	if string(x.value.in(f.block)) == typeGRPC.huffman {
		return typeGRPC.plain
	}
	// Should the arena grow, what was decoded before keeps the old one.
	from := len(f.arena)
	var err error
	if f.arena, err = appendHuffman(f.arena, x.value.in(f.block)); err != nil {
		return ""
	}
	return view(f.arena[from:])
}

// appendName appends a name in Huffman's code; those that each call is asked for are at hand.
func appendName(b []byte, name string) []byte {
	switch name {
	case "traceparent":
		return append(b, nameTraceparent.huffman...)
	case tfi.EvidenceHeader:
		return append(b, nameEvidence.huffman...)
	case "grpc-status":
		return append(b, nameGRPCStatus.huffman...)
	case "content-type":
		return append(b, nameContentType.huffman...)
	case "content-length":
		return append(b, nameContentLength.huffman...)
	}
	return hpack.AppendHuffmanString(b, name)
}

// appendWithout appends the block without the fields of those names.
func (f *h2fields) appendWithout(dst []byte, names ...*hpackName) []byte {
	return f.appendFrom(dst, 0, names...)
}

// appendWithStatus appends an answer's block with that status instead of its own, and without
// the fields of those names.
func (f *h2fields) appendWithStatus(dst []byte, status string, names ...*hpackName) []byte {
	// A table size comes before all fields, and :status before those that are no pseudo-fields.
	first := f.list[0].start
	dst = append(dst, f.block[:first]...)
	dst = appendLiteral(dst, nameStatus.plain, status)
	return f.appendFrom(dst, first, append(names, &nameStatus)...)
}

// appendFrom is appendWithout of what begins there.
func (f *h2fields) appendFrom(dst []byte, from uint32, names ...*hpackName) []byte {
	for i := range f.list {
		x := &f.list[i]
		for _, name := range names {
			if x.is(f.block, name) {
				dst = append(dst, f.block[from:x.start]...)
				from = x.end
				break
			}
		}
	}
	return append(dst, f.block[from:]...)
}
