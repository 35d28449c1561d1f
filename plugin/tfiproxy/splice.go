package tfiproxy

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
)

// Bodies that are long enough do not come into the sidecar's memory: the kernel moves
// their pages from one connection to the other (splice(2)), which halves what an answer
// of 1 MiB costs. It takes two calls as reading and writing do, so what comes in small
// pieces costs no less.
const (
	spliceLeast = 16 << 10 // still to come
	spliceMost  = 1 << 20  // at once
)

var (
	// errCopy says that nothing could be moved, and nothing has been lost: the bytes
	// must be copied.
	errCopy = errors.New("cannot be moved without copying")
	// errUntaken says that the other connection takes no more. Its pieces are lost.
	errUntaken = errors.New("other end takes no more")
)

// unspliced is set where the system cannot splice sockets.
var unspliced atomic.Bool

// splice is a sock's way to move bytes to another. Its functions are made once.
type splice struct {
	progress *atomic.Uint32 // counts what has happened
	to       *sock
	pipe     *pipe // nil while there is nothing in it
	most     int
	try      bool
	err      error
	fill     func(fd uintptr) bool
	drain    func(fd uintptr) bool
}

// canSplice tells whether bytes may go from one to the other unseen.
func canSplice(from, to *sock) bool {
	return from.over == nil && to.over == nil && to.tcp != nil && !unspliced.Load()
}

// spliceTo waits for bytes and passes at most n of them on; both are as canSplice wants
// them. try: it does not wait for the first. It returns how many bytes it has moved.
//
// Errors: errCopy, errUntaken, errNothing, and those of read.
func (s *sock) spliceTo(to *sock, n int64, try bool, progress *atomic.Uint32) (int, error) {
	p := s.splice
	if p == nil {
		p = &splice{}
		p.fill, p.drain = p.readable, p.writable
		s.splice = p
	}
	p.progress, p.to, p.most, p.try, p.err = progress, to, int(min(n, spliceMost)), try, nil
	if err := s.raw.Read(p.fill); err != nil {
		return 0, err
	}
	if p.err != nil {
		return 0, p.err
	}
	moved := p.pipe.held
	progress.Add(1)
	err := to.raw.Write(p.drain)
	to.writing.Store(false)
	putPipe(p.pipe)
	p.pipe = nil
	if err != nil || p.err != nil {
		return 0, errUntaken
	}
	return moved, nil
}

// readable is called when there may be something to move. A connection that waits has no
// pipe.
func (p *splice) readable(fd uintptr) bool {
	if p.pipe = takePipe(); p.pipe == nil {
		p.err = errCopy
		return true
	}
	errno := p.pipe.fill(fd, p.most)
	if p.pipe.held > 0 {
		return true
	}
	putPipe(p.pipe)
	p.pipe = nil
	switch errno {
	case 0:
		p.err = io.EOF
	case syscall.EAGAIN:
		p.err = nil
		if hasCome(fd) {
			p.err = errCopy
			return true
		}
		if p.try {
			p.err = errNothing
		}
		return p.try
	case syscall.EINVAL, syscall.ENOSYS, syscall.EPERM, syscall.EACCES:
		unspliced.Store(true)
		p.err = errCopy
	default:
		p.err = errno
	}
	return true
}

// writable is called when there may be room for what is in the pipe.
func (p *splice) writable(fd uintptr) bool {
	for p.pipe.held > 0 {
		n, errno := p.pipe.drain(fd)
		switch {
		case errno == syscall.EAGAIN:
			p.to.writing.Store(true)
			return false
		case errno != 0:
			p.err = errno
			return true
		case n == 0:
			p.err = io.ErrShortWrite
			return true
		}
		p.progress.Add(1)
	}
	return true
}
