package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Call is a call between services that a trial made, as its callee's sidecar saw
// it end (or its caller's, where the callee has none).
type Call struct {
	// Step is the index of the workload's step that caused it.
	Step int
	// Service is the callee.
	Service string
	API     string
	// Entry: the workload itself made the call. Its answer is judged as an answer.
	Entry bool
	// Succeeded: the callee answered it with success.
	Succeeded bool
	// Broken: the callee gave no answer.
	Broken bool
}

// certainty says how sure it is that a call changes state.
type certainty uint8

const (
	harmless certainty = iota
	unknown
	changing
)

// A gRPC method has no verb, but most interfaces name their methods with one (AIP-130
// and its kin). These read.
var readingVerbs = []string{
	"Get", "List", "Find", "Search", "Query", "Read", "Fetch", "Lookup", "LookUp", "Watch", "Check", "Count",
	"Describe", "Show", "Poll", "Ping", "BatchGet", "Is", "Has",
}

// certainty of a succeeded call of api.
func (o *Oracle) certainty(api string) certainty {
	switch {
	case o.harmless[api]:
		return harmless
	case o.changing[api]:
		return changing
	}
	method, path, http := strings.Cut(api, " ")
	if http && strings.HasPrefix(path, "/") {
		switch method {
		case "POST", "PUT", "PATCH", "DELETE":
			return changing
		}
		return harmless
	}
	name := api[strings.LastIndexByte(api, '/')+1:]
	for _, verb := range readingVerbs {
		if rest, ok := strings.CutPrefix(name, verb); ok && !startsLower(rest) {
			return harmless
		}
	}
	return unknown
}

func startsLower(s string) bool { return s != "" && s[0] >= 'a' && s[0] <= 'z' }

// effect names a state-changing call.
type effect struct{ service, api string }

func (e effect) String() string { return e.service + " " + e.api }

// bounds are how often an effect happened in clean runs.
type bounds struct{ min, max int }

// effectsOf counts the state-changing calls of a step that succeeded, in a trial.
func (o *Oracle) effectsOf(calls []Call, step int) map[effect]int {
	counts := make(map[effect]int)
	for _, c := range calls {
		if c.Step == step && !c.Entry && c.Succeeded && o.certainty(c.API) != harmless {
			counts[effect{c.Service, c.API}]++
		}
	}
	return counts
}

// difference is one line of a signature's effects.
type difference struct {
	effect effect
	// n beyond the clean runs, or short of them where negative.
	n    int
	sure certainty
	// mayUndo is the op of a harmless call that it might undo; empty: there was none.
	mayUndo string
}

// String writes `+1 payment POST /charge`, with `?` where it is not sure that the
// call changes state.
func (d difference) String() string {
	text := fmt.Sprintf("%+d %s", d.n, d.effect)
	if d.sure != changing {
		text = "? " + text
	}
	return text
}

// effectDifferences compares the effects of a step whose answer has the class of
// clean runs.
func (o *Oracle) effectDifferences(counts map[effect]int, clean map[effect]bounds) []difference {
	var out []difference
	for e, n := range counts {
		if b := clean[e]; n > b.max {
			out = append(out, difference{effect: e, n: n - b.max, sure: o.certainty(e.api)})
		}
	}
	for e, b := range clean {
		if n := counts[e]; n < b.min {
			out = append(out, difference{effect: e, n: n - b.min, sure: o.certainty(e.api)})
		}
	}
	return sortDifferences(out)
}

// leftovers are the effects of a step that was refused, though clean runs are not:
// there should be none. Those that something undid are told apart.
func (o *Oracle) leftovers(calls []Call, step int, clean map[effect]bounds) ([]difference, []undoing) {
	var made undoList
	counts := make(map[effect]int)
	undone := make(map[undoing]int)
	mayUndo := make(map[effect]string)
	for _, c := range calls {
		if c.Step != step || c.Entry || !c.Succeeded {
			continue
		}
		e := effect{c.Service, c.API}
		if o.certainty(c.API) == harmless {
			if o.harmless[c.API] {
				made = append(made, call{e, true})
			}
			continue
		}
		if _, known := clean[e]; !known {
			if other, ok := made.take(e); ok {
				if !other.harmless {
					counts[other.effect]--
				}
				undone[undoing{effect: other.effect, by: e.api}]++
				continue
			}
			mayUndo[e] = made.lastHarmless(e.service)
		}
		counts[e]++
		made = append(made, call{e, false})
	}
	var out []difference
	for e, n := range counts {
		if n > 0 {
			out = append(out, difference{effect: e, n: n, sure: o.certainty(e.api), mayUndo: mayUndo[e]})
		}
	}
	return sortDifferences(out), sortUndoings(undone)
}

func sortDifferences(d []difference) []difference {
	slices.SortFunc(d, func(a, b difference) int { return strings.Compare(a.String(), b.String()) })
	return d
}
