package tfiproxy

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// A goroutine's stack that has grown stays above its first size for ever. Ten
// thousand idle connections are mostly stacks, so when the sweeper gives memory back it
// nudges them: each goes on in a new goroutine, whose stack is as small as it
// began, and without what only a request needs.

// errMove says that the connection is to go on in another goroutine.
var errMove = errors.New("move")

// idling tells sweeper and connection whether a nudge may come, or has.
type idling struct{ state atomic.Uint32 }

const (
	idleNot     uint32 = iota // busy: a nudge would disturb
	idleWaiting               // waits for a request
	idleNudging               // is being nudged
	idleNudged                // has been
)

// readIdle waits for the first bytes of a request. Errors: errMove too.
func (c *conn) readIdle() error {
	c.idling.state.Store(idleWaiting)
	var err error
	c.in, err = c.down.read(c.in)
	if c.idling.state.CompareAndSwap(idleWaiting, idleNot) {
		return err
	}
	for c.idling.state.Load() != idleNudged {
		runtime.Gosched() // the sweeper is in the middle of it
	}
	c.idling.state.Store(idleNot)
	if e := c.down.tcp.SetReadDeadline(time.Time{}); e != nil {
		return e
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errMove
	}
	return err
}

// nudge implements swept.
func (c *conn) nudge() {
	if !c.idling.state.CompareAndSwap(idleWaiting, idleNudging) {
		return
	}
	if tcp := c.down.shared.Load(); tcp != nil {
		_ = tcp.SetReadDeadline(time.Unix(1, 0)) // if it is broken the reader sees it
	}
	c.idling.state.Store(idleNudged)
}
