package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// undoList are the calls of a step that nothing has undone yet, in causal order.
//
// What undoes an effect has no common form: a refund, a DELETE, a `void` of what was
// made. A state-changing call is taken for it that no clean run makes, that comes
// later and is made at the same service. That is a guess, so a signature says what was
// taken as undone by what, and one call undoes one effect.
//
// What undoes a call that the user says is harmless is no effect either. Harmless calls
// are many, so it must name what that one made.
type undoList []call

// call is an effect, or what would be one if it were not listed as harmless.
type call struct {
	effect
	harmless bool
}

// take returns the call that by undoes and takes it from the list: the last effect that
// it names, or else the last harmless call that it names, or else the last effect of the
// service. The same call once more undoes nothing.
func (l *undoList) take(by effect) (call, bool) {
	best, at := 0, -1
	for i, c := range *l {
		if c.service != by.service || c.api == by.api {
			continue
		}
		if rank := c.undoneBy(by); rank > 0 && rank >= best {
			best, at = rank, i
		}
	}
	if at < 0 {
		return call{}, false
	}
	taken := (*l)[at]
	*l = slices.Delete(*l, at, at+1)
	return taken, true
}

// undoneBy ranks what another call of the service may undo; 0: not this one.
func (c call) undoneBy(by effect) int {
	switch named := names(by.api, c.api); {
	case named && !c.harmless:
		return 3
	case named:
		return 2
	case !c.harmless:
		return 1
	}
	return 0
}

// lastHarmless returns the op of the last harmless call of a service; empty: none.
func (l *undoList) lastHarmless(service string) string {
	for _, c := range slices.Backward(*l) {
		if c.harmless && c.service == service {
			return c.api
		}
	}
	return ""
}

// names says whether the path of one HTTP api names what another made: whether it is
// the other's, or goes on where that ends. A collection may be called in the plural:
// `POST /charges/{id}/void` names what `POST /charge` made.
func names(api, made string) bool {
	_, path, ok := strings.Cut(api, " ")
	_, stem, http := strings.Cut(made, " ")
	if !ok || !http || strings.Trim(stem, "/") == "" {
		return false
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(stem, "/"))
	rest = strings.TrimPrefix(rest, "s")
	return ok && (rest == "" || rest[0] == '/')
}

// undoing is an effect and the call that is taken to have undone it.
type undoing struct {
	effect effect
	by     string
	n      int
}

// String writes `payment POST /charge taken as undone by POST /refund`.
func (u undoing) String() string {
	text := fmt.Sprintf("%s taken as undone by %s", u.effect, u.by)
	if u.n > 1 {
		text += times(u.n)
	}
	return text
}

func sortUndoings(counts map[undoing]int) []undoing {
	var out []undoing
	for u, n := range counts {
		u.n = n
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b undoing) int { return strings.Compare(a.String(), b.String()) })
	return out
}
