package campaign

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sequencefi/sequencefi/controlplane/topology"
)

// slowMesh is a mesh whose sidecars take the first policy one after the other, each once
// the one before it was told of.
type slowMesh struct {
	*mesh
	first   string
	mu      sync.Mutex
	version string
	loaded  int
	changed chan struct{}
	told    chan Update
}

func (m *slowMesh) Sidecars() []Sidecar {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.mesh.Sidecars()
	for i := range min(m.loaded, len(out)) {
		out[i].Acked = m.version
	}
	return out
}

func (m *slowMesh) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *slowMesh) Wait(ctx context.Context, version string, services []string) error {
	if m.first == "" {
		m.first = version
	}
	if version != m.first {
		return nil
	}
	for n := range len(services) + 1 {
		m.mu.Lock()
		m.version, m.loaded = version, n
		close(m.changed)
		m.changed = make(chan struct{})
		m.mu.Unlock()
		for done := -1; done < n; {
			select {
			case u := <-m.told:
				done = u.Done
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (m *slowMesh) Update(u Update) {
	if u.Stage == StageLoad && u.Planned > 0 {
		m.told <- u
	}
}

func TestLoadingIsTold(t *testing.T) {
	m := &slowMesh{mesh: dispatchMesh(t), changed: make(chan struct{}), told: make(chan Update, 1000)}
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.Plane, c.Fleet, c.Progress = m, m, m
	if got, err := Check(t.Context(), c); err != nil || !got.OK() {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOnlyEnvoysLoad: a native sidecar has its policy at once, and says nothing about loading.
func TestOnlyEnvoysLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		native  []string
		planned int
		text    string
	}{
		"Envoys": {nil, 2, "loading the plugin into the sidecars"},
		"mixed":  {[]string{"back"}, 1, "loading the plugin into the sidecars"},
		"native": {[]string{"front", "back"}, 2, "giving the sidecars their first policy"},
	} {
		t.Run(name, func(t *testing.T) {
			m := relayMesh(t)
			for _, service := range tc.native {
				s, _ := m.topology.Service(service)
				s.Sidecar = topology.SidecarTFIProxy
			}
			c := m.config(spec(fetch("GET", m.url("front"))))
			planned, text := 0, ""
			c.Progress = progressFunc(func(u Update) {
				if u.Stage == StageLoad {
					planned = max(planned, u.Planned)
					text += u.Text
				}
			})
			if _, err := Check(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if planned != tc.planned || text != tc.text {
				t.Errorf("%d sidecars, %q", planned, text)
			}
		})
	}
}

func TestLoadedOf(t *testing.T) {
	sidecars := []Sidecar{
		{Service: "a", Connected: true, Acked: "v1"},
		{Service: "a", Connected: true, Acked: "v0"},
		{Service: "b", Connected: true},
		{Service: "b", Acked: "v1"},
		{Service: "other", Connected: true, Acked: "v1"},
	}
	loaded, all := loadedOf(slices.Clone(sidecars), []string{"a", "b"}, "v1")
	if loaded != 1 || all != 3 {
		t.Errorf("%d of %d, want 1 of 3", loaded, all)
	}
	// Nor is anything loaded where there is no sidecar to load it.
	loaded, all = loadedOf(sidecars, []string{"a", "gone"}, "v1")
	if loaded != 1 || all != 3 {
		t.Errorf("%d of %d with a service that has no sidecar, want 1 of 3", loaded, all)
	}
}

// TestSidecarThatDiesDuringAPush: it is named at once, and waited for as long as it had to
// connect and not as long as a plugin may take to load.
func TestSidecarThatDiesDuringAPush(t *testing.T) {
	for stage, pushed := range map[Stage]string{StageLoad: "v000001", StageSearch: "v000002"} {
		t.Run(string(stage), func(t *testing.T) {
			m := relayMesh(t)
			m.refuse = func(version string) error {
				if version != pushed {
					return nil
				}
				if !m.lost["back"] {
					m.lost["back"] = true
					close(m.changed)
					m.changed = make(chan struct{})
				}
				return errors.New("no sidecar connected")
			}
			c := m.config(spec(fetch("GET", m.url("front"))))
			c.ReadyTimeout, c.PushTimeout = 300*time.Millisecond, time.Hour
			var named []Update
			c.Progress = progressFunc(func(u Update) {
				if u.Warning {
					named = append(named, u)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			report, err := Run(ctx, c)
			if !errors.Is(err, ErrNotReady) || !errors.Is(err, ErrPush) || report.GetInterrupted() == "" {
				t.Errorf("got %v, interrupted %q; want ErrPush as ErrNotReady", err, report.GetInterrupted())
			}
			if len(named) != 1 || named[0].Stage != stage || named[0].Text != "back: no sidecar is connected: waiting 300ms at most" {
				t.Errorf("told %+v", named)
			}
			if stage == StageLoad && (len(named) == 0 || named[0].Planned != 2) {
				t.Errorf("not counted: %+v", named)
			}
		})
	}
}
