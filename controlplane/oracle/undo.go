package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// undoList are the effects of a step that nothing has undone yet, in causal order.
//
// What undoes an effect has no common form: a refund, a DELETE, a `void` of what was
// made. A state-changing call is taken for it that no clean run makes, that comes
// later and is made at the same service. That is a guess, so a signature says what was
// taken as undone by what, and one call undoes one effect.
type undoList []effect

// take returns the effect that call undoes and takes it from the list: the last one
// whose resource the call names, or else the last one of the service. The same call once
// more undoes nothing.
func (l *undoList) take(call effect) (effect, bool) {
	best := -1
	for i, e := range *l {
		if e.service != call.service || e.api == call.api {
			continue
		}
		if best < 0 || names(call.api, e.api) || !names(call.api, (*l)[best].api) {
			best = i
		}
	}
	if best < 0 {
		return effect{}, false
	}
	taken := (*l)[best]
	*l = slices.Delete(*l, best, best+1)
	return taken, true
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
