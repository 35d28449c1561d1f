package campaign

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	campaignv1 "github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
	"github.com/sequencefi/sequencefi/proto/valid"
)

// replayOf runs a campaign and writes the replay of its finding.
func replayOf(t *testing.T, m *mesh) *campaignv1.Replay {
	t.Helper()
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(report.GetFindings()) == 0 {
		t.Fatal("nothing was found")
	}
	r, err := NewReplay(report, m.topology, report.GetFindings()[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHugeReplayFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.yaml")
	if err := os.WriteFile(path, make([]byte, 16<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadReplay(path); !errors.Is(err, ErrReplayFile) {
		t.Errorf("it says %v", err)
	}
}

func TestReplayReproduces(t *testing.T) {
	m := dispatchMesh(t)
	written, err := MarshalReplay(replayOf(t, m))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "F1.yaml")
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	file, top, err := LoadReplay(path)
	if err != nil {
		t.Fatalf("%v\n%s", err, written)
	}
	c := m.config(nil)
	c.Topology = top
	witnesses := Witnesses(file)
	if len(witnesses) < 4 || !proto.Equal(witnesses[0].GetTfics()[0], file.GetTfics()[0]) {
		t.Fatalf("witnesses %v, want several, the smallest first", witnesses)
	}
	got, err := Replay(t.Context(), c, file, witnesses, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(witnesses) {
		t.Errorf("%d of %d witnesses replayed", len(got), len(witnesses))
	}
	for i, g := range got {
		if g.Reproduced != 5 || g.Injected != 5 || g.Runs != 5 || g.Disturbed != "" {
			t.Errorf("%s: %s, otherwise %v, disturbed %q", witnesses[i].GetTfics()[0].GetId(), g, g.Otherwise, g.Disturbed)
		}
		for _, trial := range g.Trials {
			if want := witnesses[i].GetTfics()[0].GetId(); len(trial.GetFired()) != 1 || trial.GetFired()[0] != want {
				t.Errorf("fired %v, want %s", trial.GetFired(), want)
			}
		}
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
}

func TestReplaySaysWhyNot(t *testing.T) {
	m := dispatchMesh(t)
	file := replayOf(t, m)
	// The bug is repaired: a failure is refused now.
	var calls atomic.Int32
	m.sidecars["front"].app = func(w http.ResponseWriter, r *http.Request, call caller) {
		calls.Add(1)
		for range 6 {
			if status, _ := call(http.MethodGet, "route", "/route"); status != http.StatusOK {
				http.Error(w, "sorry", http.StatusBadGateway)
				return
			}
		}
		reply(w, []int{1, 2})
	}
	seen, err := Replay(t.Context(), m.config(nil), file, Witnesses(file)[:1], 2)
	if err != nil {
		t.Fatal(err)
	}
	got := seen[0]
	if got.Reproduced != 0 || !strings.Contains(got.String(), "not reproduced") {
		t.Errorf("%s", got)
	}
	for why := range got.Otherwise {
		if !strings.Contains(why, "Refused with HTTP 502") {
			t.Errorf("otherwise: %s", why)
		}
	}
	if calls.Load() == 0 {
		t.Error("the application was never asked")
	}
}

// TestReplayNeverInjected: a run without its fault says nothing about the finding.
func TestReplayNeverInjected(t *testing.T) {
	m := dispatchMesh(t)
	file := replayOf(t, m)
	for name, change := range map[string]func(*tfiv1.StaticConfiguration){
		"another rank":     func(target *tfiv1.StaticConfiguration) { target.K = 9999 },
		"a renamed callee": func(target *tfiv1.StaticConfiguration) { target.Callee = "gone" },
	} {
		t.Run(name, func(t *testing.T) {
			witness := proto.CloneOf(Witnesses(file)[0])
			change(witness.GetTfics()[0].GetTarget())
			seen, err := Replay(t.Context(), m.config(nil), file, []*campaignv1.ReplayWitness{witness}, 2)
			if err != nil {
				t.Fatal(err)
			}
			got := seen[0]
			if got.Runs != 2 || got.Injected != 0 || got.Reproduced != 0 {
				t.Errorf("%d runs, %d injected, %d reproduced", got.Runs, got.Injected, got.Reproduced)
			}
			if text := got.String(); !strings.HasPrefix(text, "the fault was never injected in 2 runs: "+witness.GetTfics()[0].GetId()) {
				t.Error(text)
			}
		})
	}
}

// TestReplayOutlastsARefusal: one refused push costs time and no witness.
func TestReplayOutlastsARefusal(t *testing.T) {
	m := dispatchMesh(t)
	file := replayOf(t, m)
	warned := false
	c := m.config(nil)
	c.Progress = progressFunc(func(u Update) {
		if u.Stage == StageReplay && u.Trial == nil && u.Done == 0 && u.Planned > 0 {
			m.mu.Lock()
			defer m.mu.Unlock()
			refused := ""
			m.refuse = func(version string) error {
				if refused == "" {
					refused = version
				}
				if version == refused {
					return errors.New("too busy")
				}
				return nil
			}
		}
		warned = warned || u.Warning && strings.Contains(u.Text, "too busy")
	})
	seen, err := Replay(t.Context(), c, file, Witnesses(file)[:2], 2)
	if err != nil || len(seen) != 2 {
		t.Fatalf("%v, %d of 2 witnesses replayed", err, len(seen))
	}
	for _, one := range seen {
		if one.Reproduced != 2 || len(one.Otherwise) > 0 {
			t.Errorf("%s, otherwise %v", one, one.Otherwise)
		}
	}
	if !warned {
		t.Error("nobody was told")
	}
}

func TestParseReplayErrors(t *testing.T) {
	m := dispatchMesh(t)
	good := replayOf(t, m)
	broken := func(change func(*campaignv1.Replay)) []byte {
		r := proto.CloneOf(good)
		change(r)
		b, err := MarshalReplay(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		file []byte
		want error
	}{
		"no YAML":       {[]byte("a: [b"), ErrReplayFile},
		"another file":  {[]byte("services: []"), ErrReplayFile},
		"twice a key":   {[]byte("finding: F1\nfinding: F2\n"), ErrReplayFile},
		"no signature":  {broken(func(r *campaignv1.Replay) { r.Signature = nil }), valid.ErrInvalid},
		"a bad TFIC":    {broken(func(r *campaignv1.Replay) { r.Tfics[0].Target.Api = "" }), valid.ErrInvalid},
		"an id twice":   {broken(func(r *campaignv1.Replay) { r.Tfics = append(r.Tfics, r.Tfics[0]) }), valid.ErrInvalid},
		"a bad spec":    {broken(func(r *campaignv1.Replay) { r.Spec.Workload = nil }), valid.ErrInvalid},
		"no topology":   {broken(func(r *campaignv1.Replay) { r.Topology = nil }), valid.ErrInvalid},
		"an empty file": {nil, ErrReplayFile},
		"two documents": {append(broken(func(*campaignv1.Replay) {}), "---\nfinding: F2\n"...), ErrReplayFile},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := ParseReplay(tt.file); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
