// Package search is the solver's memory of one campaign: runs and results go in,
// candidates come out, until nothing new can be found.
//
// A [Session] is used in rounds: [Session.Next] until it gives no more, execute,
// [Session.AddResults], and again until a round is empty. It is safe for
// concurrent use.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/guard"
	"github.com/sequencefi/sequencefi/solver/lineage"
	"github.com/sequencefi/sequencefi/solver/replay"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Errors of a [Session].
var (
	// ErrNoTraces: candidates were asked for before any clean run was added.
	ErrNoTraces = errors.New("no clean run yet: add traces first")
	// ErrTooLarge: a run, or all runs of the session together, have more events than
	// can be analysed.
	ErrTooLarge = errors.New("too large to be analysed")
	// ErrUnknownCandidate: a result names a candidate that was never given.
	ErrUnknownCandidate = errors.New("unknown candidate")
)

// maxBatch bounds the candidates of one round.
const maxBatch = 10_000

// maxSteps take some seconds.
const maxSteps = 2_000_000

// Session is one search. Make it with [New].
type Session struct {
	mu    sync.Mutex
	model *model

	clean  []*execution
	faulty []*execution
	// idle are trials in which nothing fired: more to learn guards from.
	idle []*execution

	universe *universe
	groups   map[groupKey]*group
	attempts map[string]*attempt // by setKey
	order    []*attempt
	byID     map[string]*attempt
	names    map[string]lineage.Variable
	// room is how many cells more may be kept.
	room int
	// steps bounds the search for minimal sets of one size; cut tells the sizes at
	// which it was not enough.
	steps int
	cut   map[int]bool

	traces  int
	events  int
	given   int
	solving time.Duration
}

// New starts a search. It keeps no reference to r.
// Errors: [valid.ErrInvalid] with all problems of r.
func New(r *solverv1.StartSessionRequest) (*Session, error) {
	if err := valid.Error(valid.StartSessionRequest(r)); err != nil {
		return nil, err
	}
	return &Session{
		model: newModel(r), attempts: map[string]*attempt{}, byID: map[string]*attempt{}, names: map[string]lineage.Variable{},
		room: maxSessionCells, steps: maxSteps, cut: map[int]bool{},
	}, nil
}

// AddTraces adds clean runs and says what was odd in them. Either all are added
// or none. Errors: [ErrTooLarge], those of package trace.
func (s *Session) AddTraces(_ context.Context, runs []*solverv1.RecordedTrial) (warnings []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.clock(time.Now())
	var all []*trace.Trial
	for i, r := range runs {
		trials, err := decode(r)
		if errors.Is(err, trace.ErrNoEvents) {
			warnings = append(warnings, fmt.Sprintf("trials[%d]: %v; left out", i, err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("trials[%d]: %w", i, err)
		}
		all = append(all, trials...)
	}
	more, err := s.add(all)
	return append(warnings, more...), err
}

// AddTrials is AddTraces for runs that have been read already. The session owns them
// from then on. Errors: [ErrTooLarge].
func (s *Session) AddTrials(trials []*trace.Trial) (warnings []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.clock(time.Now())
	for _, t := range trials {
		if err := analysable(t); err != nil {
			return nil, err
		}
	}
	return s.add(trials)
}

func (s *Session) add(trials []*trace.Trial) (warnings []string, err error) {
	var added []*execution
	need := 0
	for _, t := range trials {
		x := newExecution(fmt.Sprintf("clean run %d", len(s.clean)+len(added)+1), t)
		if len(t.Events) == 0 {
			warnings = append(warnings, x.name+": no events, left out")
			continue
		}
		if need += cells(t); need > s.room {
			return nil, fmt.Errorf("%s: %w: the session's runs take %d counts too many", x.name, ErrTooLarge, need-s.room)
		}
		added = append(added, x)
		warnings = append(warnings, s.model.odd(x)...)
	}
	if len(added) == 0 {
		return warnings, nil
	}
	s.room -= need
	s.clean = append(s.clean, added...)
	for _, x := range added {
		s.traces++
		s.events += len(x.trial.Events)
		if have, want := x.entries(), s.clean[0].entries(); have != want {
			warnings = append(warnings, fmt.Sprintf("%s begins with %s, and %s with %s: runs of different workloads have little in common to try",
				x.name, have, s.clean[0].name, want))
		}
	}
	warnings = append(warnings, s.refreshUniverse()...)
	if len(s.clean) > 0 {
		s.refreshSpace()
	}
	return warnings, nil
}

// refreshUniverse looks at all clean runs anew, and leaves out those of which a
// replay cannot tell what was known.
func (s *Session) refreshUniverse() (warnings []string) {
	for {
		s.universe = newUniverse(s.clean)
		for _, list := range [...][]*execution{s.clean, s.faulty, s.idle} {
			for _, x := range list {
				x.known = nil // it was for other predicates
			}
		}
		sound := slices.DeleteFunc(slices.Clone(s.clean), func(x *execution) bool {
			_, err := x.knowledge(s.universe.predicates)
			if err != nil {
				warnings = append(warnings, err.Error()+"; left out")
				s.room += cells(x.trial)
			}
			return err != nil
		})
		if len(sound) == len(s.clean) {
			return warnings
		}
		s.clean = sound
	}
}

func (s *Session) clock(start time.Time) { s.solving += time.Since(start) }

// variables lists the faults that could strike in run x before its answer.
func (s *Session) variables(x *execution) []lineage.Variable {
	var out []lineage.Variable
	for i := range x.trial.Calls {
		c := &x.trial.Calls[i]
		e := edgeOf(c)
		if !s.model.tried(e) {
			continue
		}
		in := s.universe.info[e]
		if in == nil { // a call that only faults bring about
			in = &edgeInfo{
				calls: x.count[e], client: c.ClientReq != trace.None, server: c.ServerReq != trace.None,
				succeeds: succeeded(x.trial, c),
			}
		}
		role, ok := in.role(s.model.placement)
		if !ok {
			continue
		}
		for _, p := range s.model.phases {
			if x.target(e.at(c.K), role, p) == trace.None {
				continue
			}
			for _, f := range s.model.faults {
				out = append(out, lineage.Variable{Occurrence: e.at(c.K), Phase: p, Fault: f.GetName(), Variant: in.variant(p)})
			}
		}
	}
	return out
}

// refreshSpace makes an attempt of every single fault that clean runs allow, and
// groups them.
func (s *Session) refreshSpace() {
	in := map[lineage.Variable]int{}
	var all []lineage.Variable
	for _, x := range s.clean {
		for _, v := range s.variables(x) {
			if in[v] == 0 {
				all = append(all, v)
			}
			in[v]++
		}
	}
	for _, a := range s.order {
		a.superseded = len(a.plans) == 1 && in[a.plans[0].variable] == 0
	}
	slices.SortFunc(all, s.compare)
	members := map[groupKey][]*attempt{}
	for _, v := range all {
		a := s.attempt([]lineage.Variable{v})
		if a.varies = in[v] < len(s.clean); !a.varies {
			members[groupOf(v)] = append(members[groupOf(v)], a)
		} else if a.state == open {
			a.giveUp(reasonVaries)
		}
	}
	s.groups = map[groupKey]*group{}
	for k, m := range members {
		s.groups[k] = newGroup(m)
	}
}

// compare orders variables as the space is listed: by appearance, phase, fault.
func (s *Session) compare(a, b lineage.Variable) int {
	return cmp.Or(
		s.universe.compareOccurrences(a.Occurrence, b.Occurrence),
		cmp.Compare(a.Phase, b.Phase),
		cmp.Compare(s.model.rank(a.Fault), s.model.rank(b.Fault)),
		lineage.Compare(a, b),
	)
}

// attempt returns the attempt of a set, a new one if there is none.
func (s *Session) attempt(vs []lineage.Variable) *attempt {
	key := setKey(vs)
	if a := s.attempts[key]; a != nil {
		return a
	}
	a := &attempt{}
	for _, v := range vs {
		p := &plan{variable: v, role: tfiv1.Role_ROLE_CLIENT}
		if in := s.universe.info[occurrenceEdge(v.Occurrence)]; in != nil {
			if role, ok := in.role(s.model.placement); ok {
				p.role = role
			}
		}
		a.plans = append(a.plans, p)
		a.members = append(a.members, s.name(v))
	}
	a.base = a.members[0]
	if len(vs) > 1 {
		a.base = fmt.Sprintf("set%d-%s-%s", len(vs), a.members[0][:min(len(a.members[0]), 32)], digest(key))
	}
	s.attempts[key] = a
	s.order = append(s.order, a)
	return a
}

// Next gives the candidates that can be tried now, best first, at most limit; 0
// means all. Each is given once, unless a trial of it says nothing. None are left
// where results must come first, or where the search is over.
// Errors: [ErrNoTraces], the context's.
func (s *Session) Next(ctx context.Context, limit int) ([]*solverv1.Candidate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.clock(time.Now())
	if len(s.clean) == 0 {
		return nil, ErrNoTraces
	}
	if limit <= 0 || limit > maxBatch {
		limit = maxBatch
	}
	var out []*solverv1.Candidate
	for size := 1; size <= s.model.size; size++ {
		list, waiting, err := s.offerAll(ctx, size, limit)
		if err != nil {
			s.withdraw(list)
			return nil, err
		}
		// Larger sets are worth a trial only where smaller ones have told all.
		if out = list; waiting || len(out) > 0 {
			break
		}
	}
	return out, nil
}

// offerAll offers what can be tried of a size, at most limit, and says whether
// results are awaited.
func (s *Session) offerAll(ctx context.Context, size, limit int) (out []*solverv1.Candidate, waiting bool, err error) {
	for again := true; again; {
		again = false
		for _, a := range s.ready(size) {
			if err := ctx.Err(); err != nil {
				return out, false, err
			}
			if a.state == offered {
				waiting = true
				continue
			}
			if len(out) == limit {
				return out, waiting, nil
			}
			if c := s.offer(a); c != nil {
				out = append(out, c)
			} else {
				again = true // another may take its place
			}
		}
	}
	return out, waiting, nil
}

// ready lists the attempts of a size that are to be tried or under way, best first.
func (s *Session) ready(size int) []*attempt {
	if size == 1 {
		return s.readySingles()
	}
	return s.readySets(size)
}

func (s *Session) readySingles() []*attempt {
	type ranked struct {
		a    *attempt
		turn int
	}
	var list []ranked
	for _, g := range s.groups {
		try, _ := g.status()
		for i, a := range try {
			list = append(list, ranked{a, i})
		}
	}
	// A first call of every op before the second of any.
	slices.SortFunc(list, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(x.turn, y.turn), s.compare(x.a.plans[0].variable, y.a.plans[0].variable))
	})
	var out []*attempt
	for _, r := range list {
		if r.a.state == open || r.a.state == offered {
			out = append(out, r.a)
		}
	}
	return out
}

// offer turns an open attempt into a candidate, or gives it up and returns nil.
func (s *Session) offer(a *attempt) *solverv1.Candidate {
	id := a.base
	suffix := ""
	if a.revision > 0 {
		suffix = fmt.Sprintf("-r%d", a.revision+1)
		id += suffix
	}
	c := &solverv1.Candidate{Id: id}
	for i, p := range a.plans {
		b, err := s.build(p, s.relevant(a, p))
		if err != nil {
			reason := reasonInexpressible
			switch {
			case errors.Is(err, errNowhere), errors.Is(err, guard.ErrNoTarget):
				reason = reasonMissed
			case errors.Is(err, errUnsound), errors.Is(err, replay.ErrDisagree):
				reason = reasonUnsound
			}
			a.giveUp(reason)
			return nil
		}
		b.tfic.Id = a.members[i] + suffix
		c.Tfics = append(c.Tfics, b.tfic)
		c.Assumed = c.Assumed || b.assumed
		if i > 0 {
			c.Pattern += " + "
			c.Fault += "+"
			c.Explain += "\n"
		}
		c.Pattern += p.variable.Variant
		c.Fault += p.variable.Fault
		c.Explain += b.explain
	}
	if len(valid.Candidate(c)) > 0 {
		// Traces may hold names that no policy could.
		a.giveUp(reasonNames)
		return nil
	}
	if len(a.plans) == 1 {
		if g := s.groups[groupOf(a.plans[0].variable)]; g != nil {
			c.Represents = g.represents(a)
		}
	}
	a.id, a.state = id, offered
	s.byID[id] = a
	s.given++
	return c
}

// relevant lists the runs that a plan's guard is made from: of a single fault,
// those in which nothing fired; of a set, those in which the others fired.
func (s *Session) relevant(a *attempt, p *plan) []*execution {
	calm := append(slices.Clone(s.clean), s.idle...)
	if len(a.plans) == 1 {
		return calm
	}
	others := map[lineage.Variable]bool{}
	for _, q := range a.plans {
		if q != p {
			others[q.variable] = true
		}
	}
	best, most := calm, 0
	for _, x := range s.faulty {
		if len(x.fired) < most || len(x.fired) == 0 || x.target(p.variable.Occurrence, p.role, p.variable.Phase) == trace.None {
			continue
		}
		if slices.ContainsFunc(x.fired, func(v lineage.Variable) bool { return !others[v] }) {
			continue
		}
		if len(x.fired) > most {
			best, most = nil, len(x.fired)
		}
		best = append(best, x)
	}
	return best
}

// Withdraw takes candidates back that never reached who asked for them: they are
// given again.
func (s *Session) Withdraw(list []*solverv1.Candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withdraw(list)
}

func (s *Session) withdraw(list []*solverv1.Candidate) {
	for _, c := range list {
		if a := s.byID[c.GetId()]; a != nil && a.id == c.GetId() && a.state == offered {
			a.state = open
			s.given--
		}
	}
}
