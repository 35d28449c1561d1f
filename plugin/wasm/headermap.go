package wasm

import (
	"encoding/binary"
	"unsafe"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// headerMap is a message's headers as the host hands them over in one piece (see
// [host.Headers]). To read them one by one would cost a call into the host, and one
// back for memory, each; those cost more than all that is done with a header. It is
// scanned in place.
type headerMap struct {
	b []byte
}

var _ tfi.Headers = (*headerMap)(nil)

// Header implements [tfi.Headers]: the first value of that name. The string lies
// in the map's memory.
func (m *headerMap) Header(name string) (string, bool) {
	if len(m.b) < 4 {
		return "", false
	}
	n := int(binary.LittleEndian.Uint32(m.b))
	if n < 0 || n > (len(m.b)-4)/8 {
		return "", false
	}
	at := 4 + 8*n
	for i := range n {
		nameLen := int(binary.LittleEndian.Uint32(m.b[4+8*i:]))
		valueLen := int(binary.LittleEndian.Uint32(m.b[8+8*i:]))
		value := at + nameLen + 1
		next := value + valueLen + 1
		if nameLen < 0 || valueLen < 0 || next > len(m.b) || value < at {
			return "", false // damaged
		}
		if nameLen == len(name) && string(m.b[at:at+nameLen]) == name {
			return unsafe.String(unsafe.SliceData(m.b[value:]), valueLen), true
		}
		at = next
	}
	return "", false
}
