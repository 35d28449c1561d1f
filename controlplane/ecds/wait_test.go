package ecds

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrainWaitsForConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var pending *PendingError
		if err := s.Drain(ctx); !errors.As(err, &pending) || pending.Sidecars[0] != "cart/cart-1" || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Drain without an answer: %v", err)
		}
		done := make(chan error)
		go func() { done <- s.Drain(t.Context()) }()
		f.run(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1), onePolicy("shop", time.Hour, 1))
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		f.run(time.Second)
		start := time.Now()
		var missing *NotConnectedError
		if err := s.Wait(t.Context(), v, []string{"cart", "shop"}); !errors.As(err, &missing) || len(missing.Services) != 1 || missing.Services[0] != "shop" {
			t.Errorf("Wait: %v", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("gave up after %v", took)
		}
		if err := s.Wait(t.Context(), v, []string{"bank"}); !errors.Is(err, ErrUnknownService) {
			t.Errorf("Wait: %v", err)
		}
		// One that connects meanwhile is in time.
		done := make(chan error)
		go func() { done <- s.Wait(t.Context(), v, []string{"shop"}) }()
		time.Sleep(4 * time.Second)
		late := newFake(t, s, envoyNode("shop", "shop-1", 40), StateOfTheWorld)
		late.run(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
		go func() { done <- s.Wait(t.Context(), v, []string{"cart", "shop"}) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.disconnect()
		late.disconnect()
		go func() { done <- s.Wait(t.Context(), v, []string{"cart"}) }()
		synctest.Wait()
		s.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Wait on a closed plane: %v", err)
		}
		if _, err := s.Apply(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Apply on a closed plane: %v", err)
		}
	})
}

// A stream that breaks while it is waited for may come back.
func TestWaitOutlastsAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		done := make(chan error)
		go func() { done <- s.Wait(t.Context(), v, []string{"cart"}) }()
		time.Sleep(20 * time.Second)
		f.disconnect()
		time.Sleep(4 * time.Second)
		f.connect(Delta)
		time.Sleep(20 * time.Second)
		f.disconnect()
		time.Sleep(4 * time.Second)
		f.connect(Delta)
		f.run(time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitCountsEveryInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		one := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		two := newFake(t, s, envoyNode("cart", "cart-2", 40), StateOfTheWorld)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		one.run(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var pending *PendingError
		if err := s.Wait(ctx, v, []string{"cart"}); !errors.As(err, &pending) || len(pending.Sidecars) != 1 || pending.Sidecars[0] != "cart/cart-2" {
			t.Errorf("Wait: %v", err)
		}
		changed := s.Changed()
		two.run(time.Second)
		select {
		case <-changed:
		default:
			t.Error("no change was told of")
		}
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil {
			t.Error(err)
		}
	})
}

// A version of another plane proves nothing, however great it is.
func TestWaitTrustsOnlyItsOwnVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f := &fakeSidecar{t: t, server: s, node: envoyNode("cart", "cart-1", 40), version: "zzzzzzzzzzz"}
		f.connect(Delta)
		defer f.disconnect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wait(ctx, v, []string{"cart"}); !errors.Is(err, ErrPending) {
			t.Errorf("Wait: %v", err)
		}
		f.run(time.Second)
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil || f.version != v {
			t.Errorf("Wait: %v, holds %q", err, f.version)
		}
	})
}

// Sidecars that come under ever new names do not fill the memory.
func TestDepartedSidecarsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		for i := range goneMax + 10 {
			f := &fakeSidecar{t: t, server: s, node: envoyNode("cart", strconv.Itoa(i), 40)}
			f.connect(Delta)
			f.disconnect()
			time.Sleep(time.Millisecond)
		}
		rows := s.Sidecars()
		if len(rows) != goneMax || slices.ContainsFunc(rows, func(r Sidecar) bool { return r.Instance == "0" }) {
			t.Errorf("%d sidecars are kept, want the last %d", len(rows), goneMax)
		}
	})
}
