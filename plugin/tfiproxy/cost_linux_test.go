package tfiproxy

import (
	"encoding/binary"
	"net"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// segments is how many segments with data a connection has received: over loopback as
// many as its peer has made writes.
func segments(t *testing.T, c *net.TCPConn) int {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// struct tcp_info (linux/tcp.h); tcpi_data_segs_in is at 152.
	var info [256]byte
	size := uint32(len(info))
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil || errno != 0 || size < 156 {
		t.Skipf("no tcp_info: %v, %v, %d bytes", err, errno, size)
	}
	return int(binary.NativeEndian.Uint32(info[152:]))
}

// TestCallsShareWrites makes ten calls at once, whose answers come at once, with
// frames among them that go on as they are: what came together is written together, a
// trial's as well.
func TestCallsShareWrites(t *testing.T) {
	p, key := reportingProxy(t, behaviour.PeerHTTP2, echoHTTP2(t, ":status", "200", "content-type", "application/grpc"))
	const calls, rounds = 10, 100
	for name, trace := range map[string]tfi.TraceID{"no trial": behaviour.OrdinaryTrace, "trial": tfi.NewTraceID(key, 1)} {
		t.Run(name, func(t *testing.T) {
			c := newH2Caller(t, p, trace, calls)
			c.round(t) // begins the connection
			before := segments(t, c.conn)
			for range rounds {
				c.round(t)
			}
			n := segments(t, c.conn) - before
			if n < rounds || n > rounds*calls/2 {
				t.Errorf("%d writes for %d calls, %d at once", n, rounds*calls, calls)
			}
			t.Logf("%d writes for %d calls", n, rounds*calls)
		})
	}
}
