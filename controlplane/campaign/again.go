package campaign

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// mending remembers where callers made a call again at which a fault had fired.
//
// Whether they do may depend on what came before: an HTTP client repeats by itself a call
// that breaks a connection which it had used before, and does not where the connection was
// new. So an abort may be mended in one run and not in the next, by the same system.
type mending struct {
	// runs in which it happened, by trial id, and the kinds of breaks, and the very faults,
	// after which it made the outcome a clean one.
	runs, breaks, faults map[string]bool
}

func newMending() mending {
	return mending{runs: make(map[string]bool), breaks: make(map[string]bool), faults: make(map[string]bool)}
}

// see takes note of a run in which a call was made again.
func (m *mending) see(t *campaignv1.Trial) {
	m.runs[t.GetId()] = true
	if isClean(t) {
		m.breaks[breakOf(t.GetTfics())] = true
		m.faults[faultsOf(t.GetTfics())] = true
	}
}

// mends says whether the same break of the same call was mended in another run though it was
// not in t. What became of another call of the op tells nothing: a caller may repeat one on
// purpose and not the other.
func (m *mending) mends(t *campaignv1.Trial) bool {
	return breakOf(t.GetTfics()) != "" && !m.runs[t.GetId()] && m.faults[faultsOf(t.GetTfics())]
}

// faultsOf names what faults do and when, whatever they are called.
func faultsOf(tfics []*tfiv1.Tfic) string {
	var out []byte
	for _, t := range tfics {
		t = proto.CloneOf(t)
		t.Id = ""
		// Without an error: it was sent to sidecars in this form.
		encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(t)
		out = append(protowire.AppendVarint(out, uint64(len(encoded))), encoded...)
	}
	return string(out)
}

// breakOf names where faults break connections, whichever of several calls they strike; empty:
// they break none.
func breakOf(tfics []*tfiv1.Tfic) string {
	var out []string
	for _, t := range tfics {
		switch t.GetFault().GetKind().(type) {
		case *tfiv1.Fault_Abort, *tfiv1.Fault_Drop:
			at := t.GetTarget()
			out = append(out, fmt.Sprintf("%s %s %s %v %T", at.GetCaller(), at.GetCallee(), at.GetApi(), at.GetPhase(), t.GetFault().GetKind()))
		}
	}
	return strings.Join(out, "\n")
}

// calledAgain says which call a caller made again after a fault had fired at it; empty: none.
func (e *env) calledAgain(t *trace.Trial) string {
	for i := range t.Events {
		if t.Events[i].Fired == "" {
			continue
		}
		c := &t.Calls[t.Events[i].Call]
		again := t.Repeats(t.Events[i].Call)
		// Equal calls that clean runs have as well are no repeats.
		if len(again) == 0 || countOf(t, c) <= e.usual(c) {
			continue
		}
		return fmt.Sprintf("its caller made %s again, as call %d", c.Describe(), t.Calls[again[0]].K)
	}
	return ""
}

// usual is the largest number of calls like c in a clean run.
func (e *env) usual(c *trace.Call) int {
	most := 0
	for _, a := range e.clean {
		most = max(most, countOf(a.recording.trial, c))
	}
	return most
}

func countOf(t *trace.Trial, like *trace.Call) int {
	n := 0
	for i := range t.Calls {
		if c := &t.Calls[i]; c.Caller == like.Caller && c.Callee == like.Callee && c.API == like.API {
			n++
		}
	}
	return n
}
