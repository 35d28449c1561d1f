package search

import (
	"fmt"
	"slices"
	"strings"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	solverv1 "github.com/sequencefi/sequencefi/proto/sequencefi/solver/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
	"github.com/sequencefi/sequencefi/solver/replay"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// edge is what calls have in common: who calls what of whom.
type edge struct{ caller, callee, api string }

func edgeOf(c *trace.Call) edge { return edge{c.Caller, c.Callee, c.API} }

func (e edge) at(k uint32) lineage.Occurrence {
	return lineage.Occurrence{Caller: e.caller, Callee: e.callee, API: e.api, K: k}
}

func occurrenceEdge(o lineage.Occurrence) edge { return edge{o.Caller, o.Callee, o.API} }

// execution is one recorded run, clean or with faults.
type execution struct {
	name  string
	trial *trace.Trial
	past  *trace.Past
	calls map[lineage.Occurrence]int
	count map[edge]int
	// byOp are the events of an op, deliveries included, in order.
	byOp map[trace.Op][]int
	// answers are the entry's answers to the client, the last one first.
	answer int
	// fired are the variables whose faults struck, and verdict what came of it.
	fired   []lineage.Variable
	verdict campaignv1.Verdict

	known *replay.Knowledge
}

// Bounds of the memory that the analysis of a run takes, its events times the
// sidecars and event kinds that each may know of, and of all runs that a session
// keeps: 512 MiB and 2 GiB.
const (
	maxCells        = 1 << 27
	maxSessionCells = 1 << 29
)

// cells is the analysis of t in counts of four bytes.
func cells(t *trace.Trial) int {
	instances, ops := map[string]bool{}, map[trace.Op]bool{}
	for i := range t.Events {
		instances[t.Events[i].Instance] = true
		ops[t.Events[i].Op] = true
	}
	return len(t.Events) * (len(instances) + 3*len(ops))
}

// decode reads what a run left behind. Without an id it may be several runs.
func decode(r *solverv1.RecordedTrial) ([]*trace.Trial, error) {
	list, err := decodeAny(r)
	for _, t := range list {
		if err := analysable(t); err != nil {
			return nil, err
		}
	}
	return list, err
}

// analysable returns ErrTooLarge if t is.
func analysable(t *trace.Trial) error {
	if n := cells(t); n > maxCells {
		return fmt.Errorf("%w: its %d events take %d counts, the most is %d", ErrTooLarge, len(t.Events), n, maxCells)
	}
	return nil
}

func decodeAny(r *solverv1.RecordedTrial) ([]*trace.Trial, error) {
	td := &tracev1.TracesData{}
	if err := proto.Unmarshal(r.GetTracesData(), td); err != nil {
		return nil, fmt.Errorf("%w: traces_data: %v", trace.ErrFormat, err) //nolint:errorlint // The cause is no error of ours to test for.
	}
	if r.GetId() == "" {
		return trace.Trials(td)
	}
	t, err := trace.Build(r.GetId(), td)
	if err != nil {
		return nil, err
	}
	return []*trace.Trial{t}, nil
}

func newExecution(name string, t *trace.Trial) *execution {
	x := &execution{
		name: name, trial: t, past: t.Past(),
		calls: map[lineage.Occurrence]int{}, count: map[edge]int{}, byOp: map[trace.Op][]int{},
		answer: trace.None,
	}
	for i := range t.Events {
		x.byOp[t.Events[i].Op] = append(x.byOp[t.Events[i].Op], i)
	}
	for i := range t.Calls {
		c := &t.Calls[i]
		e := edgeOf(c)
		x.count[e]++
		if _, taken := x.calls[e.at(c.K)]; !taken {
			x.calls[e.at(c.K)] = i
		}
		// Of a sequence of requests the last answer is what the client ends with.
		if c.Caller == "" && c.ServerResp != trace.None {
			x.answer = max(x.answer, c.ServerResp)
		}
	}
	return x
}

// entries names the client's own calls, in their order.
func (x *execution) entries() string {
	var out []string
	for i := range x.trial.Calls {
		if c := &x.trial.Calls[i]; c.Caller == "" {
			out = append(out, c.Callee+" "+c.API)
		}
	}
	if len(out) == 0 {
		return "no call of a client"
	}
	return strings.Join(out, ", ")
}

// ambiguous lists edges on which two calls have the same rank: several instances
// of the caller rank their own.
func (x *execution) ambiguous() []edge {
	var out []edge
	seen := map[lineage.Occurrence]bool{}
	for i := range x.trial.Calls {
		e := edgeOf(&x.trial.Calls[i])
		o := e.at(x.trial.Calls[i].K)
		if seen[o] && !slices.Contains(out, e) {
			out = append(out, e)
		}
		seen[o] = true
	}
	return out
}

// call returns the call of an occurrence, nil if the run had none.
func (x *execution) call(o lineage.Occurrence) *trace.Call {
	if i, ok := x.calls[o]; ok {
		return &x.trial.Calls[i]
	}
	return nil
}

// target returns the event at which a fault would strike, or trace.None: the run
// has none, or it comes only after the client had its answer.
func (x *execution) target(o lineage.Occurrence, role tfiv1.Role, p tfiv1.Phase) int {
	c := x.call(o)
	if c == nil {
		return trace.None
	}
	i := c.Target(role, p)
	if i == trace.None || (x.answer != trace.None && i != x.answer && x.past.Includes(i, x.answer)) {
		return trace.None
	}
	return i
}

// knowledge replays the run once.
func (x *execution) knowledge(predicates []replay.Predicate) (*replay.Knowledge, error) {
	if x.known == nil {
		k, err := replay.Replay(x.trial, predicates)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
		x.known = k
	}
	return x.known, nil
}
