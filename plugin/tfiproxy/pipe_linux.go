package tfiproxy

import (
	"sync"
	"syscall"
)

// pipe is where the kernel keeps bytes on their way from one connection to another: it
// moves pages, and nobody copies.
type pipe struct {
	r, w uintptr
	held int // bytes in it
}

// idlePipes are empty ones. They are few: a connection has one only while there is
// something in it.
var idlePipes struct {
	sync.Mutex
	pipes []*pipe
	open  int // those in use too
}

// maxPipes leaves the descriptors to connections when many clients are slow to take what
// they have asked for. Besides, of an unprivileged user's pipes those beyond 1,024 hold two
// pages only (pipe(7), pipe-user-pages-soft), and moving so little costs more than copying.
const (
	maxIdlePipes = 32
	maxPipes     = 512
)

// takePipe returns an empty pipe, or nil if there are too many, or no descriptors left.
func takePipe() *pipe {
	idlePipes.Lock()
	defer idlePipes.Unlock()
	if last := len(idlePipes.pipes) - 1; last >= 0 {
		p := idlePipes.pipes[last]
		idlePipes.pipes = idlePipes.pipes[:last]
		return p
	}
	if idlePipes.open >= maxPipes {
		return nil
	}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil
	}
	idlePipes.open++
	return &pipe{r: uintptr(ends[0]), w: uintptr(ends[1])}
}

// putPipe gives a pipe back. What is left in one must never come out elsewhere.
func putPipe(p *pipe) {
	idlePipes.Lock()
	defer idlePipes.Unlock()
	if p.held == 0 && len(idlePipes.pipes) < maxIdlePipes {
		idlePipes.pipes = append(idlePipes.pipes, p)
		return
	}
	idlePipes.open--
	_ = syscall.Close(int(p.r)) // what is in it is lost, as is meant
	_ = syscall.Close(int(p.w)) // as above
}

// fill moves at most n bytes from a socket into the empty pipe.
func (p *pipe) fill(fd uintptr, n int) syscall.Errno {
	var errno syscall.Errno
	p.held, errno = spliceFD(fd, p.w, n)
	return errno
}

// drain moves what is in the pipe to a socket, as far as there is room.
func (p *pipe) drain(fd uintptr) (n int, errno syscall.Errno) {
	n, errno = spliceFD(p.r, fd, p.held)
	p.held -= n
	return n, errno
}

const (
	spliceMove     = 1
	spliceNonblock = 2
)

// spliceFD does not tell the scheduler either; see readFD.
func spliceFD(from, to uintptr, n int) (int, syscall.Errno) {
	for {
		m, _, errno := syscall.RawSyscall6(syscall.SYS_SPLICE, from, 0, to, 0, uintptr(n), spliceMove|spliceNonblock)
		if errno != syscall.EINTR {
			return max(int(m), 0), errno
		}
	}
}
