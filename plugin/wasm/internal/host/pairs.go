package host

import "encoding/binary"

// AppendPairs appends a header map in the host's form; see [Headers].
func AppendPairs(b []byte, pairs [][2]string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(pairs)))
	for _, p := range pairs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[0])))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[1])))
	}
	for _, p := range pairs {
		b = append(append(append(append(b, p[0]...), 0), p[1]...), 0)
	}
	return b
}
