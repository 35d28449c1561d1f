package ecds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Poll is a question of a sidecar that polls, since it speaks no xDS.
type Poll struct {
	// Service that it stands beside, and its own name among those of the service;
	// required.
	Service, Instance string
	// Proxy and ProxyVersion as in [Sidecar].
	Proxy, ProxyVersion string
	// Holds is the version of the policy in force at the sidecar; empty: none.
	Holds string
	// Refused is the version of a policy that came later and that it could not use,
	// and Reason says why; empty: there is none.
	Refused, Reason string
}

// Told is the answer to a [Poll].
type Told struct {
	// Version of Policy, a serialised sequencefi.tfi.v1.Policy that replaces what the
	// sidecar has; empty: it is told no other. Policy is the plane's, not to be changed.
	Version string
	Policy  []byte
	// Drop: the sidecar is to drop what it has.
	Drop bool
	// TTL is for how long the sidecar may keep what it has after this, from when it hears
	// it; 0: no longer than it was told before.
	TTL time.Duration
}

// Errors of [Server.Poll].
var (
	// ErrPoll says that a poll does not say who asks.
	ErrPoll = errors.New("unusable poll")
	// ErrReplaced says that the same sidecar has polled again: either it gave this poll
	// up, or two sidecars have one name.
	ErrReplaced = errors.New("another poll came under the same service and instance")
)

const (
	// pollGrace is how long a sidecar that has had its answer, or whose poll broke, is
	// taken for connected. It asks again at once, or after a second at most.
	pollGrace = 3 * time.Second
	// maxPollWait bounds how long a poll waits: sidecars take a plane that says nothing for
	// half as long again for dead.
	maxPollWait = 10 * time.Second
	// noTTL is what a plane without TTL tells a sidecar that knows no such thing.
	noTTL = 24 * time.Hour
	// manyConflicts are those that a sidecar cannot have with itself, or with one that it
	// takes over from: two under one name cut each other off about twice a second.
	manyConflicts = 16
	// maxName bounds the names in a poll.
	maxName = 253
	// maxReason bounds the reason in a poll.
	maxReason = 1 << 10
)

// poller is the session of a sidecar that polls. Each poll acknowledges or refuses the
// answer before it, as a request on a stream does; between two the sidecar counts as
// connected for a while. It is guarded by the server's mutex.
type poller struct {
	*session
	asking *question   // the poll under way; nil: none
	idle   *time.Timer // ends the session
	given  string      // version of the policy last given
}

// Poll answers when there is something to tell the sidecar, or after about a third of
// the TTL and ten seconds at most, so that it hears that the plane lives. Asking again acknowledges the answer
// before, or refuses it.
//
// Errors: ErrPoll; ErrReplaced; ErrClosed; ctx's.
func (s *Server) Poll(ctx context.Context, p Poll) (Told, error) {
	if err := p.check(); err != nil {
		return Told{}, err
	}
	x, q, err := s.ask(&p)
	if err != nil {
		return Told{}, err
	}
	defer s.streams.Done()
	timer := time.NewTimer(s.pollWait())
	defer timer.Stop()
	var m message
	answered := true
	select {
	case m = <-q.answer:
	case <-timer.C:
		answered = false
	case <-ctx.Done():
		err = ctx.Err()
	case <-q.replaced:
		err = ErrReplaced
	case <-s.ctx.Done():
		err = ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.asking != q {
		return Told{}, ErrReplaced // the state is the other poll's
	}
	if !answered && x.inFlight != nil {
		m, answered = <-q.answer, true // it came with the last tick
	}
	x.rest(err == nil && answered)
	if err != nil || !answered {
		return Told{}, err
	}
	return x.told(m), nil
}

// question is one poll under way.
type question struct {
	answer   chan message  // has room for the one that comes
	replaced chan struct{} // closed when another poll has taken its place
}

// ask begins a poll, with the session of the sidecar.
func (s *Server) ask(p *Poll) (*poller, *question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrClosed
	}
	s.streams.Add(1)
	id := identity{p.Service, p.Instance}
	x := s.pollers[id]
	if x == nil {
		x = &poller{session: newSession(s, Polling, false)}
		x.subscribed = true
		x.enter(node{service: p.Service, instance: p.Instance, proxy: p.Proxy, version: p.ProxyVersion, form: formNative}, p.Holds)
		x.remember(p)
		s.pollers[id] = x
		s.sessions[x.session] = struct{}{}
		s.notify()
	}
	if x.idle != nil {
		x.idle.Stop()
	}
	x.settled()
	if x.asking != nil {
		close(x.asking.replaced)
		x.conflict()
	}
	x.asking = &question{answer: make(chan message, 1), replaced: make(chan struct{})}
	x.heard(p)
	x.send = func(m message) {
		if m.kind == whole {
			x.given = m.version
		}
		x.asking.answer <- m
	}
	x.step()
	return x, x.asking, nil
}

// remember takes over that a sidecar refused the current policy before this session. What
// it says of others, as of those of another plane, is over.
func (x *poller) remember(p *Poll) {
	if e := x.server.policies.entries[p.Service]; e == nil || e.version != p.Refused {
		return
	}
	x.nacked = p.Refused
	if !slices.ContainsFunc(x.nacks, func(n Nack) bool { return n.Version == p.Refused && !n.Accepted }) {
		x.refusal(p.Refused, p.reason(), time.Now())
	}
}

// conflict counts a poll that came before the last was answered.
func (x *poller) conflict() {
	x.conflicts, x.conflictAt = x.conflicts+1, time.Now()
	switch x.conflicts {
	case 1:
		x.server.cfg.Logger.Warn("a poll came before the last was answered: do two sidecars have one name?",
			"service", x.node.service, "instance", x.node.instance)
	case manyConflicts:
		x.server.cfg.Logger.Warn("two sidecars have one name", "service", x.node.service, "instance", x.node.instance)
		x.server.notify()
	}
}

// settled forgets conflicts that are over.
func (x *poller) settled() {
	if x.conflicts > 0 && !x.contested() {
		x.conflicts = 0
		x.server.notify()
	}
}

// pollWait is how long a poll may wait for news: longer than the time to the next
// heartbeat, which is the answer where there is none. Where heartbeats are rare, the
// answer is often that nothing has changed.
func (s *Server) pollWait() time.Duration {
	if s.cfg.TTL < 0 {
		return defaultTTL / 3
	}
	return min(s.cfg.Heartbeat*5/4, maxPollWait)
}

// heard takes what a sidecar says of itself, and with it the answer to what it was sent.
func (x *poller) heard(p *Poll) {
	f := x.inFlight
	x.inFlight = nil
	switch now := time.Now(); {
	case f == nil:
	case f.kind == whole && p.Refused == f.version:
		x.settle(f, p.reason(), now)
	case p.Holds == f.version: // of a removal: none
		x.settle(f, "", now)
	}
	// One that has started anew knows nothing of a refusal, and may be another program.
	if x.nacked != p.Refused {
		x.nacked = ""
	}
	x.node.proxy, x.node.version = p.Proxy, p.ProxyVersion
	// An answer may be lost, and a policy may lapse: what it says is what it has. That it
	// has a policy which it cannot have from this plane acknowledges nothing.
	if p.Holds != x.holds {
		x.holds, x.acked = p.Holds, ""
		if e := x.server.policies.entries[p.Service]; p.Holds == x.given || e != nil && p.Holds == e.version {
			x.acked = p.Holds
		}
		x.server.notify()
	}
}

// rest ends the poll under way, and the session if no other comes. What was sent has not
// arrived unless delivered is said.
func (x *poller) rest(delivered bool) {
	if x.timer != nil {
		x.timer.Stop()
	}
	x.send, x.asking = nil, nil
	if !delivered {
		x.inFlight = nil
	}
	var idle *time.Timer
	idle = time.AfterFunc(pollGrace, func() {
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		if x.idle == idle && x.asking == nil {
			x.goAway()
		}
	})
	x.idle = idle
}

// goAway ends the session.
func (x *poller) goAway() {
	if x.left {
		return
	}
	x.idle.Stop()
	x.leave()
	delete(x.server.sessions, x.session)
	delete(x.server.pollers, identity{x.node.service, x.node.instance})
	x.server.notify()
}

// told is a message as the sidecar hears it.
func (x *poller) told(m message) Told {
	t := Told{TTL: m.ttl}
	if x.server.cfg.TTL < 0 {
		t.TTL = noTTL
	}
	switch m.kind {
	case whole:
		t.Version, t.Policy = m.version, m.resource.GetValue()
	case removal:
		t.Drop = true
	}
	return t
}

// reason of the refusal, which is never empty.
func (p *Poll) reason() string { return cmp.Or(p.Reason, noReason) }

// check refuses a poll that does not say who asks. In the rest, which is for people and may
// not be text, it leaves out what cannot be shown.
func (p *Poll) check() error {
	var errs []error
	for _, name := range [][2]string{{"service", p.Service}, {"instance", p.Instance}} {
		if name[1] == "" || len(name[1]) > maxName || !utf8.ValidString(name[1]) {
			errs = append(errs, fmt.Errorf("%w: %s: must have 1 to %d bytes of UTF-8", ErrPoll, name[0], maxName))
		}
	}
	for _, text := range []*string{&p.Proxy, &p.ProxyVersion, &p.Holds, &p.Refused} {
		*text = cut(*text, maxName)
	}
	p.Reason = cut(p.Reason, maxReason)
	return errors.Join(errs...)
}

// cut returns valid UTF-8 of at most n bytes.
func cut(text string, n int) string { return strings.ToValidUTF8(text[:min(len(text), n)], "") }
