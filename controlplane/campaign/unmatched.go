package campaign

import (
	"slices"
	"strings"
)

// noteOps remembers the ops that a run called.
func (e *env) noteOps(a *attempt) {
	for _, c := range a.observation.Calls {
		e.ops[c.API] = true
	}
}

// warnUnmatched tells of ops that the oracle lists and that no run called. A name that is
// mistyped changes nothing, and nothing else would show it. It is asked at the end: an op
// may be one that only a fault brings about.
func (e *env) warnUnmatched() {
	for _, list := range []struct {
		path string
		ops  []string
	}{{"oracle.harmless", e.Spec.GetOracle().GetHarmless()}, {"oracle.stateChanging", e.Spec.GetOracle().GetStateChanging()}} {
		for _, op := range list.ops {
			if !e.ops[op] {
				e.warn("%s: no run called %q, so it changes nothing; calls were: %s", list.path, op, someOf(sortedKeys(e.ops)))
			}
		}
	}
}

// someOf lists the first few names.
func someOf(names []string) string {
	const most = 12
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	return strings.Join(names, ", ")
}
