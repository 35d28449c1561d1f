package tfiproxy

import (
	"syscall"
	"unsafe"
)

// Events of poll(2).
const (
	pollIn = 0x1
	// pollRDHUP: the peer has sent its end, though there may be something to read before it.
	pollRDHUP = 0x2000
)

// hasEnded tells whether a peer has sent its end, read or not.
func hasEnded(fd uintptr) bool { return polled(fd, pollRDHUP) }

// polled tells whether one of the events has happened.
func polled(fd uintptr, events int16) bool {
	p := struct {
		fd            int32
		events, ready int16
	}{fd: int32(fd), events: events}
	var now syscall.Timespec
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1 && p.ready&events != 0
}
