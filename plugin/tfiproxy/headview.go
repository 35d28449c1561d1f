package tfiproxy

import (
	"bytes"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// headView reads a scanned head's fields by name. It is made only for messages
// of trials; others are never indexed.
type headView struct {
	head   []byte
	fields []fieldSpan
}

// fieldSpan is a field line in its head.
type fieldSpan struct {
	start, end             int // of the line with its CRLF
	name, value, valueEnds int // the name begins at start and ends at name
}

var _ tfi.Headers = (*headView)(nil)

// index takes over a head that has been scanned; it keeps a slice of it.
func (v *headView) index(head []byte) {
	v.head, v.fields = head, v.fields[:0]
	at := bytes.IndexByte(head, '\n') + 1
	for at < len(head) && head[at] != '\r' {
		end := at + bytes.IndexByte(head[at:], '\n') + 1
		line := head[at : end-2]
		colon := bytes.IndexByte(line, ':')
		value := trimBlanks(line[colon+1:])
		begin := colon + 1
		for begin < len(line) && (line[begin] == ' ' || line[begin] == '\t') {
			begin++
		}
		v.fields = append(v.fields, fieldSpan{
			start: at, end: end, name: at + colon, value: at + begin, valueEnds: at + begin + len(value),
		})
		at = end
	}
}

// Header implements [tfi.Headers]: the first field of that name. The value lives
// as long as the head.
func (v *headView) Header(name string) (string, bool) {
	for i := range v.fields {
		f := &v.fields[i]
		if sameFold(v.head[f.start:f.name], name) {
			return view(v.head[f.value:f.valueEnds]), true
		}
	}
	return "", false
}

// appendWithout appends the head up to its empty line, without the fields of
// that name and without the empty line.
func (v *headView) appendWithout(dst []byte, name string) []byte {
	from := 0
	for i := range v.fields {
		f := &v.fields[i]
		if sameFold(v.head[f.start:f.name], name) {
			dst = append(dst, v.head[from:f.start]...)
			from = f.end
		}
	}
	return append(dst, v.head[from:len(v.head)-2]...)
}

// appendField appends a field line.
func appendField[T string | []byte](dst []byte, name string, value T) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}
