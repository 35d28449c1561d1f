package search

import (
	"cmp"
	"slices"
	"strings"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/lineage"
	"github.com/sequencefi/sequencefi/solver/replay"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// Names of the guard variants, which are those of the patterns.
const (
	// PatternUnguarded fires at the call of the given rank, whatever came before.
	PatternUnguarded = "unguarded"
	// PatternPostEffect fires once the callee has succeeded and before its caller
	// hears of it.
	PatternPostEffect = "post-effect"
	// PatternKOfN fires at the k-th of several calls of one op.
	PatternKOfN = "k-of-n"
	// PatternKOfNPostEffect is both.
	PatternKOfNPostEffect = "k-of-n, post-effect"
)

// universe is what clean runs tell about the space of faults.
type universe struct {
	// edges in order of first appearance, without the client's own calls.
	edges []edge
	info  map[edge]*edgeInfo
	// predicates that atoms may count: those that occur in every clean run.
	predicates []replay.Predicate
	// hops between services, along calls in either direction.
	hops map[string]map[string]int
}

// edgeInfo is what clean runs show of an edge.
type edgeInfo struct {
	order int
	// calls is the largest number of calls in a run.
	calls int
	// client and server: some sidecar of that end saw all calls.
	client, server bool
	// succeeds: every answer was a success.
	succeeds bool
	grpc     bool
	answer   tfiv1.AnswerKind
}

func newUniverse(clean []*execution) *universe {
	u := &universe{info: map[edge]*edgeInfo{}, hops: map[string]map[string]int{}}
	presence := map[replay.Predicate]int{}
	near := map[string]map[string]bool{}
	kinds := map[edge][]trace.Answer{}
	for _, x := range clean {
		for p := range predicatesOf(x.trial) {
			presence[p]++
		}
		for i := range x.trial.Calls {
			c := &x.trial.Calls[i]
			e := edgeOf(c)
			connect(near, e.caller, e.callee)
			if e.caller == "" {
				continue
			}
			in := u.info[e]
			if in == nil {
				in = &edgeInfo{order: len(u.edges), client: true, server: true, succeeds: true}
				u.info[e] = in
				u.edges = append(u.edges, e)
			}
			in.calls = max(in.calls, x.count[e])
			in.client = in.client && c.ClientReq != trace.None
			in.server = in.server && c.ServerReq != trace.None
			in.grpc = in.grpc || c.GRPC
			in.succeeds = in.succeeds && succeeded(x.trial, c)
			kinds[e] = append(kinds[e], c.Answer)
		}
	}
	for e, in := range u.info {
		in.answer = answerKind(in.grpc, kinds[e])
	}
	for p, n := range presence {
		if n == len(clean) {
			u.predicates = append(u.predicates, p)
		}
	}
	slices.SortFunc(u.predicates, replay.Compare)
	for s := range near {
		u.hops[s] = distances(near, s)
	}
	return u
}

func connect(near map[string]map[string]bool, a, b string) {
	for _, pair := range [...][2]string{{a, b}, {b, a}} {
		if near[pair[0]] == nil {
			near[pair[0]] = map[string]bool{}
		}
		near[pair[0]][pair[1]] = true
	}
}

// distances is a breadth-first search. The client is no way through.
func distances(near map[string]map[string]bool, from string) map[string]int {
	out := map[string]int{from: 0}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == "" {
			continue
		}
		for next := range near[queue[0]] {
			if _, seen := out[next]; !seen {
				out[next] = out[queue[0]] + 1
				queue = append(queue, next)
			}
		}
	}
	return out
}

// predicatesOf yields what a trial's events could be counted as.
func predicatesOf(t *trace.Trial) map[replay.Predicate]bool {
	out := map[replay.Predicate]bool{}
	for i := range t.Events {
		e := &t.Events[i]
		out[replay.Predicate{Op: e.Op, Delivered: e.Delivered}] = true
		if e.Op.Phase == tfiv1.Phase_PHASE_RESP && !e.Delivered {
			out[replay.Predicate{Op: e.Op, Outcome: e.Outcome}] = true
		}
	}
	return out
}

func succeeded(t *trace.Trial, c *trace.Call) bool {
	for _, i := range [...]int{c.ClientResp, c.ServerResp} {
		if i != trace.None {
			return t.Events[i].Outcome == tfiv1.Outcome_OUTCOME_SUCCESS
		}
	}
	return false
}

// maxUnaryBytes bounds what a sidecar may hold back until the callee is done.
const maxUnaryBytes = 256 << 10

// streamTypes are content types whose answers are read while they are written.
var streamTypes = []string{"text/event-stream", "application/x-ndjson", "application/stream+json", "multipart/"}

// answerKind tells from clean answers whether one may be held back. gRPC's are
// decided at their trailers, so their kind does not matter.
func answerKind(grpc bool, answers []trace.Answer) tfiv1.AnswerKind {
	if grpc {
		return tfiv1.AnswerKind_ANSWER_KIND_UNSPECIFIED
	}
	seen := false
	for _, a := range answers {
		if !a.Seen {
			continue
		}
		seen = true
		if a.Bytes > maxUnaryBytes || isStream(a.ContentType) {
			return tfiv1.AnswerKind_ANSWER_KIND_STREAMING
		}
	}
	if !seen {
		return tfiv1.AnswerKind_ANSWER_KIND_UNSPECIFIED
	}
	return tfiv1.AnswerKind_ANSWER_KIND_UNARY
}

func isStream(contentType string) bool {
	t := strings.ToLower(strings.TrimSpace(contentType))
	return slices.ContainsFunc(streamTypes, func(s string) bool { return strings.HasPrefix(t, s) })
}

// role returns the end at which the placement makes the fault, or false if no
// sidecar stands there or at the other end.
func (in *edgeInfo) role(p tfiv1.Placement) (tfiv1.Role, bool) {
	callee := p == tfiv1.Placement_PLACEMENT_CALLEE
	switch {
	case in.server && (callee || !in.client):
		return tfiv1.Role_ROLE_SERVER, true
	case in.client:
		return tfiv1.Role_ROLE_CLIENT, true
	}
	return tfiv1.Role_ROLE_UNSPECIFIED, false
}

// variant names the pattern that faults of phase p on the edge are tried in.
func (in *edgeInfo) variant(p tfiv1.Phase) string {
	effect := p == tfiv1.Phase_PHASE_RESP && in.succeeds && in.server
	switch {
	case in.calls > 1 && effect:
		return PatternKOfNPostEffect
	case in.calls > 1:
		return PatternKOfN
	case effect:
		return PatternPostEffect
	}
	return PatternUnguarded
}

// compareOccurrences orders calls by the first appearance of their edges.
func (u *universe) compareOccurrences(a, b lineage.Occurrence) int {
	order := func(o lineage.Occurrence) int {
		if in := u.info[occurrenceEdge(o)]; in != nil {
			return in.order
		}
		return len(u.edges)
	}
	return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.K, b.K))
}
