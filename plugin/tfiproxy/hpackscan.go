package tfiproxy

import (
	"bytes"
	"errors"

	"golang.org/x/net/http2/hpack"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// errHPACK says that a header block is malformed, or uses a dynamic table that its
// sender has agreed not to have.
var errHPACK = errors.New("malformed HPACK block")

// hpackField is one representation in a header block, as it stands there.
type hpackField struct {
	start, end uint32 // in the block
	// index of the static table: of the whole field, or of its name; 0: the name
	// stands in the block.
	index   uint8
	indexed bool // the whole field is the table's
	update  bool // no field, but a change of the table's size
	name    hpackString
	value   hpackString
}

// hpackString is a string as encoded.
type hpackString struct {
	at, end uint32 // in the block
	huffman bool
}

func (s *hpackString) in(block []byte) []byte { return block[s.at:s.end] }

// staticLength is the number of entries of HPACK's static table.
const staticLength = 61

// next reads the representation at b[at:]. Errors: errHPACK.
func (f *hpackField) next(b []byte, at int) error {
	*f = hpackField{start: uint32(at)}
	c := b[at]
	var prefix uint
	switch {
	case c&0x80 != 0:
		prefix, f.indexed = 7, true
	case c&0xc0 == 0x40:
		prefix = 6
	case c&0xe0 == 0x20:
		prefix, f.update = 5, true
	default:
		prefix = 4
	}
	n, at, ok := hpackInt(b, at, prefix)
	if !ok {
		return errHPACK
	}
	f.end = uint32(at)
	if f.update {
		// Its sender has acknowledged that it has no table (RFC 7541, 6.3).
		if n > 0 {
			return errHPACK
		}
		return nil
	}
	if n > staticLength || f.indexed && n == 0 {
		return errHPACK
	}
	f.index = uint8(n)
	if f.indexed {
		return nil
	}
	if f.index == 0 {
		if at = f.name.next(b, at); at < 0 {
			return errHPACK
		}
	}
	if at = f.value.next(b, at); at < 0 {
		return errHPACK
	}
	f.end = uint32(at)
	return nil
}

// tableUpdate is a representation that says that there is no table (RFC 7541, 6.3).
const tableUpdate = 0x20

// isUpdate reports whether a block begins with a table size.
func isUpdate(block []byte) bool { return len(block) > 0 && block[0]&0xe0 == tableUpdate }

// hpackInt reads an integer with a prefix of that many bits (RFC 7541, 5.1).
func hpackInt(b []byte, at int, prefix uint) (n uint64, next int, ok bool) {
	if at >= len(b) {
		return 0, at, false
	}
	mask := uint64(1)<<prefix - 1
	n = uint64(b[at]) & mask
	at++
	if n < mask {
		return n, at, true
	}
	for shift := uint(0); shift <= 28; shift += 7 {
		if at >= len(b) {
			return 0, at, false
		}
		c := b[at]
		at++
		n += uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return n, at, true
		}
	}
	return 0, at, false
}

// next reads the string at b[at:] and returns where it ends; -1: it does not.
func (s *hpackString) next(b []byte, at int) int {
	if at >= len(b) {
		return -1
	}
	s.huffman = b[at]&0x80 != 0
	n, at, ok := hpackInt(b, at, 7)
	if !ok || n > uint64(len(b)-at) {
		return -1
	}
	s.at, s.end = uint32(at), uint32(at+int(n))
	return at + int(n)
}

// is reports whether the string encodes name.
func (s *hpackString) is(block []byte, name *hpackName) bool {
	if s.huffman {
		return string(s.in(block)) == name.huffman
	}
	return string(s.in(block)) == name.plain
}

// is reports whether the field has that name.
func (f *hpackField) is(block []byte, name *hpackName) bool {
	if f.index != 0 {
		return staticTable[f.index-1].name == name.plain
	}
	return f.name.is(block, name)
}

// hpackName is a name, or a value, in both of its encodings: Huffman's is unique.
type hpackName struct{ plain, huffman string }

func newHpackName(s string) hpackName {
	return hpackName{plain: s, huffman: string(hpack.AppendHuffmanString(nil, s))}
}

// traceNames are the trace headers; the first is by far the most frequent.
var (
	nameTraceparent = newHpackName("traceparent")
	nameTracestate  = newHpackName("tracestate")
	nameB3          = newHpackName("b3")
	nameB3TraceID   = newHpackName("x-b3-traceid")
	nameUber        = newHpackName("uber-trace-id")
)

// Names of what is taken off messages.
var (
	nameEvidence = newHpackName(tfi.EvidenceHeader)
	nameInjected = newHpackName(tfi.InjectedHeader)

	nameStatus        = newHpackName(":status")
	nameContentType   = newHpackName("content-type")
	nameContentLength = newHpackName("content-length")
	nameGRPCStatus    = newHpackName("grpc-status")
	nameGRPCMessage   = newHpackName("grpc-message")
	nameGRPCDetails   = newHpackName("grpc-status-details-bin")
)

// hpackGate is what a walk over a request's block finds.
type hpackGate struct {
	headFields
	scratch []byte
}

// scan walks a block and looks whether a trace header may belong to a trial.
// Strings are compared as they are encoded: only a trace id that might bear the mark in
// another form than a trial's is decoded. Errors: errHPACK.
func (g *hpackGate) scan(block []byte, header *hpackName) error {
	g.headFields = headFields{}
	var f hpackField
	for at := 0; at < len(block); {
		if err := f.next(block, at); err != nil {
			return err
		}
		at = int(f.end)
		if f.update {
			continue
		}
		if header != nil && f.is(block, header) {
			g.trace(g.text(f.value.in(block), f.value.huffman)) // no value of the static table is a trial's
		}
		if f.index != 0 {
			continue // the static table has no other trace header
		}
		switch name, value := &f.name, f.value.in(block); {
		case name.is(block, &nameTraceparent):
			if f.value.huffman && len(value) > 5 {
				if marked := markedHuffman(value); marked || unmarkedHuffman(value) {
					g.traced, g.marked = true, g.marked || marked
					continue
				}
			}
			v := g.text(value, f.value.huffman)
			g.trace(v[min(len("00-"), len(v)):])
		case name.is(block, &nameTracestate):
			g.marked = g.marked || bytes.Contains(g.text(value, f.value.huffman), []byte("sfi="))
		case name.is(block, &nameB3), name.is(block, &nameB3TraceID), name.is(block, &nameUber):
			g.trace(g.text(value, f.value.huffman))
		}
	}
	return nil
}

// text decodes a string; one that cannot be decoded is empty, and its receiver
// will say so.
func (g *hpackGate) text(s []byte, huffman bool) []byte {
	if !huffman {
		return s
	}
	var err error
	if g.scratch, err = appendHuffman(g.scratch[:0], s); err != nil {
		return nil
	}
	return g.scratch
}

// typeGRPC is the value that each gRPC call has twice.
var typeGRPC = newHpackName("application/grpc")

// markHuffman is how a trial's traceparent begins: in 38 bits, and two of padding.
var markHuffman = newHpackName("00-5f1c").huffman

// markedHuffman reports whether an encoded traceparent begins so.
func markedHuffman(b []byte) bool {
	const padding = 3
	last := len(markHuffman) - 1
	return string(b[:last]) == markHuffman[:last] && b[last]|padding == markHuffman[last]
}

// unmarkedHuffman reports whether an encoded traceparent cannot be marked: it begins
// with `00-` (16 bits), and then neither with `5` (6 bits), as a trial's does, nor with
// `0` (5 bits), as a 64-bit id. Seven of eight ordinary ones are not decoded thus.
func unmarkedHuffman(b []byte) bool {
	const (
		version = 0b00000_00000_010110
		five    = 0b011011
		zero    = 0b00000
	)
	next := b[2] >> 2
	return uint16(b[0])<<8|uint16(b[1]) == version && next != five && next>>1 != zero
}

// appendLiteral appends a field that no table takes in.
func appendLiteral[T string | []byte](b []byte, name string, value T) []byte {
	b = append(b, 0)
	b = appendHpackInt(b, 0, 7, len(name))
	b = append(b, name...)
	b = appendHpackInt(b, 0, 7, len(value))
	return append(b, value...)
}

// appendSensitive is appendLiteral for a field that must never be indexed.
func appendSensitive(b []byte, name, value string) []byte {
	at := len(b)
	b = appendLiteral(b, name, value)
	b[at] = 0x10
	return b
}

func appendHpackInt(b []byte, first byte, prefix uint, n int) []byte {
	mask := 1<<prefix - 1
	if n < mask {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(mask))
	for n -= mask; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
