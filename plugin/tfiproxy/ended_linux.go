package tfiproxy

import (
	"syscall"
	"unsafe"
)

// pollRDHUP is POLLRDHUP of poll(2): the peer has sent its end, though there may be
// something to read before it.
const pollRDHUP = 0x2000

// hasEnded tells whether a peer has sent its end, read or not.
func hasEnded(fd uintptr) bool {
	p := struct {
		fd            int32
		events, ready int16
	}{fd: int32(fd), events: pollRDHUP}
	var now syscall.Timespec
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1 && p.ready&pollRDHUP != 0
}
