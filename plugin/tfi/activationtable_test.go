package tfi

import (
	"testing"

	"pgregory.net/rapid"
)

// TestActivationTable holds the table to a map: with keys that differ in few bits,
// some of which begin alike.
func TestActivationTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) (k Key) {
			k[0] = rapid.Byte().Draw(t, "first")
			k[5] = rapid.Byte().Draw(t, "last of the prefix")
			k[6] = rapid.Byte().Draw(t, "beyond")
			return k
		}), 0, 200).Draw(t, "keys")
		table, want := newActivationTable(len(keys)), map[prefix]*Activation{}
		for _, k := range keys {
			a := &Activation{Key: k}
			if got := table.add(a); got != want[k.prefix()] {
				t.Fatalf("added %v: there is %v, want %v", k, got, want[k.prefix()])
			}
			if want[k.prefix()] == nil {
				want[k.prefix()] = a
			}
		}
		for first := range 256 {
			for last := range 256 {
				p := prefix{0: byte(first), 5: byte(last)}
				if got := table.find(p); got != want[p] {
					t.Fatalf("found %v for %v, want %v", got, p, want[p])
				}
			}
		}
	})
}

func TestNoActivations(t *testing.T) {
	var none activationTable
	if a := none.find(prefix{}); a != nil {
		t.Error(a)
	}
}
