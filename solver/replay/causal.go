package replay

import (
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Knowledge tells what the observer of each event of a trial knew when it judged
// the event, the event itself included.
type Knowledge struct {
	predicates int
	counts     []uint32 // event major
}

// At returns the counts known at event i, by the index of the predicate. The
// slice belongs to the Knowledge.
func (k *Knowledge) At(i int) []uint32 {
	return k.counts[i*k.predicates : (i+1)*k.predicates : (i+1)*k.predicates]
}

func newKnowledge(events, predicates int) *Knowledge {
	return &Knowledge{predicates, make([]uint32, events*predicates)}
}

// causal computes by definition what the engine finds by exchanging evidence:
// what is known at an event is what lies in its causal past.
func causal(t *trace.Trial, predicates []Predicate) *Knowledge {
	k := newKnowledge(len(t.Events), len(predicates))
	past := t.Past()
	for j := range t.Events {
		for x := range predicates {
			if !predicates[x].Matches(&t.Events[j]) {
				continue
			}
			for i := j; i < len(t.Events); i++ {
				if past.Includes(i, j) {
					k.At(i)[x]++
				}
			}
		}
	}
	return k
}
