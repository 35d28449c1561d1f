package trace

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/sequencefi/sequencefi/plugin/tfi/span"
)

// ErrNoEvents says that spans were read and none of them tells of a call.
var ErrNoEvents = errors.New("no span of a call: want a sidecar's spans, or client and server spans of applications")

// located is a span with its resource's attributes.
type located struct {
	span     *tracev1.Span
	attrs    attributes
	resource attributes
}

// Trials turns spans into one trial for each activation key, or without sidecar
// spans for each trace id, sorted by id. It keeps no reference to td. Where
// sidecars reported, application spans are left aside.
// Errors: [ErrSpan], [ErrCausality], [ErrNoEvents].
func Trials(td *tracev1.TracesData) ([]*Trial, error) {
	groups := map[string][]located{}
	apps := map[string][]located{}
	for _, l := range flatten(td) {
		if isSidecar(l.attrs) {
			key := l.attrs[span.Key].GetStringValue()
			groups[key] = append(groups[key], l)
			continue
		}
		id := hex.EncodeToString(l.span.GetTraceId())
		apps[id] = append(apps[id], l)
	}
	build := fromSidecars
	if len(groups) == 0 {
		groups, build = apps, fromApplications
	}
	var out []*Trial
	for _, id := range sortedKeys(groups) {
		t, err := build(id, groups[id])
		if err != nil {
			return nil, err
		}
		if len(t.Events) > 0 {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, ErrNoEvents
	}
	return out, nil
}

// Build turns the spans of one trial into a [Trial]. With an id, the activation
// key in hex of either case, spans of other keys are left aside; without one all spans are
// taken to belong together, and the id is the lowest trace id. Of a trial of
// which nothing has arrived yet it returns an empty Trial, so that one who waits
// can ask again. It keeps no reference to td.
// Errors: [ErrSpan], [ErrCausality].
func Build(id string, td *tracev1.TracesData) (*Trial, error) {
	id = strings.ToLower(id)
	var sidecars, apps []located
	for _, l := range flatten(td) {
		switch {
		case !isSidecar(l.attrs):
			apps = append(apps, l)
		case id == "" || l.attrs[span.Key].GetStringValue() == id:
			sidecars = append(sidecars, l)
		}
	}
	if len(sidecars) > 0 {
		if id == "" {
			id = sidecars[0].attrs[span.Key].GetStringValue()
		}
		return fromSidecars(id, sidecars)
	}
	if id != "" || len(apps) == 0 {
		return &Trial{ID: id}, nil
	}
	t, err := fromApplications("", apps)
	if err == nil && len(t.TraceIDs) > 0 {
		t.ID = t.TraceIDs[0]
	}
	return t, err
}

func flatten(td *tracev1.TracesData) []located {
	var out []located
	for _, rs := range td.GetResourceSpans() {
		res := readAttributes(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				out = append(out, located{s, readAttributes(s.GetAttributes()), res})
			}
		}
	}
	return out
}

func fromSidecars(id string, spans []located) (*Trial, error) {
	t := &Trial{ID: id, Ended: map[string]uint64{}}
	byName := map[eventName]*observation{}
	ids := map[string]bool{}
	services := map[string]string{}
	for _, l := range spans {
		ids[hex.EncodeToString(l.span.GetTraceId())] = true
		f := &fields{span: spanRef(l.span), m: l.attrs}
		switch kind := f.text(span.Kind); kind {
		case "call", "decision":
			o, err := readSidecar(l.span, l.attrs)
			if err != nil {
				return nil, err
			}
			services[o.instance] = o.service
			name := eventName{o.instance, o.req.seq}
			if have := byName[name]; have != nil {
				have.absorb(o)
			} else {
				byName[name] = o
			}
		case "trial_end":
			in := f.need(span.Instance)
			services[in] = f.text(span.Service)
			t.Ended[in] = max(t.Ended[in], uint64(f.number(span.Events, maxSeq)))
		case "problem":
			t.Problems = append(t.Problems, Problem{f.text(span.Service), f.text(span.Instance), f.text(span.Problem)})
		default:
			f.fail(span.Kind, `"call", "decision", "trial_end" or "problem"`)
		}
		if f.err != nil {
			return nil, f.err
		}
	}
	obs := make([]*observation, 0, len(byName))
	for _, o := range byName {
		obs = append(obs, o)
	}
	t.TraceIDs = sortedKeys(ids)
	slices.SortFunc(t.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.What, b.What))
	})
	t.Problems = slices.Compact(t.Problems)
	if err := t.assemble(obs); err != nil {
		return nil, err
	}
	t.findGaps(services)
	return t, nil
}

// assemble makes calls and ordered events of observations.
func (t *Trial) assemble(obs []*observation) error {
	// Nothing may depend on the order in which reports arrived.
	slices.SortFunc(obs, func(a, b *observation) int {
		return cmp.Or(cmp.Compare(a.instance, b.instance), cmp.Compare(a.req.seq, b.req.seq))
	})
	g := newGraph(obs)
	order, err := g.order(t.Assumed)
	if err != nil {
		return err
	}
	t.Warnings = append(t.Warnings, g.warnings...)
	t.Events = make([]Event, len(order))
	position := make([]int, len(g.nodes))
	for i, n := range order {
		position[n] = i
	}
	for i, n := range order {
		t.Events[i] = g.event(n, position)
	}
	t.makeCalls(obs, g, position)
	t.findUnmatched(g, position)
	return nil
}

// rankMissing gives calls without a rank one by the order of their requests, as
// the caller's sidecar would have.
func (t *Trial) rankMissing() {
	type edge struct{ caller, callee, api string }
	order := make([]int, len(t.Calls))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.Calls[a].first(), t.Calls[b].first()) })
	next := map[edge]uint32{}
	for _, i := range order {
		c := &t.Calls[i]
		e := edge{c.Caller, c.Callee, c.API}
		if c.K == 0 {
			c.K = next[e] + 1
			for _, ev := range [...]int{c.ClientReq, c.ServerReq, c.ServerResp, c.ClientResp, c.Delivered} {
				if ev != None {
					t.Events[ev].K = c.K
				}
			}
		}
		next[e] = max(next[e], c.K)
	}
}

// first returns the index of the call's first observed event.
func (c *Call) first() int {
	if c.ClientReq != None {
		return c.ClientReq
	}
	return c.ServerReq
}

// Describe names a call for people.
func (c *Call) Describe() string {
	caller := c.Caller
	if caller == "" {
		caller = "outside"
	}
	return fmt.Sprintf("%s -> %s %s (call %d)", caller, c.Callee, c.API, c.K)
}
