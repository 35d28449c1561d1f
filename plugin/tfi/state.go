package tfi

import (
	"encoding/binary"
	"errors"
	"time"
)

// ErrState says that bytes are no encoded [State].
var ErrState = errors.New("malformed trial state")

// State is a sidecar's state of one trial (with scope trace: of one trace): what
// it knows, and what it has counted itself. All workers of the sidecar, inbound
// and outbound, share it. The zero value is a state that no message has reached;
// a state must not be copied.
type State struct {
	id StateID
	// deadline is the monotonic instant from which on nobody needs the state.
	deadline time.Duration
	// trace is the first trace id seen.
	trace TraceID
	// tag of this instance; 0: no message yet.
	tag Tag
	// seq is the number of events so far.
	seq   uint32
	known Counter
	// ranks counts the calls of an op (by its hash), and those that match the
	// identities of a TFIC.
	ranks table
	// requests remembers the rank of a request by its sender's tag and number, so
	// that a retry by the mesh gets the rank it had.
	requests table
}

// ID returns what the state is of.
func (s *State) ID() StateID { return s.id }

// Deadline returns the monotonic instant from which on the state may be thrown away.
func (s *State) Deadline() time.Duration { return s.deadline }

// Tag returns the instance's tag; 0 if no message has reached the state yet.
func (s *State) Tag() Tag { return s.tag }

// Events returns the number of events so far, which is the last sequence number.
func (s *State) Events() uint32 { return s.seq }

// Known returns the evidence that the sidecar has. It belongs to s.
func (s *State) Known() *Counter { return &s.known }

// Trace returns the first trace id by which the trial came here.
func (s *State) Trace() TraceID { return s.trace }

// End returns the record that reports the final count of events, once the trial
// is over at this sidecar. The adapter fills in Service and PolicyVersion.
func (s *State) End() Record {
	return Record{Kind: KindTrialEnd, Key: s.id.Key, Instance: s.tag, Trace: s.trace, Events: s.seq}
}

// begin prepares s for an event. A state that does not fit the activation (its
// slot has been somebody else's, or its bytes were lost) starts anew, with a new tag,
// so that nobody takes its numbers for those of the old one.
func (s *State) begin(id StateID, width int, fresh Tag, trace TraceID) {
	if s.tag != 0 && s.id == id && s.known.width == width {
		return
	}
	s.Reset()
	s.id = id
	s.tag = fresh
	s.trace = trace
	s.known.reset(width)
	s.known.row(fresh)
}

// Reset empties s and keeps its buffers.
func (s *State) Reset() {
	s.id = StateID{}
	s.deadline = 0
	s.trace = TraceID{}
	s.tag, s.seq = 0, 0
	s.known.reset(0)
	s.ranks.reset()
	s.requests.reset()
}

// next numbers one more event.
func (s *State) next() uint32 {
	if s.seq != ^uint32(0) {
		s.seq++
	}
	return s.seq
}

// table is a small bounded map from hashes to numbers, in order of insertion.
// A trial has few ops, so that a scan beats a hash map, and encodes to a few bytes.
type table struct {
	entries []entry
	// oldest is where the next entry goes once the table is full, if it forgets.
	oldest int
}

type entry struct {
	hash uint64
	n    uint32
}

func (t *table) reset() {
	t.entries = t.entries[:0]
	t.oldest = 0
}

// find returns the number of hash.
func (t *table) find(hash uint64) (uint32, bool) {
	for i := range t.entries {
		if t.entries[i].hash == hash {
			return t.entries[i].n, true
		}
	}
	return 0, false
}

// increment adds 1 to the number of hash and returns it; 0 where limit entries
// are taken.
func (t *table) increment(hash uint64, limit int) uint32 {
	for i := range t.entries {
		if e := &t.entries[i]; e.hash == hash {
			if e.n != ^uint32(0) {
				e.n++
			}
			return e.n
		}
	}
	if len(t.entries) >= limit {
		return 0
	}
	t.entries = append(t.entries, entry{hash: hash, n: 1})
	return 1
}

// remember sets the number of a hash that is not in t, and forgets the oldest
// one beyond limit.
func (t *table) remember(hash uint64, n uint32, limit int) {
	if len(t.entries) < limit {
		t.entries = append(t.entries, entry{hash: hash, n: n})
		return
	}
	t.oldest %= len(t.entries)
	t.entries[t.oldest] = entry{hash: hash, n: n}
	t.oldest++
}

// hash is taken of eight bytes at a time. Each step is one-to-one: what differs in
// exactly one of the numbers has another hash. What differs in several may have the same
// one, as with any hash of this size, and then shares a count.
type hash uint64

func (h *hash) number(n uint64) {
	x := (*h ^ hash(n)) * mixFactor
	*h = x ^ x>>32
}

// bytes takes b, and where it ends.
func (h *hash) bytes(b []byte) {
	h.number(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h.number(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		h.number(binary.LittleEndian.Uint64(last[:]))
	}
}

// What a hash is of.
const (
	hashOp hash = iota + 1
	hashTFIC
	hashRequest
)

// opHash names an op's calls among those that one sidecar ranks.
func opHash(role Role, peer, api []byte) uint64 {
	h := hashOp
	h.number(uint64(role))
	h.bytes(peer)
	h.bytes(api)
	return uint64(h)
}

// tficHash names the calls that match the identities of a TFIC.
func tficHash(index int) uint64 {
	h := hashTFIC
	h.number(uint64(index))
	return uint64(h)
}

// requestHash names one received request, and with a TFIC (index + 1) its rank
// among those that match this TFIC's identities.
func requestHash(from Tag, seq uint32, tfic int) uint64 {
	h := hashRequest
	h.number(uint64(from))
	h.number(uint64(seq)<<32 | uint64(uint32(tfic)))
	return uint64(h)
}

// stateVersion is the first byte of an encoded state. What a store must know of
// a state it does not decode stands at fixed places in front:
//
//	version   1 byte
//	key       7 bytes
//	trace     16 bytes
//	deadline  8 bytes, nanoseconds, big-endian
//	first     16 bytes, first trace id
//	tag       6 bytes
//	seq       varint
//	width     varint
//	rows      varint, then as in evidence, but with empty rows too
//	ranks     varint, then 8 bytes hash and varint each
//	requests  varint, then oldest as varint, then as ranks
//
// Version 1 had other hashes: a state of it starts anew.
const stateVersion = 2

const stateFront = 1 + 7 + 16 + 8

// PeekState returns what an encoded state is of, and from which monotonic
// instant on it may be thrown away, without decoding the rest. ok is false if b holds no state.
func PeekState(b []byte) (id StateID, deadline time.Duration, ok bool) {
	if len(b) < stateFront || b[0] != stateVersion {
		return StateID{}, 0, false
	}
	copy(id.Key[:], b[1:])
	copy(id.Trace[:], b[8:])
	return id, time.Duration(binary.BigEndian.Uint64(b[24:])), true
}

// AppendBinary appends the encoded state. It never fails.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, stateVersion)
	b = append(b, s.id.Key[:]...)
	b = append(b, s.id.Trace[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.deadline))
	b = append(b, s.trace[:]...)
	b = appendTag(b, s.tag)
	b = appendUvarint(b, uint64(s.seq))
	b = appendUvarint(b, uint64(s.known.width))
	b = appendUvarint(b, uint64(len(s.known.tags)))
	for i, t := range s.known.tags {
		b, _ = s.known.appendEntries(appendTag(b, t), i)
	}
	b = appendUvarint(b, uint64(len(s.ranks.entries)))
	b = s.ranks.append(b)
	b = appendUvarint(b, uint64(len(s.requests.entries)))
	b = appendUvarint(b, uint64(s.requests.oldest))
	return s.requests.append(b), nil
}

func (t *table) append(b []byte) []byte {
	for _, e := range t.entries {
		b = binary.BigEndian.AppendUint64(b, e.hash)
		b = appendUvarint(b, uint64(e.n))
	}
	return b
}

// Bounds that keep a damaged encoding from asking for memory.
const (
	maxStateWidth = 1 << 20
	maxStateCells = 1 << 24
)

// UnmarshalBinary replaces s by the state that b encodes and reuses s's buffers;
// it keeps nothing of b. Errors: ErrState, and then s is empty.
func (s *State) UnmarshalBinary(b []byte) error {
	s.Reset()
	r := reader{b: b}
	if v := r.take(1); v == nil || v[0] != stateVersion {
		return ErrState
	}
	r.copyTo(s.id.Key[:])
	r.copyTo(s.id.Trace[:])
	s.deadline = time.Duration(r.uint64())
	r.copyTo(s.trace[:])
	s.tag = r.tag()
	s.seq = r.uint32()
	s.known.reset(int(r.uvarint(maxStateWidth)))
	// A row takes at least 7 bytes, an entry of a table at least 9.
	rows := r.uvarint(uint64(len(r.b) / 7))
	if rows*uint64(s.known.width) > maxStateCells {
		r.bad = true
	}
	for last := Tag(0); rows > 0 && !r.bad; rows-- {
		t := r.tag()
		if t <= last {
			r.bad = true
			break
		}
		last = t
		cells := s.known.row(t)
		next := 0
		for n := r.uvarint(uint64(len(cells))); n > 0 && !r.bad; n-- {
			next += int(r.uvarint(uint64(len(cells)))) + 1
			count := r.uint32()
			if next > len(cells) || count == 0 {
				r.bad = true
				break
			}
			cells[next-1] = count
		}
	}
	s.ranks.read(&r, r.uvarint(uint64(len(r.b)/9)))
	n := r.uvarint(uint64(len(r.b) / 9))
	s.requests.oldest = int(r.uvarint(n))
	s.requests.read(&r, n)
	if r.bad || len(r.b) != 0 || !s.known.has(s.tag) {
		s.Reset()
		return ErrState
	}
	return nil
}

func (t *table) read(r *reader, n uint64) {
	for ; n > 0 && !r.bad; n-- {
		e := entry{hash: r.uint64()}
		e.n = r.uint32()
		t.entries = append(t.entries, e)
	}
}
