package campaign

import (
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sequencefi/sequencefi/controlplane/report"
	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// eventsOf renders a trial's events for reports, with the atoms of the TFICs' guards
// marked where they came true.
func eventsOf(t *trace.Trial, tfics []*tfiv1.Tfic) []*campaignv1.Event {
	atoms := watch(tfics)
	out := make([]*campaignv1.Event, len(t.Events))
	for i := range t.Events {
		e := &t.Events[i]
		out[i] = &campaignv1.Event{
			Op:        e.Op.Proto(),
			K:         e.K,
			Position:  uint32(i + 1),       //nolint:gosec // a trial has fewer
			Cause:     uint32(e.Cause + 1), //nolint:gosec // None is -1
			Time:      timestamppb.New(e.Time),
			Status:    e.Status,
			Outcome:   e.Outcome,
			Delivered: e.Delivered,
			Fired:     e.Fired,
			Call:      strconv.Itoa(e.Call),
			Atoms:     atoms.see(e, &t.Calls[e.Call]),
		}
	}
	return out
}

// watched is an atom and how often its event has occurred.
type watched struct {
	atom *tfiv1.Atom
	seen uint32
}

type watchList []*watched

func watch(tfics []*tfiv1.Tfic) watchList {
	var list watchList
	for _, t := range tfics {
		for _, a := range atomsOf(t.GetGuard()) {
			list = append(list, &watched{atom: a})
		}
	}
	return list
}

// atomsOf returns a guard's atoms, depth first.
func atomsOf(g *tfiv1.Guard) []*tfiv1.Atom {
	switch expr := g.GetExpr().(type) {
	case *tfiv1.Guard_Atom:
		return []*tfiv1.Atom{expr.Atom}
	case *tfiv1.Guard_After:
		return atomsOf(expr.After)
	case *tfiv1.Guard_AllOf:
		var out []*tfiv1.Atom
		for _, inner := range expr.AllOf.GetGuards() {
			out = append(out, atomsOf(inner)...)
		}
		return out
	}
	return nil
}

// see counts an event and returns the atoms that it made true.
func (l watchList) see(e *trace.Event, c *trace.Call) []string {
	var out []string
	for _, w := range l {
		if !matches(w.atom.GetEvent(), e, c) {
			continue
		}
		if w.seen++; w.seen == w.atom.GetCount() {
			out = append(out, report.Atom(w.atom))
		}
	}
	return out
}

// matches says whether an event is one of those that a predicate counts. Headers are
// not reported, so an identity by header is taken to match.
func matches(p *tfiv1.EventPredicate, e *trace.Event, c *trace.Call) bool {
	op := p.GetOp()
	if op.GetObserver() != e.Op.Observer || op.GetRole() != e.Op.Role || op.GetPeer() != e.Op.Peer ||
		op.GetApi() != e.Op.API || op.GetPhase() != e.Op.Phase || p.GetDelivered() != e.Delivered {
		return false
	}
	switch o := p.GetOutcome(); o {
	case tfiv1.Outcome_OUTCOME_UNSPECIFIED:
	case tfiv1.Outcome_OUTCOME_STATUS:
		if e.Status != p.GetStatus() {
			return false
		}
	default:
		if e.Outcome != o {
			return false
		}
	}
	for _, identity := range p.GetIdentities() {
		if !identified(identity, c.Path) {
			return false
		}
	}
	return true
}

func identified(identity *tfiv1.Identity, raw string) bool {
	path, query, _ := strings.Cut(raw, "?")
	var value string
	switch source := identity.GetSource().(type) {
	case *tfiv1.Identity_Path:
		value = path
	case *tfiv1.Identity_Query:
		values, _ := url.ParseQuery(query) // what can be read of it is returned even so
		value = values.Get(source.Query)
	default:
		return true
	}
	if prefix, ok := identity.GetMatch().(*tfiv1.Identity_Prefix); ok {
		return strings.HasPrefix(value, prefix.Prefix)
	}
	return value == identity.GetExact()
}
