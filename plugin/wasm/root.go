package wasm

import (
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"

	"github.com/sequencefi/sequencefi/plugin/tfi"
)

// tickPeriod is how late a timer may be. The host has no other clock: a sleep
// in here would block the worker's event loop.
const tickPeriod = 5 * time.Millisecond

// root is one policy in one VM; Envoy makes a new one for each push.
type root struct {
	types.DefaultPluginContext
	vm      *vm
	id      uint32
	engine  *tfi.Engine // nil: inert
	timers  timers
	ticking bool
}

// OnPluginStart implements the same method of [types.PluginContext]. It never
// fails: Envoy would take the filter away in some threads and not in others
// (envoyproxy/envoy#43751).
func (r *root) OnPluginStart(int) (ok types.OnPluginStartStatus) {
	ok = types.OnPluginStartStatusOK
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("start", p)
		}
	}()
	b, err := proxywasm.GetPluginConfiguration()
	if err != nil {
		b = nil // an empty policy: nothing is active
	}
	r.vm.newest = r
	r.engine = r.vm.apply(r, b)
	return ok
}

// OnPluginDone implements the same method of [types.PluginContext]; the root's
// last stream has ended.
func (r *root) OnPluginDone() bool {
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("done", p)
		}
	}()
	r.vm.retire(r)
	return true
}

// NewHttpContext implements the same method of [types.PluginContext].
func (r *root) NewHttpContext(id uint32) types.HttpContext { //nolint:revive // the SDK names it
	s := &stream{root: r, id: id, length: -1}
	s.timer.stream = s
	return s
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

// tick makes OnTick be called until there is nothing more to do. What a callback
// asks of the host is about the root of its own context: only callbacks of r and of
// its streams may call this.
func (r *root) tick() {
	if r.ticking {
		return
	}
	if err := proxywasm.SetTickPeriodMilliSeconds(uint32(tickPeriod.Milliseconds())); err != nil {
		r.vm.problem("tick", err)
		return
	}
	r.ticking = true
}

// OnTick implements the same method of [types.PluginContext].
func (r *root) OnTick() {
	defer func() {
		if p := recover(); p != nil {
			r.vm.caught("tick", p)
		}
	}()
	now := monotonic()
	fired := false
	for t := r.timers.next(now); t != nil; t = r.timers.next(now) {
		r.vm.metrics.stop(-1)
		t.stream.fire(t.then)
		fired = true
	}
	if fired {
		// What follows is the root's own.
		if err := proxywasm.SetEffectiveContext(r.id); err != nil {
			r.vm.problem("effective context", err)
		}
	}
	r.vm.housekeep(r, now)
	if len(r.timers) == 0 && !r.vm.busy() && r.ticking {
		r.ticking = false
		if err := proxywasm.SetTickPeriodMilliSeconds(0); err != nil {
			r.vm.problem("tick", err)
		}
	}
}

// fire does what the stream's timer was set for.
func (s *stream) fire(then timerAction) {
	defer func() { // the stream's context is still the effective one
		if p := recover(); p != nil {
			s.root.vm.caught("timer", p)
			s.abandon()
		}
	}()
	// The host must be told which stream the next calls are about.
	if err := proxywasm.SetEffectiveContext(s.id); err != nil {
		s.root.vm.problem("effective context", err)
		return
	}
	s.crashAt("timer")
	switch then {
	case thenResumeRequest:
		s.request = flowing
		s.check(proxywasm.ResumeHttpRequest())
	case thenResumeResponse:
		s.response = flowing
		if s.ending {
			s.delivered()
		}
		s.check(proxywasm.ResumeHttpResponse())
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
		s.response = flowing
		s.root.engine.LetGo(s.call)
		s.check(proxywasm.ResumeHttpResponse())
	case s.bytes > s.seen:
		s.seen = s.bytes
		s.pause(s.root.vm.settings.Hold, thenLetGo)
	default:
		s.strike()
	}
}
