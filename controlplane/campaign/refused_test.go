package campaign

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRefusedPolicies(t *testing.T) {
	m := dispatchMesh(t)
	refusal := errors.New("module not found")
	m.refuse = func(version string) error {
		if version > "v000001" {
			return refusal
		}
		return nil
	}
	report, err := Run(t.Context(), m.config(spec(fetch("GET", m.url("front")))))
	if !errors.Is(err, ErrPush) || !errors.Is(err, refusal) {
		t.Errorf("got %v, want ErrPush and the refusal", err)
	}
	if len(report.GetClean()) != 3 || report.GetInterrupted() == "" {
		t.Errorf("%d clean runs, interrupted %q", len(report.GetClean()), report.GetInterrupted())
	}
	if left := m.active(); len(left) > 0 {
		t.Errorf("policies are left at %v", left)
	}
}

// A sidecar that is busy loading the plugin may lose its connection.
func TestSidecarThatComesBack(t *testing.T) {
	m := relayMesh(t)
	lost := errors.New("no sidecar connected")
	m.refuse = func(string) error {
		m.refuse = nil
		m.gone = 3
		return lost
	}
	report := runCampaign(t, m.config(spec(fetch("GET", m.url("front")))))
	if len(candidates(report)) == 0 {
		t.Error("nothing was tried")
	}
}

// TestRefusedProbeOfIsolation: what cannot be told is not taken for granted, and ends nothing.
func TestRefusedProbeOfIsolation(t *testing.T) {
	m := dispatchMesh(t)
	refusal := errors.New("too busy")
	m.refuse = func(version string) error {
		if version == "v000003" { // after the clean runs' and the first round's
			return refusal
		}
		return nil
	}
	s := spec(fetch("GET", m.url("front")+"/?user=${trial.id}"))
	s.Workload.Isolated, s.Workload.Parallelism = true, 4
	warned := false
	c := m.config(s)
	c.Progress = progressFunc(func(u Update) {
		warned = warned || u.Warning && strings.Contains(u.Text, "one follows the other") && strings.Contains(u.Text, refusal.Error())
	})
	report := runCampaign(t, c)
	if !warned {
		t.Error("nobody was told")
	}
	if len(report.GetFindings()) != 1 || !report.GetCoverage().GetExhausted() {
		t.Errorf("%d findings, coverage %s", len(report.GetFindings()), report.GetCoverage().GetStatement())
	}
}

// TestRefusedControl: one refusal is tried again, and a few of them end the campaign, whoever
// pushed.
func TestRefusedControl(t *testing.T) {
	for _, always := range []bool{false, true} {
		m := relayMesh(t)
		warned := 0
		c := m.config(spec(fetch("GET", m.url("front"))))
		c.Progress = progressFunc(func(u Update) {
			if u.Warning && strings.Contains(u.Text, "too busy") {
				warned++
			}
		})
		e, err := newEnv(c)
		if err != nil {
			t.Fatal(err)
		}
		defer e.close()
		if err := e.recordClean(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		e.act.spare = nil
		refused := ""
		m.refuse = func(version string) error {
			if refused == "" {
				refused = version
			}
			if always || version == refused {
				return errors.New("too busy")
			}
			return nil
		}
		ok, _, err := e.control(t.Context())
		if errors.Is(err, ErrPush) != always || ok == always || warned == 0 {
			t.Errorf("always refused: %v; it is well: %v, %v, %d warnings", always, ok, err, warned)
		}
	}
}

// TestSidecarThatIsGone: a campaign does not go on without one of its sidecars, and does not
// wait for it at each run that is left.
func TestSidecarThatIsGone(t *testing.T) {
	for name, known := range map[string]bool{"the fleet knows": true, "it hangs": false} {
		t.Run(name, func(t *testing.T) {
			m := dispatchMesh(t)
			gone, refused := false, make(map[string]bool)
			m.refuse = func(version string) error {
				if !gone {
					return nil
				}
				refused[version] = true
				return errors.New("no answer")
			}
			c := m.config(spec(fetch("GET", m.url("front"))))
			c.ReportTimeout, c.ReadyTimeout = 50*time.Millisecond, 50*time.Millisecond
			c.Progress = progressFunc(func(u Update) {
				if u.Trial.GetPurpose() != purposeReplay || gone {
					return
				}
				gone = true
				m.mu.Lock()
				m.lost["customer"] = known
				m.mu.Unlock()
				m.sidecars["customer"].server.CloseClientConnections()
				m.sidecars["customer"].server.Close()
			})
			report, err := Run(t.Context(), c)
			if !errors.Is(err, ErrPush) || report.GetInterrupted() == "" {
				t.Errorf("got %v, interrupted %q; want ErrPush", err, report.GetInterrupted())
			}
			want := maxPushFailures
			if known {
				want = 0 // the recovery from the control run that failed ends it
			}
			if len(refused) != want {
				t.Errorf("%d pushes were waited for, want %d", len(refused), want)
			}
		})
	}
}

// TestRefusedContrast: a finding stands without it.
func TestRefusedContrast(t *testing.T) {
	m := dispatchMesh(t)
	refusal := errors.New("too busy")
	refusing := false
	m.refuse = func(string) error {
		if refusing {
			return refusal
		}
		return nil
	}
	warned := false
	c := m.config(spec(fetch("GET", m.url("front"))))
	c.Progress = progressFunc(func(u Update) {
		refusing = refusing || u.Stage == StageContrast
		warned = warned || u.Warning && strings.Contains(u.Text, "F1 is not compared") && strings.Contains(u.Text, refusal.Error())
	})
	report := runCampaign(t, c)
	if found := report.GetFindings(); !warned || len(found) != 1 || len(found[0].GetContrasts()) != 0 || found[0].GetTemporalOnly() {
		t.Errorf("warned: %v, findings %v", warned, found)
	}
}
