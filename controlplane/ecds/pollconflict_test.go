package ecds

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPollConflict has two sidecars under one name: who waits for them is told, until one
// of them is gone.
func TestPollConflict(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var both sync.WaitGroup
		for _, one := range []*fakePoller{f, newPoller(t, s, "cart", "cart-1")} {
			both.Go(func() {
				for pause := 100 * time.Millisecond; ctx.Err() == nil; time.Sleep(pause) {
					if err := one.once(time.Minute); errors.Is(err, ErrReplaced) {
						pause = min(2*pause, time.Second)
					}
				}
			})
		}
		for changed := s.Changed(); s.Sidecars()[0].Refused == "" && ctx.Err() == nil; changed = s.Changed() {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		if row := s.Sidecars()[0]; row.Conflicts < manyConflicts || !strings.Contains(row.Refused, `under the name "cart-1"`) {
			t.Errorf("%+v", row)
		}
		if err := s.Wait(t.Context(), v, []string{"cart"}); !errors.Is(err, ErrRefused) {
			t.Errorf("Wait: %v", err)
		}
		both.Wait()
		f.run(2 * maxPollWait)
		if row := s.Sidecars()[0]; row.Conflicts != 0 || row.Refused != "" || row.Acked != v {
			t.Errorf("one is left: %+v", row)
		}
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
}
