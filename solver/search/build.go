package search

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/guard"
	"github.com/sequencefi/sequencefi/solver/lineage"
	"github.com/sequencefi/sequencefi/solver/replay"
	"github.com/sequencefi/sequencefi/solver/trace"
)

var (
	// errNowhere: no run fit to make a guard from has the target.
	errNowhere = errors.New("no run has the call")
	// errUnsound: in a known run the engine would not strike where it should.
	errUnsound = errors.New("the engine would strike elsewhere")
)

// plan is how one variable becomes a TFIC; feedback changes it.
type plan struct {
	variable lineage.Variable
	role     tfiv1.Role
	// enforce the rank at run time though the pattern does not ask for it.
	enforce bool
	// early are moments at which the fault struck before its window.
	early []early
}

// early is such a moment.
type early struct {
	run   *execution
	event int
}

// built is a TFIC and why it is as it is.
type built struct {
	tfic    *tfiv1.Tfic
	explain string
	assumed bool
}

// build makes the TFIC of p from the relevant runs. Errors are those of
// package guard, and errNowhere.
func (s *Session) build(p *plan, relevant []*execution) (*built, error) {
	v := p.variable
	in := s.universe.info[occurrenceEdge(v.Occurrence)]
	if in == nil {
		in = &edgeInfo{calls: 1}
	}
	t := &target{plan: p, info: in, universe: s.universe, effect: wantsEffect(v.Variant)}
	t.enforce = p.enforce || v.Variant != PatternPostEffect
	if err := t.collect(relevant); err != nil {
		return nil, err
	}
	var notes []string
	result, problem, err := t.solve()
	if errors.Is(err, guard.ErrObligatory) {
		// The callee cannot tell, but the judged answer itself can.
		notes = append(notes, "that the callee succeeded is read from its answer: "+err.Error())
		t.effect = false
		result, problem, err = t.solve()
	}
	if errors.Is(err, guard.ErrInexpressible) && !t.enforce {
		notes = append(notes, "the rank is enforced: "+err.Error())
		t.enforce = true
		result, problem, err = t.solve()
	}
	if err != nil {
		return nil, err
	}
	sigma := &tfiv1.StaticConfiguration{
		Caller: v.Occurrence.Caller, Callee: v.Occurrence.Callee, Api: v.Occurrence.API,
		Phase: v.Phase, K: v.Occurrence.K, EnforceK: t.enforce, Placement: placementOf(p.role),
	}
	out := &tfiv1.Tfic{Target: sigma, Guard: result.Proto(), Fault: s.model.fault(v.Fault), MaxInjections: 1}
	if v.Phase == tfiv1.Phase_PHASE_RESP {
		out.AnswerKind = in.answer
		if in.succeeds {
			sigma.When = tfiv1.Outcome_OUTCOME_SUCCESS
		}
	}
	if err := t.check(out, relevant); err != nil {
		return nil, err
	}
	notes = append([]string{t.headline(), result.Explain(problem)}, notes...)
	return &built{out, strings.Join(notes, ". ") + ".", t.assumed}, nil
}

func wantsEffect(variant string) bool {
	return variant == PatternPostEffect || variant == PatternKOfNPostEffect
}

// target gathers what runs tell of a plan's target.
type target struct {
	plan     *plan
	info     *edgeInfo
	universe *universe
	effect   bool
	enforce  bool
	assumed  bool

	own     trace.Op
	effects replay.Predicate
	points  []guard.Point
	// rivals with any rank; those that the enforced rank excludes anyway are left
	// out when solving.
	rivals []rival
	// earlier are the calls of the edge whose answers were known when this call
	// went out, in every run.
	earlier map[uint32]bool
}

type rival struct {
	guard.Point
	k uint32
}

// collect finds the target and its rivals in every relevant run.
func (t *target) collect(runs []*execution) error {
	v := t.plan.variable
	for _, x := range runs {
		known, err := x.knowledge(t.universe.predicates)
		if err != nil {
			return err
		}
		t.assumed = t.assumed || x.trial.Assumed
		i := x.target(v.Occurrence, t.plan.role, v.Phase)
		if i != trace.None && !t.refused(&x.trial.Events[i]) {
			t.own = x.trial.Events[i].Op
			t.points = append(t.points, guard.Point{Name: x.name, Known: known.At(i)})
			t.noteEffects(x)
		}
	}
	if len(t.points) == 0 {
		return errNowhere
	}
	for _, x := range runs {
		i := x.target(v.Occurrence, t.plan.role, v.Phase)
		for _, j := range x.byOp[t.own] {
			// Whatever does not come after the target could be taken for it.
			if j != i && (i == trace.None || !x.past.Includes(j, i)) {
				t.addRival(x, j)
			}
		}
	}
	for _, e := range t.plan.early {
		if _, err := e.run.knowledge(t.universe.predicates); err != nil {
			return err
		}
		t.addRival(e.run, e.event)
	}
	return nil
}

// refused reports whether `when` keeps the fault from striking at e.
func (t *target) refused(e *trace.Event) bool {
	return e.Op.Phase == tfiv1.Phase_PHASE_RESP && t.info.succeeds && e.Outcome != tfiv1.Outcome_OUTCOME_SUCCESS
}

func (t *target) addRival(x *execution, j int) {
	e := &x.trial.Events[j]
	if e.Op != t.own || e.Delivered || t.refused(e) {
		return
	}
	t.rivals = append(t.rivals, rival{guard.Point{Name: fmt.Sprintf("%s, call %d", x.name, e.K), Known: x.known.At(j)}, e.K})
}

// noteEffects finds the callee's own answer, and which earlier answers were
// known when the call went out.
func (t *target) noteEffects(x *execution) {
	o := t.plan.variable.Occurrence
	c := x.call(o)
	if c.ServerResp == trace.None {
		t.effect = false
		return
	}
	t.effects = replay.Predicate{Op: x.trial.Events[c.ServerResp].Op, Outcome: tfiv1.Outcome_OUTCOME_SUCCESS}
	sent := c.Target(t.plan.role, tfiv1.Phase_PHASE_REQ)
	now := map[uint32]bool{}
	for _, i := range x.byOp[t.effects.Op] {
		e := &x.trial.Events[i]
		if e.K != o.K && t.effects.Matches(e) && sent != trace.None && x.past.Includes(sent, i) {
			now[e.K] = true
		}
	}
	if t.earlier == nil {
		t.earlier = now
		return
	}
	for k := range t.earlier {
		if !now[k] {
			delete(t.earlier, k)
		}
	}
}

// obligatory are the atoms that the pattern itself needs.
//
// The callee's own answers known at the target may be more than those counted
// here, by the luck of the schedule. What must have come before in every run is
// counted and no more, so that the guard does not idle in a run with less luck.
func (t *target) obligatory() []guard.Atom {
	var out []guard.Atom
	o := t.plan.variable.Occurrence
	if t.effect {
		out = append(out, guard.Atom{Event: t.effects, Count: uint32(len(t.earlier)) + 1})
	}
	if t.info.calls > 1 && o.K > 1 {
		requests := t.own
		requests.Phase = tfiv1.Phase_PHASE_REQ
		if p := (replay.Predicate{Op: requests}); t.floor(p) >= o.K {
			out = append(out, guard.Atom{Event: p, Count: o.K})
		}
	}
	return out
}

// floor is the smallest count of p that was known at the target.
func (t *target) floor(p replay.Predicate) uint32 {
	i := slices.Index(t.universe.predicates, p)
	if i < 0 {
		return 0
	}
	n := t.points[0].Known[i]
	for _, q := range t.points[1:] {
		n = min(n, q.Known[i])
	}
	return n
}

func (t *target) solve() (*guard.Result, *guard.Problem, error) {
	injector := t.own.Observer
	p := &guard.Problem{
		Predicates: t.universe.predicates,
		Obligatory: t.obligatory(),
		Own:        func(q replay.Predicate) bool { return q.Op == t.own },
		Fits: func(q replay.Predicate) bool {
			return q == t.effects || q.Op.API == t.own.API && q.Op.Observer == injector
		},
		Hops: func(q replay.Predicate) int { return t.universe.hops[injector][q.Op.Observer] },
	}
	p.Targets = t.points
	for _, q := range t.rivals {
		if !t.enforce || q.k == t.plan.variable.Occurrence.K {
			p.Rivals = append(p.Rivals, q.Point)
		}
	}
	r, err := guard.Solve(p)
	return r, p, err
}

// checkEvents bounds the events that the engine judges again to check one TFIC.
const checkEvents = 5000

// check has the engine itself judge the runs that the guard was made from, of
// large ones not all: it must strike at the target and nowhere else.
func (t *target) check(tfic *tfiv1.Tfic, runs []*execution) error {
	tfic.Id = "check"
	events := 0
	for _, x := range runs {
		if events += len(x.trial.Events); events > checkEvents && x != runs[0] {
			break
		}
		want := x.target(t.plan.variable.Occurrence, t.plan.role, t.plan.variable.Phase)
		if want != trace.None && t.refused(&x.trial.Events[want]) {
			want = trace.None
		}
		strikes, err := replay.Strikes(x.trial, []*tfiv1.Tfic{tfic})
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		got := trace.None
		if len(strikes) > 0 {
			got = strikes[0].Event
		}
		if len(strikes) > 1 || got != want {
			return fmt.Errorf("%w: %s: event %d instead of %d", errUnsound, x.name, got, want)
		}
	}
	for _, e := range t.plan.early {
		strikes, err := replay.Strikes(e.run.trial, []*tfiv1.Tfic{tfic})
		if err != nil {
			return fmt.Errorf("%s: %w", e.run.name, err)
		}
		if len(strikes) > 0 && strikes[0].Event == e.event {
			return fmt.Errorf("%w: %s: event %d again", errUnsound, e.run.name, e.event)
		}
	}
	return nil
}

// headline says where the fault strikes.
func (t *target) headline() string {
	o := t.plan.variable.Occurrence
	what := "when the request arrives"
	if t.plan.variable.Phase == tfiv1.Phase_PHASE_RESP {
		what = "when the answer arrives"
	}
	s := fmt.Sprintf("%s at the sidecar of %s, call %d of %d of %s -> %s %s", what, t.own.Observer, o.K, max(t.info.calls, int(o.K)), o.Caller, o.Callee, o.API)
	if t.enforce {
		s += ", the rank is enforced"
	}
	return s
}

// maxID is the longest id that a TFIC may have.
const maxID = 64

// revisionRoom is kept free for what feedback appends.
const revisionRoom = len("-r99")

// name makes a stable and readable id of a variable, without its revision.
func (s *Session) name(v lineage.Variable) string {
	phase := "req"
	if v.Phase == tfiv1.Phase_PHASE_RESP {
		phase = "resp"
	}
	o := v.Occurrence
	head := tidy(o.Caller + "-" + o.Callee + "-" + shortAPI(o.API))
	tail := fmt.Sprintf("-k%d-%s-%s", o.K, phase, tidy(v.Fault))
	id := head + tail
	// Names that are cut, or that differ only in what an id cannot hold, are told
	// apart by a digest: first of the calls, so that their ids look alike.
	for _, seed := range [...]string{o.Caller + "\x00" + o.Callee + "\x00" + o.API, v.String()} {
		if len(id) <= maxID-revisionRoom && !s.taken(id, v) {
			break
		}
		room := maxID - revisionRoom - len(tail) - len("-01234567")
		id = strings.TrimRight(head[:max(0, min(len(head), room))], "-.") + "-" + digest(seed) + tail
	}
	s.names[id] = v
	return id
}

// shortAPI leaves out a gRPC service's package.
func shortAPI(api string) string {
	if strings.Contains(api, " ") {
		return api
	}
	service, method, ok := strings.Cut(api, "/")
	if !ok {
		return api
	}
	return service[strings.LastIndexByte(service, '.')+1:] + "/" + method
}

func (s *Session) taken(id string, v lineage.Variable) bool {
	owner, ok := s.names[id]
	return ok && owner != v
}

// tidy keeps what an id may hold.
func tidy(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		ok := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '.' || c == '_'
		switch {
		case ok:
			b.WriteByte(c)
		case b.Len() > 0 && b.String()[b.Len()-1] != '-':
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String(), "-")
}

func digest(s string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return fmt.Sprintf("%08x", h.Sum32())
}
