package ecds

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

// fakePoller is a sidecar that polls, in virtual time, and keeps a policy as long as
// it is told to.
type fakePoller struct {
	t       *testing.T
	server  *Server
	ask     Poll
	policy  *tfiv1.Policy
	expires time.Time
	told    []Told
	refuse  string // why the next policy is refused; empty: it is not
}

func newPoller(t *testing.T, s *Server, service, instance string) *fakePoller {
	return &fakePoller{t: t, server: s, ask: Poll{Service: service, Instance: instance, Proxy: "tfiproxy", ProxyVersion: "1.2.3"}}
}

func (f *fakePoller) lapse() {
	if !f.expires.IsZero() && !time.Now().Before(f.expires) {
		f.policy, f.expires, f.ask.Holds = nil, time.Time{}, ""
	}
}

// once polls once, for at most d, and takes what it is told.
func (f *fakePoller) once(d time.Duration) error {
	f.t.Helper()
	f.lapse()
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	got, err := f.server.Poll(ctx, f.ask)
	f.lapse()
	if err != nil {
		return err
	}
	f.told = append(f.told, got)
	switch {
	case got.Drop:
		f.policy, f.ask.Holds, f.expires = nil, "", time.Time{}
	case got.Version != "" && f.refuse != "":
		f.ask.Refused, f.ask.Reason = got.Version, f.refuse
		return nil
	case got.Version != "":
		f.policy = &tfiv1.Policy{}
		if err := proto.Unmarshal(got.Policy, f.policy); err != nil || f.policy.GetVersion() != got.Version {
			f.t.Errorf("policy %v of version %q: %v", f.policy, got.Version, err)
		}
		f.ask.Holds, f.ask.Refused, f.ask.Reason = got.Version, "", ""
	}
	if got.TTL > 0 {
		f.expires = time.Now().Add(got.TTL)
	}
	return nil
}

// run polls for a while of virtual time.
func (f *fakePoller) run(d time.Duration) {
	f.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		if err := f.once(time.Until(until)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			f.t.Fatal(err)
		}
	}
}

// polling runs a test in virtual time with one sidecar.
func polling(t *testing.T, c Config, test func(*testing.T, *Server, *fakePoller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, c)
		test(t, s, newPoller(t, s, "cart", "cart-1"))
	})
}

// TestPollingSidecar takes one through the life of a policy.
func TestPollingSidecar(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		f.run(12 * time.Second)
		rows := s.Sidecars()
		if len(rows) != 1 || !rows[0].Connected || rows[0].Proxy != "tfiproxy" || rows[0].ProxyVersion != "1.2.3" || rows[0].Stream != Polling {
			t.Fatalf("%+v", rows)
		}
		for _, told := range f.told {
			if told.TTL != 0 || told.Version != "" || told.Drop {
				t.Errorf("nobody has applied anything, and it is told %+v", told)
			}
		}
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		done := make(chan error)
		go func() { done <- s.Wait(t.Context(), v, []string{"cart"}) }()
		f.run(time.Second)
		if err := <-done; err != nil || f.ask.Holds != v {
			t.Fatalf("%v, holds %q", err, f.ask.Holds)
		}
		// Heartbeats keep it, and carry nothing.
		f.told = nil
		f.run(time.Minute)
		if len(f.told) != 11 && len(f.told) != 12 {
			t.Errorf("%d answers in a minute, want one each 5 s", len(f.told))
		}
		for _, told := range f.told {
			if told.TTL != 15*time.Second || told.Policy != nil {
				t.Errorf("heartbeat %+v", told)
			}
		}
		// What comes late has only what is left of a lifetime.
		late := newPoller(t, s, "cart", "cart-2")
		late.run(time.Second)
		if left := late.policy.GetActivations()[0].GetRemaining().AsDuration(); left > time.Hour-time.Minute {
			t.Errorf("a late sidecar is told of %v", left)
		}
		ended := make(chan error)
		go func() { ended <- s.Drain(t.Context()) }()
		f.run(time.Second)
		late.run(time.Second)
		if err := <-ended; err != nil || f.policy != nil || late.policy != nil {
			t.Errorf("%v, holds %v", err, f.policy)
		}
	})
}

// TestPollRefused has a sidecar that cannot use a policy: the plane is told, keeps the
// policy back until it is applied again, and lets the one before lapse.
func TestPollRefused(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		first := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.refuse = "no room"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 2))
		done := make(chan error)
		go func() { done <- s.Wait(t.Context(), v, []string{"cart"}) }()
		f.run(10 * time.Second)
		var nack *NackError
		if err := <-done; !errors.As(err, &nack) || nack.Version != v || nack.Message != "no room" {
			t.Errorf("Wait: %v", err)
		}
		pushes := 0
		for _, told := range f.told {
			if told.Version == v {
				pushes++
			}
		}
		row := s.Sidecars()[0]
		if pushes != 1 || row.Acked != first || row.Nack == nil || row.Nack.Version != v {
			t.Errorf("pushed %d times; %+v", pushes, row)
		}
		f.run(10 * time.Second)
		if f.policy != nil {
			t.Error("the plane keeps a policy alive that it does not want")
		}
		f.refuse = ""
		if again := mustApply(t, s, onePolicy("cart", time.Hour, 2)); again != v {
			t.Fatalf("an unchanged policy has version %q", again)
		}
		f.run(time.Second)
		if f.ask.Holds != v || s.Sidecars()[0].Nack != nil {
			t.Errorf("holds %q, %+v", f.ask.Holds, s.Sidecars()[0])
		}
	})
}

// TestPollRefusedBefore has a plane that forgot a sidecar for a while: what it refused is
// not sent again, and not counted twice.
func TestPollRefusedBefore(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		f.refuse = "no room"
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		time.Sleep(time.Minute)
		if row := s.Sidecars()[0]; row.Connected {
			t.Errorf("%+v", row)
		}
		f.told = nil
		f.run(10 * time.Second)
		for _, told := range f.told {
			if told.Policy != nil {
				t.Errorf("told %+v", told)
			}
		}
		if row := s.Sidecars()[0]; len(row.Nacks) != 1 || !row.Connected {
			t.Errorf("%+v", row)
		}
	})
}

// TestPollRefusedByAnother has a sidecar that is started anew under its name before anybody
// noticed: it is given what the one before could not use.
func TestPollRefusedByAnother(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		f.refuse = "no room"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		next := newPoller(t, s, "cart", "cart-1")
		next.ask.ProxyVersion = "1.2.4"
		next.run(time.Second)
		if row := s.Sidecars()[0]; next.ask.Holds != v || row.Nack != nil || row.ProxyVersion != "1.2.4" {
			t.Errorf("holds %q; %+v", next.ask.Holds, row)
		}
	})
}

// TestPollLostAnswer has an answer that never arrived: the sidecar says so by what it
// holds, and is sent it again.
func TestPollLostAnswer(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		if got, err := s.Poll(t.Context(), f.ask); err != nil || got.Version != v {
			t.Fatalf("%+v, %v", got, err)
		}
		if row := s.Sidecars()[0]; row.Acked != "" {
			t.Errorf("acknowledged without a word: %+v", row)
		}
		f.run(time.Second)
		if f.ask.Holds != v || s.Sidecars()[0].Acked != v {
			t.Errorf("holds %q", f.ask.Holds)
		}
		// It lapses at the sidecar while the network stands still.
		time.Sleep(20 * time.Second)
		f.run(time.Second)
		if f.ask.Holds != v {
			t.Errorf("holds %q after a pause", f.ask.Holds)
		}
	})
}

// TestPollGone has a sidecar that dies in the middle of a poll, and one that dies between
// two.
func TestPollGone(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		for range 2 {
			if row := s.Sidecars()[0]; !row.Connected || row.Acked != v {
				t.Errorf("%+v", row)
			}
			time.Sleep(pollGrace + time.Second)
			if row := s.Sidecars()[0]; row.Connected {
				t.Errorf("%+v", row)
			}
			if err := s.Wait(t.Context(), v, []string{"cart"}); !errors.Is(err, ErrNotConnected) {
				t.Errorf("Wait: %v", err)
			}
			if err := s.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			v = mustApply(t, s, onePolicy("cart", time.Hour, 2))
			if err := f.once(time.Second); err != nil {
				t.Fatal(err)
			}
			if err := f.once(time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	})
}

// TestPollTwice: of two polls under one name the later one counts.
func TestPollTwice(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		first, second := make(chan error), make(chan Told)
		go func() {
			_, err := s.Poll(t.Context(), f.ask)
			first <- err
		}()
		synctest.Wait()
		go func() {
			told, err := s.Poll(t.Context(), f.ask)
			if err != nil {
				t.Error(err)
			}
			second <- told
		}()
		if err := <-first; !errors.Is(err, ErrReplaced) {
			t.Errorf("the first: %v", err)
		}
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		if told := <-second; told.Version != v {
			t.Errorf("the second: %+v", told)
		}
		if rows := s.Sidecars(); len(rows) != 1 || rows[0].Conflicts != 1 || rows[0].Refused != "" {
			t.Errorf("%+v", rows)
		}
	})
}

// TestPollNewPlane: a plane that has been told nothing takes nothing away, and keeps
// nothing alive either.
func TestPollNewPlane(t *testing.T) {
	polling(t, testConfig(), func(t *testing.T, s *Server, f *fakePoller) {
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.server = newTestServer(t, testConfig())
		f.run(10 * time.Second)
		if f.ask.Holds != v || f.server.Sidecars()[0].Acked != v {
			t.Errorf("holds %q", f.ask.Holds)
		}
		f.run(10 * time.Second)
		if f.policy != nil {
			t.Error("a policy that nobody knows outlived its TTL")
		}
		mustApply(t, f.server, onePolicy("shop", time.Hour, 1))
		f.ask.Holds = v
		f.run(time.Second)
		if f.ask.Holds != "" {
			t.Error("a plane that has been told left the policy of another plane")
		}
	})
}

// TestPollWithoutTTL is for tests of the inner fence.
func TestPollWithoutTTL(t *testing.T) {
	c := testConfig()
	c.TTL = -1
	polling(t, c, func(t *testing.T, s *Server, f *fakePoller) {
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Minute)
		if f.ask.Holds != v || f.told[0].TTL != noTTL {
			t.Errorf("holds %q, told %+v", f.ask.Holds, f.told[0])
		}
	})
}

func TestPollOnly(t *testing.T) {
	polling(t, Config{PollOnly: true}, func(t *testing.T, s *Server, f *fakePoller) {
		envoy := newFake(t, s, envoyNode("shop", "shop-1", 40), Delta)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1), onePolicy("shop", time.Hour, 1))
		f.run(time.Second)
		envoy.run(time.Second)
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil {
			t.Error(err)
		}
		if err := s.Wait(t.Context(), v, []string{"shop"}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no plugin") {
			t.Errorf("Wait for an Envoy: %v", err)
		}
	})
}

// TestPollAnswersInTime: whatever the TTL, a sidecar hears from the plane before it takes
// it for dead, and its policy is kept alive.
func TestPollAnswersInTime(t *testing.T) {
	for _, ttl := range []time.Duration{-1, time.Second, 15 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		c := testConfig()
		c.TTL = ttl
		polling(t, c, func(t *testing.T, s *Server, f *fakePoller) {
			v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
			f.run(time.Second)
			asked := time.Now()
			for until := asked.Add(2 * max(ttl, time.Minute)); asked.Before(until); asked = time.Now() {
				if err := f.once(time.Hour); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(asked); took > maxPollWait {
					t.Fatalf("TTL %v: a poll waits for %v", ttl, took)
				}
			}
			if f.ask.Holds != v {
				t.Errorf("TTL %v: holds %q", ttl, f.ask.Holds)
			}
		})
	}
}
