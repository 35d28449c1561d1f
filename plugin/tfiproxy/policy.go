package tfiproxy

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// errOtherService says that a policy is meant for another service's sidecars.
var errOtherService = errors.New("policy of another service")

// errOtherVersion says that a policy is not the one that it was announced as. In force, it
// could not be acknowledged: nobody would know under which policy trials are.
var errOtherVersion = errors.New("policy of another version")

// gate is what the data path asks first. There is one for each policy with
// activations, and none otherwise: then no message is looked at.
type gate struct {
	engine *tfi.Engine
	// header is the policy's own trace header.
	header string
	// name is header as HTTP/2 encodes it; nil: none.
	name *hpackName
	// edges: requests without trace headers may be taken into a trial.
	edges bool
}

// wants reports whether a request may belong to a trial.
func (g *gate) wants(h *headFields) bool {
	return h.marked || g.edges && !h.traced
}

// policies holds the policy in force and takes it away when it lapses.
type policies struct {
	gate    atomic.Pointer[gate]
	service string
	store   *tfi.Memory
	metrics *metrics
	report  *reporter
	log     *slog.Logger
	now     func() time.Duration

	mu      sync.Mutex
	fence   tfi.Fence
	current *tfi.Policy // nil: none
	ending  []ending
	lapses  time.Duration // when the policy lapses; 0: never
	// refused are the trials of the policy in force whose problem has been reported.
	refused map[tfi.Key]bool
}

// ending are the trials of a policy that its successor has no more. Their last
// events may still come, so they are reported a little later.
type ending struct {
	due    time.Duration
	policy *tfi.Policy
	next   *tfi.Policy
}

// endGrace is how long after a key has gone its last events may come.
const endGrace = 300 * time.Millisecond

// apply puts a serialised policy in force for ttl from now; 0 means for ever.
// One that cannot be used leaves the one before in force, for no longer than it had; that
// is counted and reported.
//
// Errors: [tfi.ErrPolicy], errOtherService.
func (s *policies) apply(b []byte, ttl time.Duration) error {
	p, err := tfi.ParsePolicy(b)
	return s.accept(p, err, ttl)
}

// applyAs applies a policy that must have the version. Errors: apply's, errOtherVersion.
func (s *policies) applyAs(version string, b []byte, ttl time.Duration) error {
	p, err := tfi.ParsePolicy(b)
	if err == nil && p.Version != version {
		err = fmt.Errorf("%w: %q came as %q", errOtherVersion, p.Version, version)
	}
	return s.accept(p, err, ttl)
}

// accept puts p in force unless err, or what it finds, says why not.
func (s *policies) accept(p *tfi.Policy, err error, ttl time.Duration) error {
	if err == nil && p.Service != s.service {
		err = fmt.Errorf("%w: %q, this is %q", errOtherService, p.Service, s.service)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if err != nil {
		s.metrics.inc(metricBadPolicy)
		if s.current != nil {
			s.report.add(&tfi.Record{
				Kind: tfi.KindProblem, Problem: tfi.ProblemPolicy,
				Service: s.current.Service, PolicyVersion: s.current.Version,
			}, now)
		}
		return err
	}
	s.metrics.inc(metricPolicies)
	s.prolong(now, ttl)
	s.set(p, now)
	return nil
}

// keep prolongs what is in force; the plane has been heard of.
func (s *policies) keep(ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prolong(s.now(), ttl)
}

func (s *policies) prolong(now, ttl time.Duration) {
	s.lapses = 0
	if ttl > 0 {
		s.lapses = now + ttl
	}
}

// clear takes the policy away.
func (s *policies) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(nil, s.now())
}

func (s *policies) set(p *tfi.Policy, now time.Duration) {
	if s.current != nil {
		s.ending = append(s.ending, ending{due: now + endGrace, policy: s.current, next: p})
	}
	s.current, s.refused = p, nil
	if p == nil {
		// The fence stays: the same keys, read again, live no longer for that.
		s.gate.Store(nil)
		return
	}
	s.fence.Admit(p, now)
	s.report.to(p)
	if len(p.Activations) == 0 {
		s.gate.Store(nil)
		return
	}
	g := &gate{
		engine: tfi.NewEngine(p, s.store, tfi.Options{Observer: s.metrics, Now: now, Fence: &s.fence}),
		header: p.TraceHeader,
		edges:  p.HasEdges(),
	}
	if g.header != "" {
		name := newHpackName(g.header)
		g.name = &name
	}
	s.gate.Store(g)
}

// tick does what is due: the outer fence, and the reports of trials that are over.
func (s *policies) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.lapses != 0 && now >= s.lapses {
		s.lapses = 0
		if s.current != nil {
			s.metrics.inc(metricPolicyLapsed)
			s.log.Warn("policy dropped: the control plane was not heard of for its TTL", "version", s.current.Version)
			s.set(nil, now)
		}
	}
	for len(s.ending) > 0 && s.ending[0].due <= now {
		s.end(&s.ending[0], now)
		s.ending = s.ending[1:]
	}
	if len(s.ending) == 0 {
		s.ending = nil
	}
	if s.store.Len() > 0 {
		s.store.Sweep(now)
	}
}

// end reports the final counts of trials that are over.
func (s *policies) end(e *ending, now time.Duration) {
	live := func(k tfi.Key) bool { return s.current != nil && s.current.Has(k) }
	if e.next != nil && len(e.next.Activations) > 0 {
		next := live
		live = func(k tfi.Key) bool { return e.next.Has(k) || next(k) }
	}
	s.store.End(live, func(state *tfi.State) {
		if state.ID().Trace != ([16]byte{}) {
			return // one of thousands of a load
		}
		r := state.End()
		r.Service, r.PolicyVersion = e.policy.Service, e.policy.Version
		s.report.add(&r, now)
	})
}

// version of the policy in force; empty: there is none.
func (s *policies) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return ""
	}
	return s.current.Version
}

// refuse reports a trial that could not be activated here, once a policy.
func (s *policies) refuse(r *tfi.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[r.Key] {
		return
	}
	if s.refused == nil {
		s.refused = map[tfi.Key]bool{}
	}
	s.refused[r.Key] = true
	s.report.add(r, s.now())
}

// policyState is what the admin port shows.
type policyState struct {
	Service     string   `json:"service"`
	Version     string   `json:"version,omitempty"`
	Activations []string `json:"activations"`
	LapsesIn    string   `json:"lapses_in,omitempty"`
}

func (s *policies) state() policyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := policyState{Service: s.service, Activations: []string{}}
	if s.current == nil {
		return st
	}
	now := s.now()
	st.Version = s.current.Version
	for _, a := range s.current.Activations {
		if d, ok := s.fence.Deadline(a.Key); ok && d > now {
			st.Activations = append(st.Activations, a.Key.String())
		}
	}
	if s.lapses != 0 {
		st.LapsesIn = (s.lapses - now).Round(time.Millisecond).String()
	}
	return st
}
