package tfiproxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// errNothing says that a read would have to wait.
var errNothing error = nothing{}

// nothing is an error that package tls takes for a passing one.
type nothing struct{}

var _ net.Error = nothing{}

func (nothing) Error() string   { return "nothing to read yet" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

// layer lies between a sock and its TCP connection, or in place of one.
type layer interface {
	// read is as [sock.read] and [sock.tryRead].
	read(b *buffer, try bool) (*buffer, error)
	// write writes all of b.
	write(b []byte) error
	// closeWrite tells the peer that nothing more comes.
	closeWrite() error
	// close ends it in good order; the TCP connection is closed afterwards.
	close()
}

// sock is one TCP connection. It reads below package net, so that a connection
// that waits for its next request needs no buffer. One goroutine at a time may read,
// one may write.
type sock struct {
	tcp *net.TCPConn
	raw syscall.RawConn
	// over is nil where plain bytes are read and written.
	over layer
	// shared is tcp for others than its owner: the sweeper looks at it. sealed is the TLS
	// over it, if there is.
	shared atomic.Pointer[net.TCPConn]
	sealed atomic.Pointer[secured]
	// writing: a write waits for room. It is for the sweeper too.
	writing atomic.Bool

	// The read under way. The function is made once: a closure a read would be an
	// allocation a read.
	onReadable func(fd uintptr) bool
	onWritable func(fd uintptr) bool
	first      []byte // what call has to write before
	reused     bool   // it looks first whether it may
	outgoing   []byte
	outErr     syscall.Errno
	into       *buffer
	try        bool
	n          int
	err        error

	splice *splice // nil until something has been spliced from here
}

func (s *sock) open(tcp *net.TCPConn) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	s.tcp, s.raw = tcp, raw
	s.shared.Store(tcp)
	if s.onReadable == nil {
		s.onReadable, s.onWritable = s.readable, s.writable
	}
	return nil
}

func (s *sock) isOpen() bool { return s.tcp != nil || s.over != nil }

func (s *sock) close() {
	if s.over != nil {
		s.over.close()
		s.over = nil
	}
	if s.tcp != nil {
		_ = s.tcp.Close() // nothing was left to be written
		s.tcp, s.raw = nil, nil
		s.shared.Store(nil)
		s.sealed.Store(nil)
	}
}

// reset closes the connection such that the peer sees it break.
func (s *sock) reset() {
	s.over = nil // no goodbye
	if s.tcp != nil {
		_ = s.tcp.SetLinger(0) // else it is a plain close
		s.close()
	}
}

// closeWrite tells the peer that nothing more comes.
func (s *sock) closeWrite() error {
	switch {
	case s.over != nil:
		return s.over.closeWrite()
	case s.tcp != nil:
		return s.tcp.CloseWrite()
	}
	return net.ErrClosed
}

// errUsed says that a connection cannot be used again.
var errUsed = errors.New("peer has left, or said what nobody asked for")

// usable reports whether a connection that has been idle may be used again: its
// peer is there, and has said nothing that nobody asked for.
func (s *sock) usable() bool {
	b, err := s.tryRead(nil)
	putBuffer(b)
	return err == errNothing //nolint:errorlint // returned as it is
}

// read waits for bytes and appends them to b; with b nil a buffer is taken once
// there are some. It returns the buffer.
//
// Errors: io.EOF, os.ErrDeadlineExceeded, those of the connection.
func (s *sock) read(b *buffer) (*buffer, error) { return s.readInto(b, false) }

// tryRead is read that does not wait. Errors: errNothing too.
func (s *sock) tryRead(b *buffer) (*buffer, error) { return s.readInto(b, true) }

func (s *sock) readInto(b *buffer, try bool) (*buffer, error) {
	if s.over != nil {
		return s.over.read(b, try)
	}
	s.into, s.try, s.n, s.err = b, try, 0, nil
	return s.wait(b)
}

// call writes message and waits for bytes, which it takes as read does. reused: the
// peer has been called before, and what it has said since would pass for its answer.
// Errors: errUsed too, and then nothing was written.
func (s *sock) call(message []byte, b *buffer, reused bool) (*buffer, error) {
	if s.over != nil {
		if reused && !s.usable() {
			return b, errUsed
		}
		if err := s.write(message); err != nil {
			return b, err
		}
		return s.over.read(b, false)
	}
	s.into, s.try, s.n, s.err, s.first, s.reused = b, false, 0, nil, message, reused
	return s.wait(b)
}

// begin writes what call has to, and reports whether that failed.
func (s *sock) begin(fd uintptr) (over bool) {
	message := s.first
	s.first = nil
	if s.reused {
		var one [1]byte
		if _, errno := readFD(fd, one[:]); errno != syscall.EAGAIN {
			s.err = errUsed
			return true
		}
	}
	n, errno := writeFD(fd, message)
	if errno != 0 && errno != syscall.EAGAIN {
		s.err = errno
	} else if n < len(message) {
		s.writing.Store(true)
		_, s.err = s.tcp.Write(message[n:]) // this is for the poller
		s.writing.Store(false)
	}
	return s.err != nil
}

func (s *sock) wait(b *buffer) (*buffer, error) {
	if err := s.raw.Read(s.onReadable); err != nil {
		s.first = nil
		return b, err
	}
	b, s.into = s.into, nil
	switch {
	case s.err != nil:
		return b, s.err
	case s.n == 0:
		return b, io.EOF
	}
	return b, nil
}

// readable is called when there may be something to read.
func (s *sock) readable(fd uintptr) bool {
	if s.first != nil {
		return s.begin(fd)
	}
	b := s.into
	if b == nil {
		b = takeBuffer()
	}
	n, errno := readFD(fd, b.b[b.w:])
	switch {
	case errno == syscall.EAGAIN:
		if s.into == nil {
			putBuffer(b)
		}
		s.err = nil
		if s.try {
			s.err = errNothing
		}
		return s.try
	case errno != 0:
		s.err = errno
	default:
		s.n = n
		b.w += n
	}
	s.into = b
	return true
}

// write writes all of b.
func (s *sock) write(b []byte) error {
	if s.over != nil {
		s.writing.Store(true)
		defer s.writing.Store(false)
		return s.over.write(b)
	}
	s.outgoing, s.outErr = b, 0
	err := s.raw.Write(s.onWritable)
	if s.writing.Load() {
		s.writing.Store(false)
	}
	if err != nil {
		return err
	}
	s.outgoing = nil
	if s.outErr != 0 {
		return s.outErr
	}
	return nil
}

// writable is called when there may be room to write.
func (s *sock) writable(fd uintptr) bool {
	for len(s.outgoing) > 0 {
		n, errno := writeFD(fd, s.outgoing)
		if errno == syscall.EAGAIN {
			s.writing.Store(true)
			return false
		}
		if errno != 0 {
			s.outErr = errno
			return true
		}
		s.outgoing = s.outgoing[n:]
	}
	return true
}

// The sockets never block, so the calls are made without telling the scheduler:
// telling it costs a tenth of the call, and on a busy machine it takes the thread for
// stuck and wakes another.

func readFD(fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}

func writeFD(fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno != syscall.EINTR {
			return max(int(n), 0), errno
		}
	}
}

// peerState is what a look at a connection shows without reading.
type peerState uint8

const (
	peerThere  peerState = iota
	peerSpeaks           // it has sent something
	peerDone             // it has sent all that it will send
	peerGone             // the connection is broken
)

// Types of TLS records, and the size of the one that TLS 1.3 says goodbye with:
// header, alert, type and tag. Two bytes of data look the same, so it counts only if the
// TCP connection ends behind it.
const (
	recordAlert  = 21
	recordData   = 23
	goodbyeBytes = 5 + 2 + 1 + 16
)

// look tells whether a connection's peer is still there. It may be called beside
// a read. secure: it speaks TLS, which says goodbye before it closes.
func look(tcp *net.TCPConn, secure bool) peerState {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return peerGone
	}
	state := peerThere
	var some [goodbyeBytes + 1]byte
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), some[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
		case err != nil:
			state = peerGone
		case n == 0, secure && (some[0] == recordAlert || some[0] == recordData && n == goodbyeBytes) && hasEnded(fd):
			state = peerDone
		default:
			state = peerSpeaks
		}
	})
	if err != nil {
		return peerGone
	}
	return state
}

// hasLeft tells whether a client has gone away or has sent its end, though there may be
// something to read before it.
func hasLeft(tcp *net.TCPConn) bool {
	switch look(tcp, false) {
	case peerGone, peerDone:
		return true
	case peerThere, peerSpeaks:
	}
	return ended(tcp)
}

// ended is hasLeft as far as one system call shows it.
func ended(tcp *net.TCPConn) (is bool) {
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { is = hasEnded(fd) })
	}
	return is || err != nil
}

// lingerFor is how long a connection is read on after its last answer, so that
// the peer gets the answer and not a reset (RFC 9112, 9.6).
const (
	lingerFor   = time.Second
	lingerBytes = 1 << 20
)

// linger ends a connection whose peer may still be sending.
func (s *sock) linger() {
	if s.tcp == nil {
		return
	}
	if s.closeWrite() == nil && s.tcp.SetReadDeadline(time.Now().Add(lingerFor)) == nil {
		b := takeBuffer()
		for left := lingerBytes; left > 0; {
			var err error
			b.r, b.w = 0, 0
			if b, err = s.read(b); err != nil {
				break
			}
			left -= b.w
		}
		putBuffer(b)
	}
	s.close()
}
