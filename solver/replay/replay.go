package replay

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
	"github.com/sequencefi/sequencefi/solver/trace"
)

// ErrDisagree says that the engine saw other events than the trace tells of, so
// that nothing can be said of what was known.
var ErrDisagree = errors.New("replay disagrees with the trace")

// key of the replayed trial; replays never leave the process.
var key = tfi.Key{'r', 'e', 'p', 'l', 'a', 'y', 1}

// traceparent puts a message into that trial.
var traceparent = "00-" + tfi.NewTraceID(key, 1).String() + "-0000000000000001-01"

// limits are those of a sidecar that has all the room there is.
var limits = tfi.Limits{
	Predicates: 1 << 20, TFICs: 1 << 16, EvidenceBytes: 1 << 28,
	Instances: 1 << 16, Ops: 1 << 16, Requests: 1 << 20,
}

// Replay runs t through the engine and tells what was known at each event, for
// all predicates, which must differ from each other. It draws no random numbers: equal
// trials give equal knowledge. Errors: [ErrDisagree].
func Replay(t *trace.Trial, predicates []Predicate) (*Knowledge, error) {
	k := newKnowledge(len(t.Events), len(predicates))
	if len(predicates) == 0 {
		return k, nil
	}
	m := newMesh(t)
	m.name(predicates)
	m.refuse()
	for i := range t.Events {
		counts := k.At(i)
		if err := m.play(i, counts); err != nil {
			return nil, err
		}
		e := &t.Events[i]
		for x := range predicates {
			if predicates[x].Matches(e) && !m.grew(e.Instance, x, counts[x]) {
				return nil, fmt.Errorf("%w: event %d (%s, instance %s, number %d) was not counted", ErrDisagree, i, e.Op, e.Instance, e.Seq)
			}
		}
		m.remember(e.Instance, counts)
	}
	return k, nil
}

// mesh is a sidecar for each instance of the trace, and the messages under way.
//
// Names are replaced by short ones on the way in: what is known does not depend
// on them, and so none needs to be forged for a path that folds into its api.
type mesh struct {
	trial    *trace.Trial
	services names
	apis     names
	tfics    []*tfiv1.Tfic
	sidecars map[string]*sidecar
	policies map[string]*tfi.Policy // by service
	calls    map[int]*tfi.Call      // by the index of their request's event
	sent     map[int]string         // evidence that left with event
	refused  map[int]bool           // requests that their callee's sidecar answered
	unknown  map[int]trace.Receive  // received by event from a sender that did not report
	standIn  map[string]string      // evidence of senders that did not report
	last     map[string][]uint32    // counts at the instance's last event
	strikes  []Strike
	now      time.Duration
}

// sidecar is one instance.
type sidecar struct {
	engine *tfi.Engine
	store  *tfi.Memory
}

// names gives short names in order of first use.
type names struct {
	prefix, suffix string
	short          map[string]string
	list           []string
}

func (n *names) of(s string) string {
	short, ok := n.short[s]
	if !ok {
		short = n.prefix + strconv.Itoa(len(n.list)) + n.suffix
		n.short[s] = short
		n.list = append(n.list, short)
	}
	return short
}

// api is the name by which the engine knows an api: its path without the first /.
func (m *mesh) api(s string) string { return m.apis.of(s)[1:] }

// service leaves the outside of the mesh without a name.
func (m *mesh) service(s string) string {
	if s == "" {
		return ""
	}
	return m.services.of(s)
}

func newMesh(t *trace.Trial) *mesh {
	m := &mesh{
		trial:    t,
		services: names{prefix: "s", short: map[string]string{}},
		apis:     names{prefix: "/op.S", suffix: "/M", short: map[string]string{}},
		sidecars: map[string]*sidecar{}, policies: map[string]*tfi.Policy{},
		calls: map[int]*tfi.Call{}, sent: map[int]string{}, refused: map[int]bool{}, unknown: map[int]trace.Receive{},
		standIn: map[string]string{}, last: map[string][]uint32{},
	}
	for _, r := range t.UnmatchedReceives {
		m.unknown[r.Event] = r
	}
	// Names of all services must be known before the first policy is made.
	for i := range t.Events {
		m.service(t.Events[i].Op.Observer)
		m.service(t.Events[i].Op.Peer)
	}
	return m
}

// name adds TFICs that never match: they are there to name the predicates.
func (m *mesh) name(predicates []Predicate) {
	for chunk := range slices.Chunk(predicates, 200) {
		all := &tfiv1.AllOf{}
		for _, p := range chunk {
			e := p.Proto()
			m.rename(e.GetOp())
			all.Guards = append(all.Guards, &tfiv1.Guard{Expr: &tfiv1.Guard_Atom{Atom: &tfiv1.Atom{Event: e, Count: 1}}})
		}
		m.tfics = append(m.tfics, &tfiv1.Tfic{
			Id:     "names-" + strconv.Itoa(len(m.tfics)),
			Target: &tfiv1.StaticConfiguration{Caller: "never", Callee: "never", Api: "never.Never/Never", Phase: tfiv1.Phase_PHASE_REQ},
			Guard:  &tfiv1.Guard{Expr: &tfiv1.Guard_AllOf{AllOf: all}},
			Fault:  harmless,
		})
	}
}

// refuse adds TFICs by which callees' sidecars answer the requests that they have
// answered in the trace, since what they knew then went along. A header that no
// application sends tells these requests from others.
func (m *mesh) refuse() {
	answered := map[int]bool{}
	for i := range m.trial.Events {
		e := &m.trial.Events[i]
		if e.Op.Role == tfiv1.Role_ROLE_SERVER && e.Request != i {
			answered[e.Request] = true
		}
	}
	seen := map[trace.Op]bool{}
	for i := range m.trial.Events {
		cause := m.trial.Events[i].Cause
		if m.trial.Events[i].Request == i || cause == trace.None || answered[cause] {
			continue
		}
		op := m.trial.Events[cause].Op
		if op.Role != tfiv1.Role_ROLE_SERVER || op.Phase != tfiv1.Phase_PHASE_REQ {
			continue
		}
		m.refused[cause] = true
		if seen[op] {
			continue
		}
		seen[op] = true
		m.tfics = append(m.tfics, &tfiv1.Tfic{
			Id: "refusal-" + strconv.Itoa(len(m.tfics)),
			Target: &tfiv1.StaticConfiguration{
				Caller: m.service(op.Peer), Callee: m.service(op.Observer), Api: m.api(op.API),
				Phase: tfiv1.Phase_PHASE_REQ, Placement: tfiv1.Placement_PLACEMENT_CALLEE,
				Identities: []*tfiv1.Identity{{
					Source: &tfiv1.Identity_Header{Header: refusal}, Match: &tfiv1.Identity_Exact{Exact: "1"},
				}},
			},
			Fault:         &tfiv1.Fault{Kind: &tfiv1.Fault_Error{Error: &tfiv1.Error{}}},
			MaxInjections: valid.Unlimited,
		})
	}
}

// refusal is the header of requests that their callee's sidecar answers.
const refusal = "x-refused"

// harmless is a fault that leaves a call as it is.
var harmless = &tfiv1.Fault{Kind: &tfiv1.Fault_Delay{Delay: &tfiv1.Delay{
	Distribution: &tfiv1.Delay_Fixed{Fixed: durationpb.New(time.Nanosecond)},
}}}

// rename gives an op the mesh's short names.
func (m *mesh) rename(op *tfiv1.Op) {
	op.Observer, op.Peer, op.Api = m.service(op.GetObserver()), m.service(op.GetPeer()), m.api(op.GetApi())
}

// sidecar returns the instance's, started when first needed.
func (m *mesh) sidecar(service, instance string) (*sidecar, error) {
	if s := m.sidecars[instance]; s != nil {
		return s, nil
	}
	p, err := m.policy(service)
	if err != nil {
		return nil, err
	}
	tag := uint64(len(m.sidecars) + 1)
	s := &sidecar{store: tfi.NewMemory(1)}
	s.engine = tfi.NewEngine(p, s.store, tfi.Options{Rand: func() uint64 { return tag }})
	m.sidecars[instance] = s
	return s, nil
}

func (m *mesh) policy(service string) (*tfi.Policy, error) {
	if p := m.policies[service]; p != nil {
		return p, nil
	}
	a := &tfiv1.Activation{Key: key[:], Tfics: m.tfics, Remaining: durationpb.New(time.Hour)}
	policy := &tfiv1.Policy{Service: m.service(service), Version: "replay", Activations: []*tfiv1.Activation{a}}
	for _, name := range m.services.list {
		a.Services = append(a.Services, name)
		policy.Peers = append(policy.Peers, &tfiv1.Peer{Service: name, Clusters: []string{name}})
	}
	b, err := proto.Marshal(policy)
	if err != nil {
		return nil, fmt.Errorf("policy for a replay: %w", err)
	}
	p, err := tfi.ParsePolicyWithin(b, limits)
	if err != nil {
		return nil, fmt.Errorf("policy for a replay: %w", err)
	}
	m.policies[service] = p
	return p, nil
}

// headers of a replayed message.
type headers struct {
	evidence string
	refused  bool
}

// Header implements [tfi.Headers].
func (h headers) Header(name string) (string, bool) {
	switch name {
	case "traceparent":
		return traceparent, true
	case tfi.EvidenceHeader:
		return h.evidence, h.evidence != ""
	case refusal:
		return "1", h.refused
	}
	return "", false
}

// play hands event i to its sidecar and writes what is known then to counts.
func (m *mesh) play(i int, counts []uint32) error {
	s, err := m.judge(i)
	if err != nil {
		return err
	}
	s.store.View(tfi.StateID{Key: key}, func(state *tfi.State) {
		for x := range counts {
			counts[x] = uint32(min(state.Known().Sum(x), 1<<32-1))
		}
	})
	return nil
}

// judge hands event i to its sidecar, which it returns.
func (m *mesh) judge(i int) (*sidecar, error) {
	e := &m.trial.Events[i]
	s, err := m.sidecar(e.Op.Observer, e.Instance)
	if err != nil {
		return nil, err
	}
	h, err := m.received(i)
	if err != nil {
		return nil, err
	}
	h.refused = m.refused[i]
	m.now++
	call := m.calls[e.Request]
	var d tfi.Decision
	switch {
	case e.Request == i:
		call = &tfi.Call{}
		m.calls[i] = call
		d = s.engine.Request(call, m.request(e, h))
		m.sent[i] = string(d.Evidence)
	case call == nil:
		return nil, fmt.Errorf("%w: event %d comes before its request", ErrDisagree, i)
	case e.Delivered:
		s.engine.Delivered(call, m.now)
	default:
		d = s.engine.Response(call, &tfi.Response{Status: grpcStatus(e.Outcome), Headers: h, Now: m.now})
		m.sent[i] = string(d.Evidence)
	}
	if !call.Active() {
		return nil, fmt.Errorf("%w: event %d: the engine took no part", ErrDisagree, i)
	}
	if d.Action == tfi.ActionDelay { // harmless, and no refusal
		m.strikes = append(m.strikes, Strike{Event: i, TFIC: d.TFIC.ID})
	}
	return s, nil
}

func (m *mesh) request(e *trace.Event, h headers) *tfi.Request {
	r := &tfi.Request{
		Role: tfi.RoleServer, Method: "POST", Path: m.apis.of(e.Op.API), GRPC: true, Headers: h, Now: m.now,
	}
	if e.Op.Role == tfiv1.Role_ROLE_CLIENT {
		r.Role, r.Cluster = tfi.RoleClient, m.service(e.Op.Peer)
	}
	return r
}

// received returns what came with the message of event i: the evidence of the
// event that sent it. Of a sender that did not report, no more is known than that it
// sent this message, so a sidecar that knows nothing else stands in.
func (m *mesh) received(i int) (headers, error) {
	e := &m.trial.Events[i]
	if e.Cause != trace.None {
		return headers{evidence: m.sent[e.Cause]}, nil
	}
	r, ok := m.unknown[i]
	if !ok || e.Op.Role != tfiv1.Role_ROLE_SERVER || e.Request != i || e.Op.Peer == "" {
		return headers{}, nil
	}
	name := fmt.Sprintf("unreported %s/%d", r.Instance, r.Seq)
	if evidence, ok := m.standIn[name]; ok {
		return headers{evidence: evidence}, nil
	}
	s, err := m.sidecar(e.Op.Peer, name)
	if err != nil {
		return headers{}, err
	}
	m.now++
	d := s.engine.Request(&tfi.Call{}, &tfi.Request{
		Role: tfi.RoleClient, Cluster: m.service(e.Op.Observer), Method: "POST",
		Path: m.apis.of(e.Op.API), GRPC: true, Headers: headers{}, Now: m.now,
	})
	m.standIn[name] = string(d.Evidence)
	return headers{evidence: m.standIn[name]}, nil
}

// grew reports whether the count of predicate x is above that of the instance's
// event before.
func (m *mesh) grew(instance string, x int, count uint32) bool {
	before := m.last[instance]
	return before == nil && count > 0 || before != nil && count > before[x]
}

func (m *mesh) remember(instance string, counts []uint32) { m.last[instance] = counts }

// grpcStatus is a status with the outcome, since all replayed calls are gRPC's.
func grpcStatus(o tfiv1.Outcome) int {
	if o == tfiv1.Outcome_OUTCOME_FAILURE {
		return 14
	}
	return 0
}
