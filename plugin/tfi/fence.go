package tfi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// ErrFence says that bytes are no encoded [Fence].
var ErrFence = errors.New("malformed fence")

// Fence is the inner fence: by when each activation ends on the sidecar's own
// monotonic clock. A policy only says how long its activations still live from the
// moment a sidecar reads it; the fence remembers the first reading, so that
// reading the same policy again, after a push or a reload, prolongs nothing.
//
// An adapter keeps it wherever its trial states live. The zero value has no
// activations. It is not safe for concurrent use.
type Fence struct {
	entries []fenceEntry // by key
}

type fenceEntry struct {
	key      Key
	deadline time.Duration
}

// Admit takes note that p was read at now: an activation that is known keeps the
// earlier of its deadline and now plus its remaining lifetime; those that p does not
// have are dropped. It reports whether that changed anything.
func (f *Fence) Admit(p *Policy, now time.Duration) (changed bool) {
	next := make([]fenceEntry, 0, len(p.Activations))
	for _, a := range p.Activations {
		e := fenceEntry{key: a.Key, deadline: now + a.Remaining}
		if d, ok := f.Deadline(a.Key); ok {
			e.deadline = min(e.deadline, d)
		}
		next = append(next, e)
	}
	slices.SortFunc(next, func(a, b fenceEntry) int { return bytes.Compare(a.key[:], b.key[:]) })
	changed = !slices.Equal(f.entries, next)
	f.entries = next
	return changed
}

// Deadline returns the instant at which the activation of k ends.
func (f *Fence) Deadline(k Key) (time.Duration, bool) {
	i, ok := slices.BinarySearchFunc(f.entries, k, func(e fenceEntry, k Key) int { return bytes.Compare(e.key[:], k[:]) })
	if !ok {
		return 0, false
	}
	return f.entries[i].deadline, true
}

// Len returns the number of activations.
func (f *Fence) Len() int { return len(f.entries) }

const fenceVersion = 1

// AppendBinary appends the encoded fence. It never fails.
func (f *Fence) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, fenceVersion)
	for _, e := range f.entries {
		b = append(b, e.key[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(e.deadline))
	}
	return b, nil
}

// UnmarshalBinary replaces f by the fence that b encodes. Errors: ErrFence, and
// then f is empty.
func (f *Fence) UnmarshalBinary(b []byte) error {
	f.entries = f.entries[:0]
	r := reader{b: b}
	if v := r.take(1); v == nil || v[0] != fenceVersion {
		return ErrFence
	}
	for len(r.b) > 0 && !r.bad {
		var e fenceEntry
		r.copyTo(e.key[:])
		e.deadline = time.Duration(r.uint64())
		f.entries = append(f.entries, e)
	}
	sorted := true
	for i := 1; i < len(f.entries); i++ {
		sorted = sorted && bytes.Compare(f.entries[i-1].key[:], f.entries[i].key[:]) < 0
	}
	if r.bad || !sorted {
		f.entries = f.entries[:0]
		return ErrFence
	}
	return nil
}
