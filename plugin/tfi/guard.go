package tfi

// guard says when a fault may fire. Counts only grow, so that a conjunction of
// atoms that has once been true stays so: After needs no memory of its own.
type guard struct {
	op guardOp
	// predicate and count of an atom.
	predicate int
	count     uint64
	kids      []guard
}

type guardOp uint8

const (
	guardAtom guardOp = iota + 1
	guardAllOf
	guardAfter
)

// holds evaluates g on what is known; a nil guard is always true.
func (g *guard) holds(known *Counter) bool {
	if g == nil {
		return true
	}
	switch g.op {
	case guardAtom:
		return known.Sum(g.predicate) >= g.count
	case guardAllOf, guardAfter:
		for i := range g.kids {
			if !g.kids[i].holds(known) {
				return false
			}
		}
		return true
	}
	return false
}
