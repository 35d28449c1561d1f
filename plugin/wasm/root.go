package wasm

import (
	"time"

	"github.com/sequencefi/sequencefi/plugin/tfi"
	"github.com/sequencefi/sequencefi/plugin/wasm/internal/host"
)

// tickPeriod is how late a timer may be. The host has no other clock: a sleep
// in here would block the worker's event loop.
const tickPeriod = 5 * time.Millisecond

// root is one policy in one VM; Envoy makes a new one for each push.
type root struct {
	vm      *vm
	id      uint32
	engine  *tfi.Engine // nil: inert
	timers  timers
	ticking bool
}

// configure makes the policy that the host has for r the one in force. It never
// fails: Envoy would take the filter away in some threads and not in others
// (envoyproxy/envoy#43751).
func (r *root) configure() {
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("start", p)
		}
	}()
	r.vm.newest = r
	r.engine = r.vm.apply(r, host.PluginConfiguration()) // none is an empty policy
}

// done takes leave; the root's last stream has ended.
func (r *root) done() {
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("done", p)
		}
	}()
	delete(r.vm.roots, r.id)
	r.stopTick() // or Envoy's timer would ring for ever: it outlives the context
	r.vm.retire(r)
}

// arm starts a timer of a stream.
func (r *root) arm(t *timer) {
	r.timers.add(t)
	r.vm.metrics.stop(1)
	r.tick()
}

func (r *root) disarm(t *timer) {
	if t.at != 0 {
		r.timers.remove(t)
		r.vm.metrics.stop(-1)
	}
}

// tick makes onTick be called until there is nothing more to do. What a callback
// asks of the host is about the root of its own context: only callbacks of r and of
// its streams may call this.
func (r *root) tick() {
	if r.ticking {
		return
	}
	if err := host.SetTickPeriod(tickPeriod); err != nil {
		r.vm.problem("tick", err)
		return
	}
	r.ticking = true
}

func (r *root) stopTick() {
	if !r.ticking {
		return
	}
	r.ticking = false
	if err := host.SetTickPeriod(0); err != nil {
		r.vm.problem("tick", err)
	}
}

// onTick does what is due.
func (r *root) onTick() {
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("tick", p)
		}
	}()
	now := r.vm.clock()
	fired := false
	for t := r.timers.next(now); t != nil; t = r.timers.next(now) {
		r.vm.metrics.stop(-1)
		t.stream.fire(t.then)
		fired = true
	}
	if fired {
		// What follows is the root's own.
		if err := host.SetEffectiveContext(r.id); err != nil {
			r.vm.problem("effective context", err)
		}
	}
	r.vm.housekeep(r, now)
	if len(r.timers) == 0 && !r.vm.busy() {
		r.stopTick()
	}
}

// fire does what the stream's timer was set for.
func (s *stream) fire(then timerAction) {
	defer func() { // the stream's context is still the effective one
		if p := recover(); p != nil {
			s.root.vm.caught("timer", p)
			s.abandon(nowhere)
		}
	}()
	// The host must be told which stream the next calls are about.
	if err := host.SetEffectiveContext(s.id); err != nil {
		s.root.vm.problem("effective context", err)
		return
	}
	s.crashAt("timer")
	switch then {
	case thenResumeRequest:
		s.request = flowing
		s.check(host.Resume(host.Request))
	case thenResumeResponse:
		if s.ending {
			s.delivered()
		}
		s.response = flowing
		s.check(host.Resume(host.Response))
	case thenReset:
		s.reset()
	case thenLetGo:
		s.holdExpired()
	}
}

// holdExpired decides about an answer that has been held for long and has not
// ended: while all of it is there it is let go. Later there is no way back, so
// one that still comes is waited for, and one that has stopped is faulted.
func (s *stream) holdExpired() {
	switch {
	case s.response == holding:
		s.root.engine.LetGo(s.call)
		s.response = flowing
		s.check(host.Resume(host.Response))
	case s.bytes > s.seen:
		s.seen = s.bytes
		s.pause(s.root.vm.settings.Hold, thenLetGo)
	default:
		s.strike()
	}
}
