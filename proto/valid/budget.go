package valid

import (
	"iter"

	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// MaxEvidence is the largest evidence header in bytes, after base64.
const MaxEvidence = 1 << 10

// What an evidence header takes before base64, generously: the version byte,
// the sender's tag, number, k and index; for every instance with counts its tag
// and the number of its entries; for every entry an index and a count.
const (
	evidenceHead     = 1 + 6 + 3 + 2 + 2
	evidenceInstance = 6 + 1
	evidenceEntry    = 1 + 2
)

// EvidenceSize estimates the largest evidence header, in bytes after base64,
// that the activation can lead to: every predicate counted at each instance of
// its observer, every TFIC fired where it may fire. A nil instances means one
// instance of each service.
func EvidenceSize(m *tfiv1.Activation, instances func(service string) int) int {
	entries := make(map[string]int)
	seen := make(map[string]bool)
	for _, t := range m.GetTfics() {
		for a := range atoms(t.GetGuard()) {
			if p := predicateKey(a.GetEvent()); !seen[p] {
				seen[p] = true
				entries[a.GetEvent().GetOp().GetObserver()]++
			}
		}
		s, _ := injector(t.GetTarget())
		entries[s]++
	}
	size := evidenceHead
	for service, n := range entries {
		count := 1
		if instances != nil {
			count = max(1, instances(service))
		}
		size += count * (evidenceInstance + n*evidenceEntry)
	}
	return (size*4 + 2) / 3
}

// budget refuses what would not fit in the evidence header.
func (c *checker) budget(path string, m *tfiv1.Activation, instances func(string) int) {
	seen := make(map[string]bool)
	for _, t := range m.GetTfics() {
		for a := range atoms(t.GetGuard()) {
			seen[predicateKey(a.GetEvent())] = true
		}
	}
	if n := len(seen); n > MaxPredicates {
		c.want(path, "must name at most %d different event predicates in their guards (got %d)", MaxPredicates, n)
		return
	}
	if n := EvidenceSize(m, instances); n > MaxEvidence {
		c.want(path, "must need at most %d bytes of evidence header, predicates × instances (would need up to %d): use fewer predicates or TFICs", MaxEvidence, n)
	}
}

// predicateKey is the same for equal predicates.
func predicateKey(m *tfiv1.EventPredicate) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return m.String()
	}
	return string(b)
}

// atoms yields the atoms of a guard, depth first, within the guard's bounds.
func atoms(g *tfiv1.Guard) iter.Seq[*tfiv1.Atom] {
	return func(yield func(*tfiv1.Atom) bool) {
		nodes := 0
		walk(g, 1, &nodes, yield)
	}
}

func walk(g *tfiv1.Guard, depth int, nodes *int, yield func(*tfiv1.Atom) bool) bool {
	if *nodes++; *nodes > MaxGuardNodes || depth > MaxGuardDepth {
		return true
	}
	switch e := g.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		return yield(e.Atom)
	case *tfiv1.Guard_AllOf:
		for _, g := range e.AllOf.GetGuards() {
			if *nodes > MaxGuardNodes {
				return true
			}
			if !walk(g, depth+1, nodes, yield) {
				return false
			}
		}
	case *tfiv1.Guard_After:
		return walk(e.After, depth+1, nodes, yield)
	}
	return true
}
