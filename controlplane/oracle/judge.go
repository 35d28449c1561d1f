package oracle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
)

// verdict is a signature in the making.
type verdict struct {
	signature *campaignv1.OutcomeSignature
	class     campaignv1.OutcomeClass
	// summary is the sentence of the worst that was seen.
	summary string
	// undone says what was taken as undone, whatever else was seen.
	undone []string
}

// rank orders classes by how much they say.
var rank = map[campaignv1.OutcomeClass]int{
	campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN:     0,
	campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED:  1,
	campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED: 2,
	campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING:   3,
}

// raise makes the verdict at least as bad as class, in a sentence.
func (v *verdict) raise(class campaignv1.OutcomeClass, format string, args ...any) {
	if v.class == campaignv1.OutcomeClass_OUTCOME_CLASS_UNSPECIFIED || rank[class] > rank[v.class] {
		v.class, v.summary = class, capital(fmt.Sprintf(format, args...))
	}
}

// also is raise that adds its sentence to one about something as bad.
func (v *verdict) also(class campaignv1.OutcomeClass, format string, args ...any) {
	if class == v.class {
		v.summary += " " + fmt.Sprintf(format, args...)
		return
	}
	v.raise(class, format, args...)
}

func capital(sentence string) string {
	first, size := utf8.DecodeRuneInString(sentence)
	return string(unicode.ToUpper(first)) + sentence[size:]
}

const (
	classClean     = campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN
	classDegraded  = campaignv1.OutcomeClass_OUTCOME_CLASS_DEGRADED
	classSuspected = campaignv1.OutcomeClass_OUTCOME_CLASS_SUSPECTED
	classFinding   = campaignv1.OutcomeClass_OUTCOME_CLASS_FINDING
)

// Judge reduces a run to its signature.
func (b *Baseline) Judge(ctx context.Context, run Observation) *campaignv1.OutcomeSignature {
	v := &verdict{signature: &campaignv1.OutcomeSignature{}}
	v.raise(classClean, "As in clean runs.")
	// An answer is refused where clean runs' is not: what it did must be undone.
	refused := false
	for i := range run.Answers {
		class := b.oracle.classOf(run, i)
		v.signature.Answers = append(v.signature.Answers, class)
		if i >= len(b.steps) {
			continue
		}
		refused = refused || class != b.steps[i].class
		b.judgeStep(v, run, i, class)
	}
	b.judgeProbes(v, run, refused)
	b.judgeInvariants(ctx, v, run)
	v.signature.Class, v.signature.Summary = v.class, b.withUndone(v.summary, v.undone)
	v.signature.Id = id(v.signature)
	return v.signature
}

func (b *Baseline) judgeStep(v *verdict, run Observation, i int, class string) {
	step, answer := b.steps[i], run.Answers[i]
	said := b.prefix(i) + sentence(answer, class)
	if class == step.class {
		b.judgeSame(v, run, i, said)
		return
	}
	switch class {
	case Timeout, Crash, Unsent:
		v.raise(classFinding, "%s; clean runs end in a %s.", said, step.class)
	case Success: // of what clean runs refuse
		v.raise(classFinding, "%s; clean runs refuse it with %d.", said, step.status)
		return
	}
	left, undone := b.oracle.leftovers(run.Calls, i, step.effects)
	if len(undone) == 0 {
		v.raise(classDegraded, "%s, with nothing left behind.", said)
	} else {
		v.raise(classDegraded, "%s.", said)
	}
	for _, u := range undone {
		v.signature.Effects = append(v.signature.Effects, b.named(i, u.String()))
		v.undone = append(v.undone, b.named(i, u.String()))
	}
	for _, d := range left {
		v.signature.Effects = append(v.signature.Effects, b.named(i, d.String()))
		hint := ""
		if d.mayUndo != "" {
			hint = fmt.Sprintf(" (if it undoes %s, list it under oracle.harmless as well)", d.mayUndo)
		}
		v.raise(worst(d), "%s, yet %s succeeded%s and nothing undid it%s.", said, d.effect, times(d.n), hint)
	}
}

// judgeSame judges a step whose answer has the class of clean runs.
func (b *Baseline) judgeSame(v *verdict, run Observation, i int, said string) {
	step, answer := b.steps[i], run.Answers[i]
	// A command's outcome is its exit code alone: what it prints is for people.
	if answer.GetStatus() != 0 {
		lines, detail := step.body.compare(answer, b.oracle.ignore, false)
		for n, line := range lines {
			v.signature.Shape = append(v.signature.Shape, answer.GetStep()+": "+line)
			if n == 0 {
				v.raise(classFinding, "%s", shapeSentence(said, answer, line, detail, step.body.describe()))
			}
		}
	}
	for _, d := range b.oracle.effectDifferences(b.oracle.effectsOf(run.Calls, i), step.effects) {
		v.signature.Effects = append(v.signature.Effects, b.named(i, d.String()))
		if d.n > 0 {
			v.raise(worst(d), "%s, but %s succeeded%s more than in clean runs.", said, d.effect, times(d.n))
		} else {
			v.raise(worst(d), "%s, but %s did not succeed%s that clean runs have.", said, d.effect, times(-d.n))
		}
	}
}

// withUndone adds to a summary what was taken as undone, and what would prove it.
func (b *Baseline) withUndone(summary string, undone []string) string {
	if len(undone) == 0 {
		return summary
	}
	summary = strings.TrimSuffix(summary, ".") + "; " + strings.Join(undone, "; ")
	if b.hasIdle {
		return summary + "."
	}
	return summary + " (a probe of the state, in workload.after, would prove it)."
}

func worst(d difference) campaignv1.OutcomeClass {
	if d.sure == changing {
		return classFinding
	}
	return classSuspected
}

func times(n int) string {
	if n == 1 {
		return " once"
	}
	return " " + strconv.Itoa(n) + " times"
}

// judgeProbes compares probes with those of clean runs, or where the client was
// refused with those of a world in which nothing was done.
func (b *Baseline) judgeProbes(v *verdict, run Observation, refused bool) {
	want, state := b.probes, "clean runs"
	if refused {
		if !b.hasIdle {
			return
		}
		want, state = b.idle, "a world where nothing was done"
	}
	for i, a := range run.Probes {
		if i >= len(want) {
			break
		}
		var lines []string
		class := b.oracle.Class(a)
		if class == Unsent && want[i].class != Unsent {
			v.signature.Probes = append(v.signature.Probes, "? "+a.GetStep()+": not sent")
			v.raise(classSuspected, "The probe %s was not sent: %s.", a.GetStep(), a.GetError())
			continue
		}
		if class != want[i].class {
			lines = []string{sentence(a, class)}
		} else {
			lines, _ = want[i].compare(a, b.oracle.ignore, true)
		}
		for _, line := range lines {
			v.signature.Probes = append(v.signature.Probes, a.GetStep()+": "+line)
			v.raise(classFinding, "The probe %s differs from %s: %s.", a.GetStep(), state, line)
		}
	}
}

// prefix names the step where there are several.
func (b *Baseline) prefix(i int) string {
	if len(b.steps) < 2 {
		return ""
	}
	return "Step " + b.steps[i].name + ": "
}

func (b *Baseline) named(i int, line string) string {
	if len(b.steps) < 2 {
		return line
	}
	return b.steps[i].name + ": " + line
}

// sentence says how an answer ended.
func sentence(a workload.Answer, class string) string {
	switch {
	case class == Unsent:
		return "not sent: " + a.GetError()
	case a.GetError() == workload.ErrorTimeout:
		return "no answer within " + duration(a.GetDuration())
	case class == Timeout:
		return "answered only after " + duration(a.GetDuration())
	case a.GetError() != "" && a.GetStatus() != 0:
		return fmt.Sprintf("HTTP %d whose body broke off (%s)", a.GetStatus(), a.GetError())
	case a.GetError() != "":
		return "no answer: " + a.GetError()
	case a.GetStatus() != 0 && class == Crash:
		return fmt.Sprintf("HTTP %d, because the application gave no answer", a.GetStatus())
	case a.GetStatus() != 0 && class == Refusal:
		return fmt.Sprintf("refused with HTTP %d", a.GetStatus())
	case a.GetStatus() != 0:
		return fmt.Sprintf("HTTP %d", a.GetStatus())
	}
	return fmt.Sprintf("exit code %d", a.GetExitCode())
}

// shapeSentence says what is wrong with an answer's shape.
func shapeSentence(said string, a workload.Answer, line, detail, cleanly string) string {
	where, what, _ := strings.Cut(line, ": ")
	_, is, _ := strings.Cut(what, ", is ")
	switch {
	case where == "$" && detail == "":
		if text := short(a.Whole); text != "" {
			is = "body " + text
		}
		return fmt.Sprintf("%s with %s; clean answers are %s.", said, is, article(cleanly))
	case detail != "":
		return fmt.Sprintf("%s with %s at %s.", said, detail, where)
	}
	return fmt.Sprintf("%s with a wrong shape at %s: it %s.", said, where, what)
}

func article(noun string) string {
	if noun == "" || strings.HasPrefix(noun, "a ") || strings.Contains(noun, "/") {
		return noun
	}
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// short gives a body that fits into a sentence, in backquotes.
func short(body []byte) string {
	const longest = 40
	text := strings.TrimSpace(string(body))
	if text == "" || !utf8.ValidString(text) || strings.ContainsAny(text, "`\n") {
		return ""
	}
	if len(text) > longest {
		cut := longest
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return "`" + text + "`"
}

// id hashes what tells outcomes apart. Each part is preceded by its length, so that
// no two signatures give one text.
func id(s *campaignv1.OutcomeSignature) string {
	hash := sha256.New()
	for _, part := range [][]string{s.GetAnswers(), s.GetShape(), s.GetEffects(), s.GetProbes(), s.GetInvariants()} {
		_, _ = fmt.Fprintf(hash, "%d;", len(part))
		for _, line := range part {
			_, _ = fmt.Fprintf(hash, "%d:%s", len(line), line)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// Same says whether two signatures are of one outcome.
func Same(a, b *campaignv1.OutcomeSignature) bool {
	return a.GetId() == b.GetId() && slices.Equal(a.GetAnswers(), b.GetAnswers())
}
