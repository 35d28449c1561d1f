package tfiproxy

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sequencefi/sequencefi/plugin/wasm/behaviour"
)

// TestPollFailures has a plane that fails in one way after the other: each is logged once,
// until the plane is well again.
func TestPollFailures(t *testing.T) {
	var polls atomic.Int32
	ninth := make(chan struct{})
	answers := []int{503, 503, 401, 401, 401, 204, 401, 401}
	plane := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		i := int(polls.Add(1)) - 1
		if i == len(answers) {
			close(ninth)
		}
		w.WriteHeader(answers[min(i, len(answers)-1)])
	})
	cfg := outboundTo("127.0.0.1:1")
	cfg.Service, cfg.Policy = behaviour.Service, PolicySource{Address: plane}
	var log lines
	startLogging(t, cfg, &log)
	select {
	case <-ninth:
	case <-time.After(time.Minute):
		t.Fatal("it stopped to ask")
	}
	var said []string
	for _, line := range log.all() {
		if _, status, ok := strings.Cut(line, "status "); ok {
			said = append(said, status[:3])
		}
	}
	if got := strings.Join(said, " "); got != "503 401 401" {
		t.Errorf("logged %s, want 503 401 401:\n%s", got, strings.Join(log.all(), ""))
	}
}

// TestNoPlane says that a sidecar to which no campaign came yet does not warn of anything.
func TestNoPlane(t *testing.T) {
	cfg := outboundTo("127.0.0.1:1")
	cfg.Service, cfg.Policy = behaviour.Service, PolicySource{Address: "127.0.0.1:1"}
	var log lines
	p := startLogging(t, cfg, &log)
	eventually(t, "no word of the control plane", func() bool { return strings.Contains(strings.Join(log.all(), ""), "control plane") })
	said := strings.Join(log.all(), "")
	if strings.Contains(said, "WARN") || !strings.Contains(said, `level=INFO msg="no control plane; traffic passes"`) {
		t.Errorf("it says\n%s", said)
	}
	// One that gave a policy and is gone since is another matter.
	policy, err := proto.Marshal(behaviour.Policy("v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.policies.apply(policy, 0); err != nil {
		t.Fatal(err)
	}
	p.logFailure(&cfg.Policy, syscall.ECONNREFUSED)
	if said := strings.Join(log.all(), ""); !strings.Contains(said, "level=WARN msg=\"control plane\"") {
		t.Errorf("it says\n%s", said)
	}
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	have []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.have = append(l.have, string(b))
	return len(b), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.have)
}
