package campaign

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sequencefi/sequencefi/controlplane/topology"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Formats says which trace formats the applications forward.
type Formats struct {
	// Each of the topology's formats, and last its own header, if it names one.
	Each []Format
	// Enough is the smallest set of formats, smaller than the topology's, that loses no call; a
	// run with these only, whose sidecars looked for no others, has shown it. Nil: none is known,
	// and Why says the reason.
	Enough []string
	Why    string
	// Headers that an Envoy looks for in a request of no trial, and how many Enough leaves;
	// both are 0 where there is no Envoy.
	Headers, Left int
	// Unsteady edges were not in every ordinary run, so that nothing is known of them.
	Unsteady []Edge
	// Commands are the steps that may send trace headers which no run here takes away.
	Commands []string
}

// Format is one, with what came of a run whose requests carried no other.
type Format struct {
	// Name as topology.Formats has it, or that of the topology's own header.
	Name string
	// Lost calls, where they were lost first; empty: none.
	Lost []LostCall
	// Unknown says why the run does not tell whether Lost calls are the format's; empty: it does.
	Unknown string
}

// LostCall is what a run showed too seldom.
type LostCall struct {
	// API is empty where it is all calls of an edge.
	Caller, Callee, API string
	// Seen of the calls Of an ordinary run.
	Seen, Of int
}

// passage is an API's calls over an edge, or all over it where api is empty, of which the same
// ends told.
type passage struct {
	caller, callee, api string
	client, server      bool
}

// passages of a run.
type passages map[passage]int

func passagesOf(t *trace.Trial) passages {
	out := make(passages)
	for i := range t.Calls {
		c := &t.Calls[i]
		out.add(passage{c.Caller, c.Callee, c.API, c.ClientReq != trace.None, c.ServerReq != trace.None}, 1)
	}
	return out
}

// add counts an API's calls, and to all over its edge.
func (p passages) add(at passage, n int) {
	p[at] += n
	at.api = ""
	p[at] += n
}

// union has of each API as many calls as the run that has most.
func union(runs ...passages) passages {
	most := make(passages)
	for _, run := range runs {
		for at, n := range run {
			if at.api != "" {
				most[at] = max(most[at], n)
			}
		}
	}
	out := make(passages)
	for at, n := range most {
		out.add(at, n)
	}
	return out
}

// steady returns what all runs have: as many where they agree, else one. unsteady are the
// edges that some do not have.
func steady(runs []passages) (all passages, unsteady []passage) {
	all = make(passages)
	for _, run := range runs {
		for p := range run {
			n := run[p]
			for _, other := range runs {
				if other[p] == 0 {
					n = 0
					break
				}
				if other[p] != n {
					n = 1
				}
			}
			if n > 0 {
				all[p] = n
			} else if p.api == "" && !slices.Contains(unsteady, p) {
				unsteady = append(unsteady, p)
			}
		}
	}
	slices.SortFunc(unsteady, comparePassages)
	return all, unsteady
}

func comparePassages(a, b passage) int {
	return cmp.Or(cmp.Compare(a.caller, b.caller), cmp.Compare(a.callee, b.callee), cmp.Compare(a.api, b.api))
}

// lacking returns what a run has less of, sorted.
func (p passages) lacking(run passages) []passage {
	return slices.SortedFunc(func(yield func(passage) bool) {
		for at, n := range p {
			if run[at] < n && !yield(at) {
				return
			}
		}
	}, comparePassages)
}

// lost tells people of what a run lacks: what follows from an edge further up, or from the whole
// edge, is left out.
func (p passages) lost(run passages) []LostCall {
	reached := map[string]bool{"": true}
	for at := range run {
		reached[at.caller] = true
		if at.server {
			reached[at.callee] = true
		}
	}
	lacking := p.lacking(run)
	byAPI := make(map[[2]string]bool)
	for _, at := range lacking {
		byAPI[[2]string{at.caller, at.callee}] = byAPI[[2]string{at.caller, at.callee}] || at.api != ""
	}
	var first, all []LostCall
	gone := make(map[[2]string]bool)
	for _, at := range lacking {
		edge := [2]string{at.caller, at.callee}
		if gone[edge] || at.api == "" && run[at] > 0 && byAPI[edge] {
			continue // said of the edge already, or by its APIs
		}
		gone[edge] = at.api == "" && run[at] == 0
		call := LostCall{at.caller, at.callee, at.api, run[at], p[at]}
		all = append(all, call)
		if reached[at.caller] {
			first = append(first, call)
		}
	}
	if len(first) == 0 {
		return all
	}
	return first
}

// maxTries of sets of formats that seem enough.
const maxTries = 4

// preferred has the formats in the order in which they are suggested: by those with a whole
// trace id, steps can be told apart.
var preferred = []string{topology.FormatW3C, topology.FormatJaeger, topology.FormatB3, topology.FormatB3Multi}

// smallest returns the smallest set of formats that is enough, of several the one with what
// is preferred; nil: not even all are. It is in the order of topology.Formats.
func smallest(formats []string, enough func(set []string) bool) []string {
	ranked := slices.Clone(formats)
	slices.SortFunc(ranked, func(a, b string) int {
		return cmp.Compare(slices.Index(preferred, a), slices.Index(preferred, b))
	})
	var best []string
	for mask := 1<<len(ranked) - 1; mask > 0; mask-- {
		var set []string
		for i, format := range ranked {
			if mask&(1<<(len(ranked)-1-i)) != 0 {
				set = append(set, format)
			}
		}
		if (best == nil || len(set) < len(best)) && enough(set) {
			best = set
		}
	}
	if best == nil {
		return nil
	}
	return slices.DeleteFunc(topology.Formats(), func(format string) bool { return !slices.Contains(best, format) })
}

// sameSet says whether two sets of distinct formats are equal.
func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(format string) bool { return !slices.Contains(b, format) })
}

// forwarding is what is known of formats while they are found out.
type forwarding struct {
	*Formats
	// formats of the topology.
	formats []string
	// own is how the topology has requests marked, its own header included.
	own workload.Propagation
	// workload as the topology has it marked.
	workload *workload.Workload
	// all is what ordinary runs have, and answers those that the last of them got.
	all     passages
	answers []*campaignv1.Answer
	// covered has what came of each format alone.
	covered map[string]passages
	// done runs, of them the ordinary ones.
	done int
}

// formats finds out which formats are forwarded, from ordinary runs and more that carry less.
// Nil: the topology has one only. Errors as of Check, beside what was found out before.
func (e *env) formats(ctx context.Context, ordinary []*attempt) (*Formats, error) {
	f := &forwarding{
		Formats: &Formats{}, own: workload.PropagationOf(e.Topology), workload: e.workload,
		answers: ordinary[len(ordinary)-1].trial.GetAnswers(), covered: make(map[string]passages), done: len(ordinary),
	}
	if f.formats = f.own.Formats; len(f.formats) == 0 {
		f.formats = topology.Formats()
	}
	if len(f.formats) == 1 {
		return nil, nil
	}
	var runs []passages
	for _, a := range ordinary {
		runs = append(runs, passagesOf(a.recording.trial))
	}
	var unsteady []passage
	f.all, unsteady = steady(runs)
	for _, at := range unsteady {
		f.Unsteady = append(f.Unsteady, Edge{Caller: at.caller, Callee: at.callee})
	}
	for i, name := range e.workload.Steps() {
		if !e.workload.IsRequest(i) {
			f.Commands = append(f.Commands, name)
		}
	}
	defer func() { e.workload = f.workload }()
	err := e.tryEach(ctx, f)
	if err == nil {
		err = e.choose(ctx, f)
	}
	if err != nil {
		f.Enough, f.Why = nil, fmt.Sprintf("the runs that would tell were broken off: %v", err)
	}
	return f.Formats, err
}

// tryEach runs the workload with each format alone. Sidecars look for all of the topology's.
func (e *env) tryEach(ctx context.Context, f *forwarding) error {
	names := slices.Clone(f.formats)
	if f.own.Header != "" {
		names = append(names, f.own.Header)
	}
	acts, err := e.pushClean(ctx, len(names))
	if err != nil {
		return err
	}
	planned := f.done + len(names) + 1 // a set that is tried
	for i, name := range names {
		e.workload = f.workload.MarkedBy(f.own.Only(name))
		a, err := e.once(ctx, acts[i], nil, purposeClean)
		if err != nil {
			return err
		}
		f.done++
		e.update(Update{Done: f.done, Planned: planned})
		run := make(passages)
		if a.recording != nil {
			run = passagesOf(a.recording.trial)
		}
		format := Format{Name: name, Lost: f.all.lost(run)}
		if len(format.Lost) > 0 {
			format.Unknown = unlike(a, f.answers)
		}
		f.covered[name], f.Each = run, append(f.Each, format)
	}
	return nil
}

// choose tries sets of formats that seem enough, the smallest first, until one is.
func (e *env) choose(ctx context.Context, f *forwarding) error {
	var tried [][]string
	seems := func(set []string) bool {
		runs := []passages{f.covered[f.own.Header]} // the header is always there
		for _, format := range set {
			runs = append(runs, f.covered[format])
		}
		return len(f.all.lacking(union(runs...))) == 0 &&
			!slices.ContainsFunc(tried, func(other []string) bool { return sameSet(set, other) })
	}
	for len(tried) < maxTries {
		set := smallest(f.formats, seems)
		switch len(set) {
		case 0:
			f.Why = orElse(f.Why, "no set of them is known to be enough")
			return nil
		case len(f.formats):
			f.Why = orElse(f.Why, "each of them is needed")
			return nil
		}
		tried = append(tried, set)
		why, err := e.try(ctx, f, set)
		if err != nil {
			return err
		}
		f.done++
		e.update(Update{Done: f.done, Planned: f.done})
		if why == "" {
			f.Enough, f.Why = set, ""
			if e.Topology.Has(topology.SidecarEnvoy) {
				f.Headers = len(f.own.Headers())
				f.Left = len(workload.Propagation{Formats: set, Header: f.own.Header}.Headers())
			}
			return nil
		}
		f.Why = orElse(f.Why, why)
	}
	return nil
}

// try runs the workload as if the topology had these formats only, and says why they are not
// enough; empty: they are. A service may pass a trace on in another format than it got it in:
// sidecars saw that in the runs before, and Envoys that look for fewer do not.
func (e *env) try(ctx context.Context, f *forwarding, set []string) (why string, err error) {
	narrow := *e.Topology
	narrow.Propagation = set
	e.act.topology = &narrow
	defer func() { e.act.topology = e.Topology }()
	e.workload = f.workload.MarkedBy(workload.PropagationOf(&narrow))
	a, err := e.once(ctx, nil, nil, purposeClean)
	if err != nil {
		return "", err
	}
	name := strings.Join(set, " and ")
	differs := unlike(a, f.answers)
	if differs == "" {
		if lost := f.all.lost(passagesOf(a.recording.trial)); len(lost) > 0 {
			return fmt.Sprintf("%s seemed enough, but where sidecars look for nothing else calls of %s to %s are lost: some service passes the trace on in another format than it gets it in",
				name, orElse(lost[0].Caller, "the client"), lost[0].Callee), nil
		}
		var run Checked
		e.problemsOf(a, &run)
		differs = orElse(strings.Join(run.Problems, "; "), a.recording.incomplete)
	}
	if differs != "" {
		return fmt.Sprintf("%s seemed enough, but a run with nothing else was unlike the others: %s", name, differs), nil
	}
	return "", nil
}

// unlike says what made a run another one than those before, whatever its requests carried;
// empty: nothing did.
func unlike(a *attempt, answers []*campaignv1.Answer) string {
	if a.recording == nil {
		return a.invalid
	}
	for i, now := range a.trial.GetAnswers() {
		if i >= len(answers) || now.GetStep() != answers[i].GetStep() {
			break
		}
		if was := answers[i]; answerOf(now) != answerOf(was) {
			return fmt.Sprintf("step %s: %s, and %s before", now.GetStep(), answerOf(now), answerOf(was))
		}
	}
	t := a.recording.trial
	if len(t.Problems) > 0 {
		return fmt.Sprintf("the sidecar of %s reported %s", t.Problems[0].Service, t.Problems[0].What)
	}
	if len(t.Gaps) > 0 {
		return "reports are incomplete: " + a.recording.incomplete
	}
	return ""
}

// answerOf is an answer in short.
func answerOf(a *campaignv1.Answer) string {
	switch {
	case a.GetError() != "":
		return "no answer (" + a.GetError() + ")"
	case a.GetStatus() != 0:
		return fmt.Sprintf("HTTP %d", a.GetStatus())
	default:
		return fmt.Sprintf("exit code %d", a.GetExitCode())
	}
}
