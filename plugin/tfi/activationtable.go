package tfi

import "math/bits"

// activationTable finds activations by the first bytes of their keys. A request of a
// trial is looked up before anything else, and a general map's hash takes longer
// than all the rest of it: most of all in wasm, which has no instruction for it.
// The zero value is empty.
type activationTable struct {
	// slots are probed one after the other; at most half of them are taken.
	slots []*Activation
	shift uint
}

// newActivationTable returns a table with room for n activations.
func newActivationTable(n int) activationTable {
	log := bits.Len(uint(2 * n))
	return activationTable{slots: make([]*Activation, 1<<log), shift: 64 - uint(log)}
}

// slot is where the search for p begins. Keys are random, but those of tests count up.
func (t *activationTable) slot(p prefix) int {
	n := uint64(p[0])<<40 | uint64(p[1])<<32 | uint64(p[2])<<24 | uint64(p[3])<<16 | uint64(p[4])<<8 | uint64(p[5])
	return int(n * mixFactor >> t.shift)
}

// find returns the activation whose key begins with p, or nil.
func (t *activationTable) find(p prefix) *Activation {
	if len(t.slots) == 0 {
		return nil
	}
	for i := t.slot(p); ; i++ {
		a := t.slots[i&(len(t.slots)-1)]
		if a == nil || a.Key.prefix() == p {
			return a
		}
	}
}

// add adds a, unless there is one whose key begins alike: that it returns.
func (t *activationTable) add(a *Activation) *Activation {
	for i := t.slot(a.Key.prefix()); ; i++ {
		switch slot := &t.slots[i&(len(t.slots)-1)]; {
		case *slot == nil:
			*slot = a
			return nil
		case (*slot).Key.prefix() == a.Key.prefix():
			return *slot
		}
	}
}

// mixFactor is odd, and its bits are as good as random: 2^64 divided by the golden ratio.
const mixFactor = 0x9e3779b97f4a7c15
