package ecds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
)

// Stream says how a sidecar asks.
type Stream uint8

// The kinds of streams.
const (
	Delta           Stream = 1 // incremental xDS
	StateOfTheWorld Stream = 2 // every answer is all there is
	Polling         Stream = 3 // no stream: each poll is a question of its own
)

func (s Stream) String() string {
	switch s {
	case Delta:
		return "delta"
	case StateOfTheWorld:
		return "sotw"
	case Polling:
		return "poll"
	}
	return "none"
}

// Nack is a sidecar's refusal of a policy.
type Nack struct {
	Time time.Time
	// Version of the refused policy.
	Version string
	// Message in the proxy's own words.
	Message string
	// Accepted: the sidecar took the same policy later. So ends the refusal of a
	// remote module that was still being fetched.
	Accepted bool
}

// Sidecar is one sidecar as the plane knows it. A value is a snapshot; its
// slices are the caller's.
type Sidecar struct {
	Service, Instance string
	// Proxy is the user agent, "envoy" or "tfiproxy"; ProxyVersion is "1.40.0", or
	// empty where the proxy does not say.
	Proxy, ProxyVersion string
	Stream              Stream
	// Aggregated: ECDS comes on an ADS stream.
	Aggregated bool
	// Connected is false for a sidecar that has left; it stays listed for an hour.
	Connected bool
	// Since it connected, or left.
	Since time.Time
	// Acked is the version of the policy in force, empty if there is none.
	Acked string
	// AckedAt is when it was acknowledged.
	AckedAt time.Time
	// Nack is the last refusal of a policy that was not accepted later; that another
	// one was does not undo it; nil: none. Nacks are the last eight of all, oldest
	// first.
	Nack  *Nack
	Nacks []Nack
	// Refused says why the plane sends it nothing, or what it sends is good for nothing,
	// and what to do; empty: all is well.
	Refused string
	// Conflicts are the polls that another one under the same name has cut off lately.
	Conflicts int
}

type identity struct{ service, instance string }

// Sidecars that have left are kept for a while, so that the last words of one
// that crashed can be read.
const (
	goneMemory = time.Hour
	goneMax    = 1024
)

// Sidecars returns all sidecars, by service and instance. Where one has several
// streams, the row is that of the newest, and Acked is the oldest version among
// them.
func (s *Server) Sidecars() []Sidecar {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := maps.Clone(s.gone)
	for x := range s.sessions {
		if !x.named {
			continue
		}
		row := x.snapshot()
		id := identity{row.Service, row.Instance}
		if other, ok := rows[id]; ok && other.Connected {
			oldest := min(row.Acked, other.Acked)
			if other.Since.After(row.Since) {
				row = other
			}
			row.Acked = oldest
		}
		rows[id] = row
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b Sidecar) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Instance, b.Instance))
	})
}

func (x *session) snapshot() Sidecar {
	row := Sidecar{
		Service: x.node.service, Instance: x.node.instance, Proxy: x.node.proxy, ProxyVersion: x.node.version,
		Stream: x.stream, Aggregated: x.aggregated, Connected: !x.left, Since: x.since,
		Acked: x.acked, AckedAt: x.ackedAt, Nacks: slices.Clone(x.nacks), Refused: x.node.refused,
		Conflicts: x.conflicts,
	}
	for i := range row.Nacks {
		if !row.Nacks[i].Accepted {
			row.Nack = &row.Nacks[i]
		}
	}
	if row.Refused == "" && x.askedFor != "" {
		row.Refused = fmt.Sprintf("sidecar %q of service %q asks for the resource %q: the filter's config_discovery must be named %q",
			row.Instance, row.Service, x.askedFor, gate.Name)
	}
	if x.conflicts >= manyConflicts && x.contested() {
		row.Refused = fmt.Sprintf("two sidecars of service %q poll under the name %q, and each cuts the other's polls off: give each an instance name of its own",
			row.Service, row.Instance)
	}
	return row
}

// contested says that polls have been cut off lately: one that is alone has had
// an answer since, otherwise.
func (x *session) contested() bool { return time.Since(x.conflictAt) <= maxPollWait }

// depart remembers a sidecar whose stream has ended, unless it has another.
func (s *Server) depart(x *session) {
	s.cfg.Logger.Info("sidecar gone", "service", x.node.service, "instance", x.node.instance)
	for other := range s.sessions {
		if other != x && other.named && other.node.service == x.node.service && other.node.instance == x.node.instance {
			return
		}
	}
	now := time.Now()
	maps.DeleteFunc(s.gone, func(_ identity, row Sidecar) bool { return now.Sub(row.Since) > goneMemory })
	if len(s.gone) >= goneMax {
		oldest := slices.MinFunc(slices.Collect(maps.Values(s.gone)), func(a, b Sidecar) int { return a.Since.Compare(b.Since) })
		delete(s.gone, identity{oldest.Service, oldest.Instance})
	}
	row := x.snapshot()
	row.Since = now
	s.gone[identity{row.Service, row.Instance}] = row
}
