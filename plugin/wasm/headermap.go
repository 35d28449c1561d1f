package wasm

import (
	"encoding/binary"
	"unsafe"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// headerMap is a message's headers as the host hands them over in one piece (see
// [host.Headers]). To read them one by one would cost a call into the host, and one
// back for memory, each; those cost more than all that is done with a header. Where
// each lies is found out once, and they are looked at in place.
type headerMap struct {
	b       []byte
	headers []header
}

// header is where a header lies in its map.
type header struct{ name, nameLen, value, valueLen uint32 }

var _ tfi.Headers = (*headerMap)(nil)

// read takes another map, which it keeps. What comes behind a damage is not there.
func (m *headerMap) read(b []byte) {
	m.b, m.headers = b, m.headers[:0]
	if len(b) < 4 {
		return
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if n > uint64(len(b)-4)/8 {
		return
	}
	at := 4 + 8*n
	for lengths := b[4:at]; len(lengths) > 0; lengths = lengths[8:] {
		h := header{
			name:     uint32(at),
			nameLen:  binary.LittleEndian.Uint32(lengths),
			valueLen: binary.LittleEndian.Uint32(lengths[4:]),
		}
		at += uint64(h.nameLen) + 1
		h.value = uint32(at)
		at += uint64(h.valueLen) + 1
		if at > uint64(len(b)) {
			return
		}
		m.headers = append(m.headers, h)
	}
}

// Header implements [tfi.Headers]: the first value of that name. The string lies
// in the map's memory.
func (m *headerMap) Header(name string) (string, bool) {
	for i := range m.headers {
		h := &m.headers[i]
		if int(h.nameLen) == len(name) && string(m.b[h.name:h.name+h.nameLen]) == name {
			return unsafe.String(unsafe.SliceData(m.b[h.value:]), int(h.valueLen)), true
		}
	}
	return "", false
}
