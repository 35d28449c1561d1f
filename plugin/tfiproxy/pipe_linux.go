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

const (
	maxIdlePipes = 32
	maxPipes     = 512
)

// pipeLimit is that of this process.
var pipeLimit = sync.OnceValue(findPipeLimit)

func findPipeLimit() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	return pipesOf(files.Cur)
}

// pipesOf leaves seven eighths of the descriptors to connections, which cannot do without,
// when many clients are slow to take what they have asked for. Besides, of an unprivileged
// user's pipes those beyond 1,024 hold two pages only (pipe(7), pipe-user-pages-soft), and
// moving so little costs more than copying.
func pipesOf(descriptors uint64) int {
	return int(min(descriptors/16, maxPipes)) //nolint:gosec // bounded
}

// takePipe returns an empty pipe, or nil if there are too many, or no descriptors left.
func takePipe() *pipe {
	idlePipes.Lock()
	defer idlePipes.Unlock()
	if last := len(idlePipes.pipes) - 1; last >= 0 {
		p := idlePipes.pipes[last]
		idlePipes.pipes = idlePipes.pipes[:last]
		return p
	}
	if idlePipes.open >= pipeLimit() {
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

// hasCome tells whether there is something to read. What begins with TCP's urgent byte
// cannot be spliced, and who waited would wait for ever, since it has come already; reading
// leaves the byte out.
func hasCome(fd uintptr) bool { return polled(fd, pollIn) }

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
