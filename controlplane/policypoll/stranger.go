package policypoll

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Stranger is a sidecar that asks without the plane's token. What it says of itself is not
// proven, and valid UTF-8.
type Stranger struct {
	Service, Instance string
	// Proxy is its user agent, as "tfiproxy/1.2.3".
	Proxy string
	// From is the host that it asks from.
	From string
	// Count of its polls, and when the last one came.
	Count int
	Last  time.Time
}

const (
	// strangerMemory is how long a stranger is known that asks no more: sidecars ask
	// every second.
	strangerMemory = time.Minute
	// maxStrangers bounds those that are known, and maxName the bytes of their names:
	// anybody can be one.
	maxStrangers = 64
	maxName      = 253
)

type strangerKey struct{ service, instance, from string }

// strangers are the ones known. It is safe for concurrent use.
type strangers struct {
	mu      sync.Mutex
	known   map[strangerKey]*Stranger
	changed chan struct{} // closed when one comes or is let in
}

func newStrangers() *strangers {
	return &strangers{known: map[strangerKey]*Stranger{}, changed: make(chan struct{})}
}

// met counts a poll without the token, and says whether it is the first of its sidecar.
func (s *strangers) met(r *http.Request) (one Stranger, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.prune(now)
	key := keyOf(r)
	known := s.known[key]
	if known == nil {
		if len(s.known) >= maxStrangers {
			return Stranger{}, false
		}
		known = &Stranger{Service: key.service, Instance: key.instance, From: key.from}
		s.known[key] = known
		s.notify()
		first = true
	}
	known.Proxy, known.Last = text(r.UserAgent()), now
	known.Count++
	return *known, first
}

// admitted forgets a sidecar that has the token by now.
func (s *strangers) admitted(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return
	}
	if key := keyOf(r); s.known[key] != nil {
		delete(s.known, key)
		s.notify()
	}
}

func (s *strangers) prune(now time.Time) {
	maps.DeleteFunc(s.known, func(_ strangerKey, one *Stranger) bool { return now.Sub(one.Last) > strangerMemory })
}

func (s *strangers) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Strangers returns the sidecars that have asked without the token in the last minute, 64
// at most, by service, instance and host.
func (h *Handler) Strangers() []Stranger {
	s := h.strangers
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune(time.Now())
	out := make([]Stranger, 0, len(s.known))
	for _, one := range s.known {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b Stranger) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Instance, b.Instance), strings.Compare(a.From, b.From))
	})
	return out
}

// Changed returns a channel that is closed when the next stranger comes, or one is let in.
func (h *Handler) Changed() <-chan struct{} {
	h.strangers.mu.Lock()
	defer h.strangers.mu.Unlock()
	return h.strangers.changed
}

func keyOf(r *http.Request) strangerKey {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return strangerKey{text(r.PathValue("service")), text(r.URL.Query().Get("instance")), host}
}

func text(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxName)], "") }
