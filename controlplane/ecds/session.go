package ecds

import (
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// sotwRefresh is how long the same bytes serve as the heartbeat of a
// state-of-the-world stream, before lifetimes are brought up to date.
const sotwRefresh = time.Minute

// The backoff of pushes that answer the refusal of a module still being fetched.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// maxPatience bounds the TTL of a sidecar that takes long to load the plugin.
const maxPatience = 5 * time.Minute

// keptNacks is how many refusals are remembered for a sidecar.
const keptNacks = 8

// kind of a message to a sidecar.
type kind uint8

const (
	whole     kind = iota // the resource
	heartbeat             // lengthens its TTL
	removal               // takes it away
)

// message is what goes out, in the protocols' common terms.
type message struct {
	kind     kind
	version  string
	ttl      time.Duration // 0: none
	resource *anypb.Any    // whole; heartbeat and removal on state-of-the-world streams
}

// flight is a message that has not been answered yet.
type flight struct {
	kind    kind
	version string
	nonce   string // empty until the message has left
	ttl     time.Duration
	at      time.Time
}

// session is one stream of one sidecar, or the polls of one (see poller). One message is under way at a time: the
// next is decided when the sidecar has answered, so that a slow sidecar gets the
// last policy and not all of them.
//
// Everything in it is guarded by the server's mutex.
type session struct {
	server     *Server
	stream     Stream
	aggregated bool

	node       node
	named      bool // node has been read
	subscribed bool
	askedFor   string // another resource that it asks for instead
	since      time.Time
	left       bool

	// send hands a message to the stream; nil: the stream takes none now.
	send     func(message)
	inFlight *flight
	timer    *time.Timer

	holds     string // version of the resource at the sidecar; empty: none
	acked     string // version last acknowledged or reported at the start
	ackedAt   time.Time
	loaded    bool          // it has acknowledged a policy on this stream, so it has the module
	fresh     bool          // the whole resource is due, though the sidecar holds its version
	refreshed time.Time     // when the last message went out
	lapses    time.Time     // when the sidecar drops what it holds, if it hears nothing
	patience  time.Duration // TTL that a slow sidecar has turned out to need to load
	pushed    time.Time
	removed   time.Time // when the last removal went out, if nothing was pushed since
	last      body      // last body sent

	conflicts  int       // polls that another one cut off, until there are none for a while
	conflictAt time.Time // the last one

	nacks      []Nack
	nacked     string // version refused; nothing more of it unless retry is set
	retry      time.Time
	retryWait  time.Duration
	retryUntil time.Time
}

func newSession(s *Server, stream Stream, aggregated bool) *session {
	return &session{server: s, stream: stream, aggregated: aggregated, since: time.Now()}
}

// introduce reads the node of the stream's first request, with the version that
// the sidecar says it holds.
func (x *session) introduce(n *corev3.Node, holds string) {
	if !x.named {
		x.enter(x.server.cfg.readNode(n), holds)
	}
}

// enter notes who the sidecar is, and the version that it says it holds.
func (x *session) enter(n node, holds string) {
	x.named = true
	x.node = n
	x.holds, x.acked = holds, holds
	if holds != "" {
		x.lapses = time.Now().Add(max(0, x.server.cfg.TTL))
	}
	id := identity{x.node.service, x.node.instance}
	if before, ok := x.server.gone[id]; ok {
		x.nacks = slices.Clone(before.Nacks) // whoever asked for the row has the others
		delete(x.server.gone, id)
	}
	log := x.server.cfg.Logger
	if x.node.refused != "" {
		log.Warn("sidecar refused", "service", x.node.service, "instance", x.node.instance, "reason", x.node.refused)
		return
	}
	log.Info("sidecar connected", "service", x.node.service, "instance", x.node.instance,
		"proxy", x.node.proxy, "version", x.node.version, "stream", x.stream, "holds", holds)
}

// subscribe notes whether the sidecar asks for the gate.
func (x *session) subscribe(sub cache.Subscription) {
	_, named := sub.SubscribedResources()[gate.Name]
	was := x.subscribed
	x.subscribed = named || sub.IsWildcard()
	x.askedFor = ""
	if !x.subscribed {
		for name := range sub.SubscribedResources() {
			x.askedFor = max(x.askedFor, name)
		}
		x.holds, x.acked = "", ""
	}
	if was != x.subscribed {
		x.server.notify()
	}
}

// noReason stands for the message of a NACK that has none.
const noReason = "no reason given"

// refusalText is the message of a NACK; empty for an ACK.
func refusalText(s *status.Status) string {
	if s == nil {
		return ""
	}
	if s.GetMessage() == "" {
		return noReason
	}
	return s.GetMessage()
}

// arm makes send the way out and sends what is due.
func (x *session) arm(send func(message)) (cancel func()) {
	armed := true
	x.send = send
	x.step()
	return func() {
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		if !armed {
			return
		}
		armed = false
		x.send = nil
		if x.inFlight != nil && x.inFlight.nonce == "" {
			x.inFlight = nil // dropped with the watch, never sent
		}
	}
}

// step sends what is due now, or sets the timer for it.
func (x *session) step() {
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.send == nil || x.inFlight != nil || !x.subscribed || x.left {
		return
	}
	now := time.Now()
	e := x.server.policies.entries[x.node.service]
	switch {
	case e == nil || x.node.refused != "":
		// A plane that has been told nothing does not know whether the plane
		// before it still wants what the sidecar holds.
		if x.holds != "" && x.server.told {
			// One that goes on holding is told again, but not without end.
			x.at(now, x.removed.Add(x.server.cfg.PushInterval), func() { x.remove(now) })
		}
	case x.nacked == e.version && !x.retry.IsZero():
		x.at(now, x.retry, func() { x.push(e, now) })
	case x.nacked == e.version:
		// What it holds is no longer wanted: it may lapse.
		// One that polls says itself when it has.
		if x.holds != "" && x.server.cfg.TTL > 0 && x.stream != Polling {
			x.at(now, x.lapses, x.lapsed)
		}
	case x.holds != e.version || x.fresh:
		x.at(now, x.pushed.Add(x.server.cfg.PushInterval), func() { x.push(e, now) })
	case x.server.cfg.TTL > 0:
		x.at(now, x.refreshed.Add(x.server.cfg.Heartbeat), func() { x.beat(e, now) })
	}
}

// at runs do now if it is due, or steps again when it is.
func (x *session) at(now, due time.Time, do func()) {
	wait := due.Sub(now)
	if wait <= 0 {
		do()
		return
	}
	x.timer = time.AfterFunc(wait, func() {
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		x.step()
	})
}

// lapsed notes that the sidecar has dropped what it held.
func (x *session) lapsed() {
	x.server.cfg.Logger.Warn("policy lapsed", "service", x.node.service, "instance", x.node.instance)
	x.holds, x.acked = "", ""
	x.server.notify()
}

// forgive lets a refused version be pushed once more.
func (x *session) forgive() {
	if x.nacked != "" {
		x.nacked, x.retry, x.retryWait, x.retryUntil = "", time.Time{}, 0, time.Time{}
		x.step()
	}
}

func (x *session) push(e *entry, now time.Time) {
	b, err := x.server.policies.body(e, x.node.form, now)
	if err != nil {
		// Only a broken protobuf runtime gets here: the policy has been validated.
		x.refusal(e.version, err.Error(), now)
		return
	}
	x.last, x.pushed, x.removed, x.retry = b, now, time.Time{}, time.Time{}
	x.out(message{kind: whole, version: e.version, ttl: x.ttl(), resource: b.resource}, now)
}

func (x *session) beat(e *entry, now time.Time) {
	m := message{kind: heartbeat, version: e.version, ttl: x.ttl()}
	if x.stream == StateOfTheWorld {
		// Envoy takes an empty heartbeat on such a stream without lengthening the
		// TTL; the same bytes again lengthen it and change nothing else.
		if x.last.resource == nil || now.Sub(x.last.built) > sotwRefresh {
			x.push(e, now)
			return
		}
		m.resource = x.last.resource
	}
	x.out(m, now)
}

func (x *session) remove(now time.Time) {
	m := message{kind: removal}
	if x.stream == StateOfTheWorld {
		// Nothing removes a resource from such a stream, so it is replaced.
		extension, err := x.node.form.nothing(x.server.cfg.Module, x.node.service)
		if err == nil {
			m.resource, err = wrap(extension)
		}
		if err != nil {
			x.refusal("", err.Error(), now)
			return
		}
	}
	x.removed = now
	x.out(m, now)
}

// ttl of a resource sent now: longer while the sidecar has yet to load the plugin.
func (x *session) ttl() time.Duration {
	switch {
	case x.server.cfg.TTL < 0:
		return 0
	case x.holds == "" && x.stream != Polling:
		return max(x.server.cfg.FirstTTL, x.patience)
	}
	return x.server.cfg.TTL
}

func (x *session) out(m message, now time.Time) {
	x.refreshed = now
	x.inFlight = &flight{kind: m.kind, version: m.version, ttl: m.ttl, at: now}
	x.send(m)
}

// sent notes the nonce under which the message has left.
func (x *session) sent(nonce string) {
	if x.inFlight != nil {
		x.inFlight.nonce = nonce
	}
}

// answered takes the sidecar's answer to the message with the nonce; refused is
// empty where it agreed.
func (x *session) answered(nonce, refused string) {
	f := x.inFlight
	if f == nil || nonce == "" || nonce != f.nonce {
		return
	}
	x.inFlight = nil
	x.settle(f, refused, time.Now())
}

// settle takes the answer to a message that was under way.
func (x *session) settle(f *flight, refused string, now time.Time) {
	switch {
	case refused == "" && f.kind == removal:
		x.holds, x.acked, x.ackedAt = "", "", now
	case refused == "" && x.stream == StateOfTheWorld && f.ttl > 0 && now.Sub(f.at) >= f.ttl:
		// On such a stream the TTL runs while Envoy loads the plugin, and it took
		// longer: give it the time it needs, or it will load and drop for ever.
		x.patience = min(3*now.Sub(f.at), maxPatience)
		x.lapsed()
	case refused == "" && f.kind == heartbeat:
		x.lapses = now.Add(f.ttl)
		return // nothing that anyone waits for
	case refused == "":
		x.holds, x.acked, x.ackedAt = f.version, f.version, now
		x.lapses, x.loaded = now.Add(f.ttl), true
		for i := range x.nacks {
			x.nacks[i].Accepted = x.nacks[i].Accepted || x.nacks[i].Version == f.version
		}
		x.fresh, x.nacked, x.retryWait, x.retryUntil = false, "", 0, time.Time{}
	case f.kind == heartbeat:
		// The resource had lapsed: the plane or the network stood still for a TTL.
		x.lapsed()
	case f.kind == removal:
		x.holds, x.acked = "", ""
		x.refusal("", refused, now)
	default:
		x.refusal(f.version, refused, now)
		x.again(now)
	}
	x.server.notify()
}

// refusal keeps a NACK.
func (x *session) refusal(version, text string, now time.Time) {
	x.nacked = version
	if strings.Contains(text, "filter config has type URL") {
		text += "; its listeners do not allow the gate: make its bootstrap anew (`sequencefi envoy bootstrap`)"
	}
	x.nacks = append(slices.Clone(x.nacks[max(0, len(x.nacks)-keptNacks+1):]), Nack{Time: now, Version: version, Message: text})
	x.server.cfg.Logger.Warn("policy refused by the sidecar", "service", x.node.service, "instance", x.node.instance, "version", version, "message", text)
}

// reasonOf says why the sidecar refused a version.
func (x *session) reasonOf(version string) string {
	for _, n := range slices.Backward(x.nacks) {
		if n.Version == version {
			return n.Message
		}
	}
	return noReason
}

// again decides whether the refused version is pushed again: a remote module is
// refused until Envoy has fetched it, and Envoy's text does not say that it is
// the reason.
func (x *session) again(now time.Time) {
	x.retry = time.Time{}
	if !x.server.cfg.Module.Remote() || x.loaded || x.stream == Polling {
		return
	}
	if x.retryUntil.IsZero() {
		x.retryUntil = now.Add(x.server.cfg.ModuleRetry)
	}
	if now.After(x.retryUntil) {
		return
	}
	x.retryWait = min(max(2*x.retryWait, minRetry), maxRetry)
	x.retry = now.Add(x.retryWait)
}

// leave ends the session.
func (x *session) leave() {
	x.left, x.send = true, nil
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.named {
		x.server.depart(x)
	}
}
