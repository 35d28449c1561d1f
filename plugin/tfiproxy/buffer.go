package tfiproxy

import "sync"

// Sizes of buffers. Heads fit the small one as a rule; bodies that stream get the
// large one, since each read and write costs more than the copying in between.
const (
	smallBuffer = 8 << 10
	largeBuffer = 64 << 10
)

// buffer holds what was read and not yet forwarded: b[r:w].
type buffer struct {
	b    []byte
	r, w int
}

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, largeBuffer)} }}
)

func takeBuffer() *buffer { return smallBuffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if b == nil {
		return
	}
	b.r, b.w = 0, 0
	switch len(b.b) {
	case smallBuffer:
		smallBuffers.Put(b)
	case largeBuffer:
		largeBuffers.Put(b)
	}
}

// grown returns a large buffer with the contents of b, which it gives back.
func grown(b *buffer) *buffer {
	if len(b.b) >= largeBuffer {
		return b
	}
	g := largeBuffers.Get().(*buffer)
	g.w = copy(g.b, b.b[b.r:b.w])
	putBuffer(b)
	return g
}

// data returns what is in b.
func (b *buffer) data() []byte {
	if b == nil {
		return nil
	}
	return b.b[b.r:b.w]
}

// skip takes n bytes out.
func (b *buffer) skip(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// makeRoom moves the contents to the front and reports whether there is room.
func (b *buffer) makeRoom() bool {
	if b.r > 0 && b.w == len(b.b) {
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	}
	return b.w < len(b.b)
}
