package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/sequencefi/sequencefi/controlplane/oracle"
	"github.com/sequencefi/sequencefi/controlplane/workload"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// EdgeState says whether trace context survives an edge.
type EdgeState string

// The states of an edge.
const (
	// EdgeOK: both ends saw the call, and the one knows of the other.
	EdgeOK EdgeState = "ok"
	// EdgeLeaf: the callee has no sidecar; its caller's sees the call.
	EdgeLeaf EdgeState = "leaf"
	// EdgeLost: the caller's sidecar sent the call, and the callee's saw no trial.
	EdgeLost EdgeState = "lost"
	// EdgeBypass: the callee's sidecar saw the call, and no caller's sidecar sent it.
	EdgeBypass EdgeState = "bypass"
	// EdgeUnseen: no sidecar saw a call.
	EdgeUnseen EdgeState = "unseen"
)

// Edge is a caller and a callee.
type Edge struct {
	// Caller is empty for a client outside the mesh, or one that is not known.
	Caller, Callee string
	// Declared: the topology has it.
	Declared bool
	State    EdgeState
	// Calls that a run made over it.
	Calls int
	// Answers that its calls got in all runs, and those of them that were Failures, by what
	// they were, as "HTTP 503". With nothing injected, all of them are the system's own.
	Answers  int
	Failures map[string]int
	// By says which headers brought the trial to the callee's sidecar, sorted, as far as trace ids
	// tell: ByB3, ByTracestate, or ByLongID.
	By []string
	// Why it is so, and what it Costs; empty where nothing is wrong.
	Why, Costs string
}

// What a call was known by. A sidecar reports the trace id of the first header that names the
// trial, and only B3's has 64 bits.
const (
	// ByLongID: traceparent, uber-trace-id or the topology's own header.
	ByLongID = "a 128-bit trace id"
	// ByB3: b3 or x-b3-traceid.
	ByB3 = "B3"
	// ByTracestate: in a trace that an application has started.
	ByTracestate = "tracestate alone"
)

// Checked is what a check found.
type Checked struct {
	// Edges, those that are in order first.
	Edges []Edge
	// Sidecars of the services involved.
	Sidecars []Sidecar
	// Answers that the client got.
	Answers []*campaignv1.Answer
	// Incomplete says what reports lacked; empty: nothing.
	Incomplete string
	// Problems for people, beside those of edges.
	Problems []string
	// Tail is how long after the answer the last report came.
	Tail time.Duration
	// Carried are the formats that the topology has requests carry; empty: all that there are.
	Carried []string
	// Formats that are forwarded; nil: the topology has one only, or something is wrong.
	Formats *Formats
}

// OK says whether nothing is wrong.
func (c *Checked) OK() bool {
	return len(c.Problems) == 0 && c.Incomplete == "" &&
		!slices.ContainsFunc(c.Edges, func(e Edge) bool { return e.State == EdgeLost || e.State == EdgeBypass })
}

// Check sends the workload's requests, traced and with nothing injected, and says edge by
// edge whether trace context survives. Where nothing is wrong it sends them once more in each
// format that the topology has, and then in as few as seem enough (see Formats).
//
// Errors: *valid.InvalidError, *NotReadyError, ErrPush, and those of Plane and Source; beside
// one that came late, what was found before it. What is wrong with the system is in the result.
func Check(ctx context.Context, config Config) (*Checked, error) {
	e, err := newEnv(config)
	if err != nil {
		return nil, err
	}
	defer e.close()
	if err := e.awaitFleet(ctx); err != nil {
		return nil, err
	}
	e.update(Update{Stage: StageLoad, Text: e.loadingText()})
	acts, err := e.pushClean(ctx, 2)
	if err != nil {
		return nil, err
	}
	e.update(Update{Stage: StageClean, Planned: len(acts)})
	out := &Checked{Carried: e.Topology.Propagation}
	seen := newSightings()
	var ordinary []*attempt
	for i, act := range acts {
		a, err := e.once(ctx, act, nil, purposeClean)
		if err != nil {
			return nil, err
		}
		e.update(Update{Done: i + 1, Planned: len(acts), Trial: a.trial})
		if a.recording == nil {
			out.Problems = append(out.Problems, a.invalid)
			break
		}
		// The last run is looked at: the first one warms the system up.
		out.Answers, out.Incomplete, out.Tail = a.trial.GetAnswers(), a.recording.incomplete, a.recording.tail
		seen.add(a.recording.trial)
		ordinary = append(ordinary, a)
		if i == len(acts)-1 {
			e.problemsOf(a, out)
		}
	}
	out.Edges = e.edges(seen, len(acts))
	if len(out.Problems) == 0 && !slices.ContainsFunc(out.Edges, func(e Edge) bool { return e.Caller != "" && e.State != EdgeUnseen }) {
		out.Problems = append(out.Problems, "no call between services was seen: there is nothing that a campaign could fault")
	}
	for _, s := range e.Fleet.Sidecars() {
		if slices.Contains(e.act.involved, s.Service) {
			out.Sidecars = append(out.Sidecars, s)
		}
	}
	if !out.OK() || slices.ContainsFunc(ordinary[len(ordinary)-1].observation.Answers, e.refused) {
		return out, nil
	}
	if err := e.learn(ctx, ordinary); err != nil {
		out.Problems = append(out.Problems, err.Error())
		return out, nil
	}
	out.Formats, err = e.formats(ctx, ordinary)
	return out, err
}

// refused says whether an answer is a refusal, from which a campaign learns little.
func (e *env) refused(a workload.Answer) bool { return e.oracle.Class(a) == oracle.Refusal }

// learn says why a campaign could not learn from these runs what is right. Errors: those of
// oracle.Learn.
func (e *env) learn(ctx context.Context, runs []*attempt) error {
	var observations []oracle.Observation
	for _, a := range runs {
		observations = append(observations, a.observation)
	}
	_, err := e.oracle.Learn(ctx, observations, nil)
	return err
}

// pushClean puts activations without faults in force. Errors: ErrPush.
func (e *env) pushClean(ctx context.Context, n int) ([]*activation, error) {
	acts, err := e.act.pushNew(ctx, 0, make([][]*tfiv1.Tfic, n)...)
	if err != nil && !errors.Is(err, ErrPush) {
		err = fmt.Errorf("%w: %w", ErrPush, err)
	}
	return acts, err
}

// problemsOf lists what is wrong with a run beside its edges.
func (e *env) problemsOf(a *attempt, out *Checked) {
	for _, r := range a.requests {
		if a.observation.Answers[r.step].GetError() == workload.ErrorRefused {
			continue // nobody was there to see it
		}
		if !r.reported(a.recording.trial) {
			out.Problems = append(out.Problems, fmt.Sprintf("step %s: %s%s",
				a.observation.Answers[r.step].GetStep(), a.unseen(r), e.inbounds()))
		}
	}
	out.Problems = slices.Concat(out.Problems, e.passedBy(a), a.astray())
	for _, p := range a.recording.trial.Problems {
		out.Problems = append(out.Problems, fmt.Sprintf("the sidecar of %s reported %s", p.Service, p.What))
	}
	for i, answer := range a.observation.Answers {
		if answer.GetError() != "" {
			out.Problems = append(out.Problems, e.unanswered(i, answer.Answer))
		}
	}
}

// unanswered says of the i-th step, which got no answer, where its request went, and where
// it could go.
func (e *env) unanswered(i int, answer *campaignv1.Answer) string {
	text := fmt.Sprintf("step %s: no answer: %s", answer.GetStep(), answer.GetError())
	if e.Spec.GetWorkload().GetSteps()[i].GetHttp() == nil {
		return text
	}
	return text + "; it was sent to " + e.target(i) + e.inbounds()
}

// target names what the i-th step's request goes to.
func (e *env) target(i int) string {
	if url := e.Spec.GetWorkload().GetSteps()[i].GetHttp().GetUrl(); url != "" {
		return url
	}
	return "the workload's address"
}

// inbounds lists the services' inbound addresses as the end of a sentence; empty: the
// topology has none.
func (e *env) inbounds() string {
	var all []string
	for _, s := range e.Topology.Services {
		if s.Inbound != "" {
			all = append(all, s.Name+" "+s.Inbound)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (inbound addresses of the topology: " + strings.Join(all, ", ") + ")"
}

// sighting is how often an edge's calls were seen, by whom.
type sighting struct {
	client, server, both int
	answers              int
	failures             map[string]int
	by                   map[string]bool
}

// answered counts how a call ended, as its nearest sidecar saw it.
func (s *sighting) answered(t *trace.Trial, c *trace.Call) {
	at := c.ClientResp
	if at == trace.None {
		at = c.ServerResp
	}
	if at == trace.None {
		return
	}
	s.answers++
	answer := &t.Events[at]
	switch {
	case answer.Outcome != tfiv1.Outcome_OUTCOME_FAILURE:
	case c.Broken:
		s.failures["no answer"]++
	case c.GRPC:
		s.failures["gRPC "+codes.Code(answer.Status).String()]++
	default:
		s.failures[fmt.Sprintf("HTTP %d", answer.Status)]++
	}
}

// sightings are those of runs.
type sightings struct {
	edges map[[2]string]*sighting
	// active services had a sidecar that saw anything.
	active map[string]bool
}

func newSightings() *sightings {
	return &sightings{edges: make(map[[2]string]*sighting), active: make(map[string]bool)}
}

func (s *sightings) add(t *trace.Trial) {
	for i := range t.Events {
		s.active[t.Events[i].Op.Observer] = true
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		key := [2]string{c.Caller, c.Callee}
		if s.edges[key] == nil {
			s.edges[key] = &sighting{failures: make(map[string]int), by: make(map[string]bool)}
		}
		if c.ServerReq != trace.None {
			s.edges[key].by[knownBy(traceOf(c))] = true
		}
		s.edges[key].answered(t, c)
		switch at := s.edges[key]; {
		case c.ClientReq != trace.None && c.ServerReq != trace.None:
			at.both++
		case c.ClientReq != trace.None:
			at.client++
		default:
			at.server++
		}
	}
}

// knownBy tells what named the trial from the trace id that was reported.
func knownBy(id string) string {
	switch {
	case strings.HasPrefix(id, strings.Repeat("0", 16)):
		return ByB3
	case strings.HasSuffix(id, strings.Repeat("0", 14)):
		return ByTracestate
	default:
		return ByLongID
	}
}

// forgotten lists the headers of which a service forwards none, for people: those that its
// requests carry, as far as is known.
func (e *env) forgotten(service string, seen *sightings) string {
	by := make(map[string]bool)
	for key, at := range seen.edges {
		if key[1] != service {
			continue
		}
		maps.Copy(by, at.by)
		by[ByLongID] = by[ByLongID] || key[0] == "" // a client sends them all
	}
	var names []string
	for _, name := range workload.PropagationOf(e.Topology).Headers() {
		kind := ByLongID
		switch name {
		case "b3", "x-b3-traceid":
			kind = ByB3
		case "tracestate":
			kind = ByTracestate
		}
		if by[ByLongID] || by[kind] {
			names = append(names, name)
		}
	}
	// The one that most know first.
	if i := slices.Index(names, "traceparent"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "traceparent")
	}
	if len(names) == 0 {
		return "the trace headers"
	}
	if len(names) == 1 {
		return names[0]
	}
	return names[0] + " (nor " + strings.Join(names[1:], ", ") + ")"
}

// edges joins what the topology declares with what was seen.
func (e *env) edges(seen *sightings, runs int) []Edge {
	declared := make(map[[2]string]bool)
	for _, s := range e.Topology.Services {
		for _, call := range s.Calls {
			declared[[2]string{s.Name, call.Service}] = true
		}
	}
	all := maps.Clone(declared)
	for key := range seen.edges {
		all[key] = true
	}
	entries := e.entries(seen)
	var out []Edge
	for key := range all {
		edge := Edge{Caller: key[0], Callee: key[1], Declared: declared[key]}
		if !slices.Contains(e.act.involved, edge.Caller) && edge.Caller != "" && seen.edges[key] == nil {
			continue // beyond what the workload can reach
		}
		e.explain(&edge, seen, entries)
		if at := seen.edges[key]; at != nil {
			edge.Calls = (at.both + at.client + at.server + runs - 1) / runs
			edge.Answers, edge.Failures = at.answers, at.failures
			edge.By = slices.Sorted(maps.Keys(at.by))
		}
		out = append(out, edge)
	}
	order := []EdgeState{EdgeOK, EdgeLeaf, EdgeLost, EdgeBypass, EdgeUnseen}
	slices.SortFunc(out, func(a, b Edge) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)),
			cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	return out
}

// entries are the services that the workload itself calls: those that the topology
// gives no caller, or all that outsiders were seen to call where it gives none.
func (e *env) entries(seen *sightings) map[string]bool {
	out := make(map[string]bool)
	for key := range seen.edges {
		if key[0] == "" && len(e.Topology.Callers(key[1])) == 0 {
			out[key[1]] = true
		}
	}
	if len(out) > 0 {
		return out
	}
	for key := range seen.edges {
		if key[0] == "" {
			out[key[1]] = true
		}
	}
	return out
}

func (e *env) explain(edge *Edge, seen *sightings, entries map[string]bool) {
	at := seen.edges[[2]string{edge.Caller, edge.Callee}]
	_, hasSidecar := e.Topology.Service(edge.Callee)
	switch {
	case at == nil:
		edge.State = EdgeUnseen
		edge.Why = fmt.Sprintf("%s was not reached", edge.Caller)
		edge.Costs = "its calls cannot be faulted, and no guard can wait for them"
		if seen.active[edge.Caller] {
			given := ""
			if seen.edges[[2]string{"", edge.Caller}] == nil {
				given = ", or is not given the one that it forwards" // a client gives all
			}
			edge.Why = fmt.Sprintf("%s was reached, and no call of it to %s carried the trial: either this workload makes none, or %s does not forward %s%s, or its calls do not go through its sidecar",
				edge.Caller, edge.Callee, edge.Caller, e.forgotten(edge.Caller, seen), given)
		}
	case at.both > 0 && at.client == 0:
		edge.State = EdgeOK
	case !hasSidecar:
		edge.State = EdgeLeaf
		if !e.Topology.IsLeaf(edge.Callee) {
			edge.Why = edge.Callee + " is not in the topology: taken for a service without sidecar"
		}
		edge.Costs = "faults are made at the caller, and what the callee does itself is not seen"
	case at.client > 0:
		edge.State = EdgeLost
		edge.Why = fmt.Sprintf("the sidecar of %s sent %d calls of the trial, and that of %s saw %d: something between them takes the trace headers away, or the calls go past the sidecar of %s",
			edge.Caller, at.client+at.both, edge.Callee, at.both, edge.Callee)
		edge.Costs = "every trial would be invalid: declare " + edge.Callee + " a leaf, or repair it"
	case edge.Caller == "" && entries[edge.Callee]:
		edge.State = EdgeOK
	default:
		edge.State = EdgeBypass
		edge.Why = fmt.Sprintf("%s was called within the trial by somebody whose sidecar did not see it: the caller's calls to it do not go through its sidecar", edge.Callee)
		edge.Costs = "evidence does not cross it: guards at one side know nothing of the other, and faults can only be placed at the callee"
	}
}
