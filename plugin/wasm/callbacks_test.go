package wasm

import "testing"

// TestStreamsFindTheirRoots: a policy's streams are those that the host says,
// however late their requests come.
func TestStreamsFindTheirRoots(t *testing.T) {
	v := newVM()
	for id := range uint32(2) {
		v.contextCreate(1+id, 0)
	}
	v.newest = v.roots[2]
	streams := map[uint32]uint32{10: 1, 11: 2, 12: 1, 13: 2}
	for id, root := range streams {
		v.contextCreate(id, root)
	}
	for id, want := range streams {
		if r := v.rootOf(id); r == nil || r.id != want {
			t.Errorf("stream %d: root %+v, want %d", id, r, want)
		}
	}
	v.contextCreate(20, 1)
	v.contextCreate(21, 2)
	v.done(20)
	v.done(21)
	if v.created.id != 0 || len(v.created.others) != 0 {
		t.Errorf("streams whose request never came are kept: %+v", v.created)
	}
	if r := v.rootOf(20); r != nil {
		t.Errorf("a stream that is gone has root %d", r.id)
	}
}
