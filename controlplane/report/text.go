package report

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// Fault says in words what a fault does.
func Fault(f *tfiv1.Fault) string {
	switch k := f.GetKind().(type) {
	case *tfiv1.Fault_Delay:
		switch d := k.Delay.GetDistribution().(type) {
		case *tfiv1.Delay_Fixed:
			return "delay " + duration(d.Fixed)
		case *tfiv1.Delay_Uniform:
			return "delay " + duration(d.Uniform.GetMin()) + "–" + duration(d.Uniform.GetMax())
		case *tfiv1.Delay_Normal:
			return "delay ~" + duration(d.Normal.GetMean()) + " ± " + duration(d.Normal.GetStddev())
		case *tfiv1.Delay_Exponential:
			return "delay ~" + duration(d.Exponential.GetMean())
		}
		return "delay"
	case *tfiv1.Fault_Error:
		return "error"
	case *tfiv1.Fault_Abort:
		return "abort"
	case *tfiv1.Fault_Drop:
		return "drop"
	}
	return "fault"
}

// faultOn is Fault with the status that a call of the api would get.
func faultOn(f *tfiv1.Fault, api string) string {
	e := f.GetError()
	if e == nil {
		return Fault(f)
	}
	if isGRPC(api) {
		return fmt.Sprintf("error gRPC %s", grpcStatus(orElse(e.GetGrpcStatus(), 14)))
	}
	return fmt.Sprintf("error %d", orElse(e.GetHttpStatus(), 503))
}

func orElse(n, other uint32) uint32 {
	if n == 0 {
		return other
	}
	return n
}

func isGRPC(api string) bool { return !strings.Contains(api, " ") }

var grpcNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

func grpcStatus(n uint32) string {
	if int(n) < len(grpcNames) {
		return grpcNames[n]
	}
	return fmt.Sprint(n)
}

// status is an answer's status as the protocol's people say it.
func status(api string, n uint32) string {
	if isGRPC(api) {
		return grpcStatus(n)
	}
	if n == 0 {
		return "broken"
	}
	return fmt.Sprint(n)
}

func phase(p tfiv1.Phase) string {
	switch p {
	case tfiv1.Phase_PHASE_REQ:
		return "req"
	case tfiv1.Phase_PHASE_RESP:
		return "resp"
	}
	return "?"
}

// answerOf names an answer by how it ended.
func answerOf(api string, o tfiv1.Outcome, code uint32) string {
	switch o {
	case tfiv1.Outcome_OUTCOME_SUCCESS:
		return "successful answer"
	case tfiv1.Outcome_OUTCOME_FAILURE:
		return "failed answer"
	case tfiv1.Outcome_OUTCOME_STATUS:
		return status(api, code) + " answer"
	}
	return "answer"
}

// Where says in words where a TFIC strikes: fault, phase, call, edge.
func Where(t *tfiv1.Tfic) string {
	s := t.GetTarget()
	half := "the request of"
	if s.GetPhase() == tfiv1.Phase_PHASE_RESP {
		half = "the " + answerOf(s.GetApi(), s.GetWhen(), s.GetWhenStatus()) + " of"
	}
	call := ""
	if s.GetK() > 0 {
		call = fmt.Sprintf(" call %d of", s.GetK())
	}
	text := fmt.Sprintf("%s on %s%s %s (%s)", faultOn(t.GetFault(), s.GetApi()), half, call, s.GetApi(), edge(s))
	for _, id := range s.GetIdentities() {
		text += ", " + identity(id)
	}
	if s.GetPlacement() == tfiv1.Placement_PLACEMENT_CALLEE {
		text += ", made at the callee"
	}
	return text
}

func edge(s *tfiv1.StaticConfiguration) string {
	return outside(s.GetCaller()) + " → " + s.GetCallee()
}

// outside names a caller that is not in the mesh.
func outside(service string) string {
	if service == "" {
		return "client"
	}
	return service
}

func identity(id *tfiv1.Identity) string {
	source := "path"
	switch s := id.GetSource().(type) {
	case *tfiv1.Identity_Query:
		source = "query " + s.Query
	case *tfiv1.Identity_Header:
		source = "header " + s.Header
	}
	if p, ok := id.GetMatch().(*tfiv1.Identity_Prefix); ok {
		return fmt.Sprintf("%s begins with %q", source, p.Prefix)
	}
	return fmt.Sprintf("%s = %q", source, id.GetExact())
}

// When says in words what a guard waits for, one condition an element; empty
// means that there is none.
func When(g *tfiv1.Guard) []string {
	return when(nil, g, 0)
}

// Conjunction is the word before the i-th line of [When]: all of them must hold.
func Conjunction(i int) string {
	if i == 0 {
		return "after"
	}
	return "and"
}

func when(list []string, g *tfiv1.Guard, depth int) []string {
	if depth > 16 {
		return list
	}
	switch e := g.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		list = append(list, Atom(e.Atom))
	case *tfiv1.Guard_AllOf:
		for _, g := range e.AllOf.GetGuards() {
			list = when(list, g, depth+1)
		}
	case *tfiv1.Guard_After:
		list = when(list, e.After, depth+1)
	}
	return list
}

// Atom says in words what an atom counts.
func Atom(a *tfiv1.Atom) string {
	e := a.GetEvent()
	op := e.GetOp()
	from, to := op.GetObserver(), outside(op.GetPeer())
	if op.GetRole() == tfiv1.Role_ROLE_SERVER {
		from, to = to, from
	}
	what := "request"
	if op.GetPhase() == tfiv1.Phase_PHASE_RESP {
		what = answerOf(op.GetApi(), e.GetOutcome(), e.GetStatus())
	}
	if a.GetCount() > 1 {
		what += "s"
	}
	verb := "seen at"
	if e.GetDelivered() {
		verb = "delivered by"
	}
	text := fmt.Sprintf("%s %s of %s (%s → %s) %s %s", times(a.GetCount()), what, op.GetApi(), from, to, verb, op.GetObserver())
	for _, id := range e.GetIdentities() {
		text += ", " + identity(id)
	}
	return text
}

func times(n uint32) string {
	return fmt.Sprintf("≥%d", n)
}

// verdict is a verdict's name in lower case.
func verdict(v campaignv1.Verdict) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), "VERDICT_"))
}

// outcome says in a few words how a trial ended.
func outcome(s *campaignv1.OutcomeSignature) string {
	if s.GetSummary() != "" {
		return s.GetSummary()
	}
	if s.GetClass() == campaignv1.OutcomeClass_OUTCOME_CLASS_CLEAN {
		return "as in clean runs"
	}
	return strings.Join(s.GetAnswers(), ", ")
}

// ReplayCommand is what replays a finding.
func ReplayCommand(f *campaignv1.Finding) string {
	if f.GetReplayFile() == "" {
		return ""
	}
	return "sequencefi replay " + shellQuote(f.GetReplayFile())
}

// shellQuote quotes s where a shell would not take it as one word.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-/+:@%", r))
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func duration(d *durationpb.Duration) string {
	return short(d.AsDuration())
}

// short rounds a duration to what people read.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// plural counts things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clean makes text safe for one line of a terminal: no control characters, so
// that nothing from a trace can move the cursor or change colours.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar:
			return '·'
		}
		return r
	}, s)
}

// clip cuts text to n runes.
func clip(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:max(0, n-1)]) + "…"
}

// OneLine makes text from traces and answers safe for one line of a terminal.
func OneLine(s string) string { return clean(s) }

// joinLines makes a sentence of an error that lists things a line each.
func joinLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if text := b.String(); strings.HasSuffix(text, ":") {
			b.WriteByte(' ')
		} else if text != "" {
			b.WriteString("; ")
		}
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}
