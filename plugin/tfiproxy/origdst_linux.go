package tfiproxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"
)

// soOriginalDst is netfilter's socket option (linux/netfilter_ipv4.h, and the same
// number for IPv6).
const soOriginalDst = 80

// originalDestination is where a connection was going before nftables redirected it.
func originalDestination(tcp *net.TCPConn) (string, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return "", err
	}
	local, _ := tcp.LocalAddr().(*net.TCPAddr)
	level := syscall.IPPROTO_IP
	if local != nil && local.IP.To4() == nil {
		level = syscall.IPPROTO_IPV6
	}
	// Either sockaddr_in or sockaddr_in6: family, port, and then the address.
	var sockaddr [28]byte
	size := uint32(len(sockaddr))
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, uintptr(level), soOriginalDst,
			uintptr(unsafe.Pointer(&sockaddr)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return "", err
	}
	if failed != 0 {
		return "", failed
	}
	port := binary.BigEndian.Uint16(sockaddr[2:])
	if level == syscall.IPPROTO_IPV6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(sockaddr[8:24])), port).String(), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sockaddr[4:8])), port).String(), nil
}
