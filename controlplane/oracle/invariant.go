package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	"github.com/sequencefi/sequencefi/controlplane/workload/expr"
)

// errNotEvaluated says that it is not known whether an invariant holds.
var errNotEvaluated = errors.New("could not be evaluated")

type invariant struct {
	name string
	prg  *expr.Program
}

// judgeInvariants says which invariants are violated. One that cannot be evaluated is not:
// what it would look at was not seen, which is for a person to look into.
func (b *Baseline) judgeInvariants(ctx context.Context, v *verdict, run Observation) {
	for _, inv := range b.oracle.invariants {
		ok, err := inv.holds(ctx, run)
		switch {
		case err != nil:
			v.signature.Invariants = append(v.signature.Invariants, "? "+inv.name)
			before := v.summary
			v.raise(classSuspected, "%s", before)
			v.summary = before + fmt.Sprintf(" The invariant %q %v.", inv.name, err)
		case !ok:
			v.signature.Invariants = append(v.signature.Invariants, inv.name)
			v.also(classFinding, "The invariant %q does not hold.", inv.name)
		}
	}
}

// holds says whether an invariant holds. Errors: errNotEvaluated, with the reason.
func (inv invariant) holds(ctx context.Context, run Observation) (bool, error) {
	var last any
	answers, probes := answersByStep(run.Answers), answersByStep(run.Probes)
	if n := len(run.Answers); n > 0 {
		last = expr.Answer(run.Answers[n-1].Answer, run.Answers[n-1].Whole)
	}
	ok, err := inv.prg.Bool(ctx, map[string]any{
		"answer": last, "answers": answers, "probes": probes, "trace": traceValue(run.Events),
	})
	if ok {
		return true, nil
	}
	// It looks at an answer that is none, whatever it makes of that.
	if i := slices.IndexFunc(run.Probes, inv.lacks); i >= 0 {
		return false, fmt.Errorf("%w: the probe %s was not sent: %s", errNotEvaluated, run.Probes[i].GetStep(), run.Probes[i].GetError())
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNotEvaluated, err)
	}
	return false, nil
}

// lacks says whether an invariant names a probe that was not sent.
func (inv invariant) lacks(probe workload.Answer) bool {
	return probe.Unsent && strings.Contains(inv.prg.String(), probe.GetStep())
}

func answersByStep(answers []workload.Answer) map[string]any {
	out := make(map[string]any, len(answers))
	for _, a := range answers {
		out[a.GetStep()] = expr.Answer(a.Answer, a.Whole)
	}
	return out
}
