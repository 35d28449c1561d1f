package tfi

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] in the process's own memory. It is safe for concurrent use
// and has no clock: it learns the time from the messages that begin a state.
type Memory struct {
	limit int64
	count atomic.Int64
	// now is the latest instant that any message brought that began a state.
	now atomic.Int64
	// swept is when a full store last looked for expired states.
	swept  atomic.Int64
	shards [memoryShards]memoryShard
}

var _ Store = (*Memory)(nil)

const memoryShards = 16

type memoryShard struct {
	mu     sync.Mutex
	states map[StateID]*State
	// last is the state that was used last; a call takes several steps. nil: none.
	last *State
	// free keeps a few states whose buffers can be used again.
	free []*State
}

// sweepEvery is how often a full store looks for expired states, on its
// messages' clock.
const sweepEvery = 100 * time.Millisecond

// maxFree bounds the reusable states of a shard.
const maxFree = 16

// NewMemory returns a store of at most limit states; 0 means 4,096.
func NewMemory(limit int) *Memory {
	if limit <= 0 {
		limit = 4096
	}
	m := &Memory{limit: int64(limit)}
	m.swept.Store(int64(-sweepEvery))
	for i := range m.shards {
		m.shards[i].states = make(map[StateID]*State)
	}
	return m
}

func (m *Memory) shard(id StateID) *memoryShard {
	h := hash(binary.LittleEndian.Uint32(id.Key[:]))
	h.number(uint64(binary.LittleEndian.Uint32(id.Key[3:])))
	// The random half of a trace id.
	h.number(binary.LittleEndian.Uint64(id.Trace[8:]))
	return &m.shards[(h>>32)%memoryShards]
}

// Update applies u once to the state of id. Errors: ErrTableFull.
func (m *Memory) Update(id StateID, u Updater) error {
	shard := m.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s := shard.last
	if s == nil || s.id != id {
		var ok bool
		if s, ok = shard.states[id]; !ok {
			// Only who needs room asks for the time, which all workers share.
			if t, ok := u.(Timed); ok {
				raise(&m.now, t.Now())
			}
			if !m.claim(shard) {
				return ErrTableFull
			}
			s = shard.take()
			s.id = id
			shard.states[id] = s
		}
		shard.last = s
	}
	u.Apply(s)
	if s.tag == 0 {
		// The step found that the call's state is gone, and began no other.
		m.drop(shard, id, s)
	}
	return nil
}

// raise makes a at least d.
func raise(a *atomic.Int64, d time.Duration) {
	for was := a.Load(); int64(d) > was; was = a.Load() {
		if a.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// claim takes room for one more state, if need be that of expired ones. The
// caller has locked held; a shard that somebody else has locked is passed over,
// since two that wait for each other's would wait for ever.
func (m *Memory) claim(held *memoryShard) bool {
	if m.count.Add(1) <= m.limit {
		return true
	}
	now := m.now.Load()
	if swept := m.swept.Load(); now-swept < int64(sweepEvery) || !m.swept.CompareAndSwap(swept, now) {
		m.count.Add(-1)
		return false
	}
	m.sweep(held, time.Duration(now))
	for i := range m.shards {
		shard := &m.shards[i]
		if shard != held && shard.mu.TryLock() {
			m.sweep(shard, time.Duration(now))
			shard.mu.Unlock()
		}
	}
	if m.count.Load() <= m.limit {
		return true
	}
	m.count.Add(-1)
	return false
}

func (s *memoryShard) take() *State {
	if n := len(s.free); n > 0 {
		state := s.free[n-1]
		s.free = s.free[:n-1]
		return state
	}
	return new(State)
}

func (m *Memory) drop(shard *memoryShard, id StateID, s *State) {
	delete(shard.states, id)
	if shard.last == s {
		shard.last = nil
	}
	m.count.Add(-1)
	if len(shard.free) < maxFree {
		s.Reset()
		shard.free = append(shard.free, s)
	}
}

func (m *Memory) sweep(shard *memoryShard, now time.Duration) {
	for id, s := range shard.states {
		if s.deadline <= now {
			m.drop(shard, id, s)
		}
	}
}

// Sweep throws away the states whose deadline has passed. An adapter calls it now
// and then; a store that is full helps itself as far as it can.
func (m *Memory) Sweep(now time.Duration) {
	for i := range m.shards {
		shard := &m.shards[i]
		shard.mu.Lock()
		m.sweep(shard, now)
		shard.mu.Unlock()
	}
}

// End throws away the states of trials that are over, and hands each to ended
// before; see [State.End]. live says which keys a new policy still has.
func (m *Memory) End(live func(Key) bool, ended func(*State)) {
	for i := range m.shards {
		shard := &m.shards[i]
		shard.mu.Lock()
		for id, s := range shard.states {
			if !live(id.Key) {
				if ended != nil {
					ended(s)
				}
				m.drop(shard, id, s)
			}
		}
		shard.mu.Unlock()
	}
}

// View shows the state of id to look, under its lock, and reports whether there is one.
func (m *Memory) View(id StateID, look func(*State)) bool {
	shard := m.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s, ok := shard.states[id]
	if ok {
		look(s)
	}
	return ok
}

// Len returns the number of states.
func (m *Memory) Len() int { return int(m.count.Load()) }
