package tfiproxy

import (
	"sync"
	"time"
)

// swept is a connection as the sweeper sees it. Its methods are called with the
// set's lock held, so they must not wait.
type swept interface {
	// sweep ends the connection if it is overdue.
	sweep(now time.Duration)
	// nudge makes it give up memory that it does not need while it is idle.
	nudge()
	// cut ends it at once.
	cut()
}

// connSet is all client connections.
type connSet struct {
	mu   sync.Mutex
	all  map[swept]struct{}
	shut bool
}

func (s *connSet) init() { s.all = map[swept]struct{}{} }

// add reports whether c may go on; not after closeAll.
func (s *connSet) add(c swept) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return false
	}
	s.all[c] = struct{}{}
	return true
}

func (s *connSet) remove(c swept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if len(s.all) == 0 {
		s.all = map[swept]struct{}{} // a map that was large stays large
	}
}

// sweep looks at all connections, and returns how many there are.
func (s *connSet) sweep(now time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		c.sweep(now)
	}
	return len(s.all)
}

func (s *connSet) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		c.nudge()
	}
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for c := range s.all {
		c.cut()
	}
}
