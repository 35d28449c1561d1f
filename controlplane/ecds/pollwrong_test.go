package ecds

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestPollOfUnknownVersion has a sidecar that says to hold what this plane has never given
// it: that acknowledges nothing, whatever the version looks like.
func TestPollOfUnknownVersion(t *testing.T) {
	for _, what := range []string{"of the future", "never issued", "another service's", "no version at all"} {
		t.Run(what, func(t *testing.T) {
			polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
				mustApply(t, s, onePolicy("cart", time.Hour, 1))
				f.run(time.Second)
				v := mustApply(t, s, onePolicy("cart", time.Hour, 2))
				time.Sleep(time.Millisecond)
				later := mustApply(t, s, onePolicy("shop", time.Hour, 1))
				f.ask.Holds = map[string]string{
					"of the future": "zzzzzzzzzzz", "never issued": later[:10] + "0", "another service's": later, "no version at all": "~",
				}[what]
				broken, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := s.Poll(broken, f.ask); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if row := s.Sidecars()[0]; row.Acked != "" {
					t.Errorf("%q is taken for an acknowledgement", row.Acked)
				}
				soon, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := s.Wait(soon, v, []string{"cart"}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Wait for %s: %v", v, err)
				}
				f.run(time.Second)
				if f.ask.Holds != v || s.Sidecars()[0].Acked != v {
					t.Errorf("holds %q afterwards, want %q: %+v", f.ask.Holds, v, s.Sidecars()[0])
				}
			})
		})
	}
}

// TestPollHoldsOn has a sidecar that drops nothing: it is told again and again, and no more
// often than policies are pushed; the removal that is not a repetition comes at once.
func TestPollHoldsOn(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		for _, key := range []byte{1, 2} {
			v := mustApply(t, s, onePolicy("cart", time.Hour, key))
			f.run(time.Second)
			s.Clear()
			begun := time.Now()
			const times = 20
			for i := range times {
				told, err := s.Poll(t.Context(), f.ask)
				if err != nil || !told.Drop {
					t.Fatalf("holds %s, and is told %+v, %v", v, told, err)
				}
				if i == 0 && time.Since(begun) > 0 {
					t.Errorf("told after %v", time.Since(begun))
				}
			}
			if took := time.Since(begun); took < (times-1)*defaultPushInterval {
				t.Errorf("told %d times in %v", times, took)
			}
			f.ask.Holds = ""
		}
	})
}

func TestPollOfNobody(t *testing.T) {
	s := newTestServer(t, testConfig())
	_, err := s.Poll(t.Context(), Poll{Service: strings.Repeat("x", 300)})
	if !errors.Is(err, ErrPoll) || !strings.Contains(err.Error(), "service:") || !strings.Contains(err.Error(), "instance:") {
		t.Errorf("%v", err)
	}
	if len(s.Sidecars()) != 0 {
		t.Error("it is listed")
	}
	s.Close()
	if _, err := s.Poll(t.Context(), Poll{Service: "a", Instance: "a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("on a closed plane: %v", err)
	}
}
