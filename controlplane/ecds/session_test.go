package ecds

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sequencefi/sequencefi/deploy/envoy/gate"
	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestHeartbeatsKeepThePolicy(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(41 * time.Second)
		if f.version != v || f.policy.GetVersion() != v {
			t.Fatalf("holds %q, applied %q", f.version, v)
		}
		if len(f.got) != 9 { // at 0, 5, …, 40
			t.Fatalf("%d messages in 41 s, want the policy and a heartbeat each 5 s", len(f.got))
		}
		for i, m := range f.got {
			want := 15 * time.Second
			if i == 0 {
				want = 30 * time.Second
			}
			if m.ttl != want || m.version != v {
				t.Errorf("message %d: ttl %v version %q, want %v %q", i, m.ttl, m.version, want, v)
			}
			switch {
			case kind == Delta && i > 0 && m.kind != heartbeat:
				t.Errorf("message %d is not an empty heartbeat", i)
			case kind == StateOfTheWorld && !bytes.Equal(m.bytes, f.got[0].bytes):
				t.Errorf("message %d differs from the first: Envoy would load it anew", i)
			}
		}
	})
}

// Same bytes as a heartbeat must not keep stale lifetimes for ever.
func TestStateOfTheWorldHeartbeatIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), StateOfTheWorld)
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(70 * time.Second)
		last := f.got[len(f.got)-1]
		if left := last.policy.GetActivations()[0].GetRemaining().AsDuration(); left > time.Hour-time.Minute {
			t.Errorf("after 70 s the heartbeat still says %v", left)
		}
	})
}

func TestPushesAreCoalesced(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		other := newFake(t, s, envoyNode("shop", "shop-1", 40), kind)
		var last string
		for i := range 100 {
			last = mustApply(t, s, onePolicy("cart", time.Hour, byte(i+1)))
			f.run(10 * time.Millisecond)
		}
		f.run(time.Second)
		other.run(time.Millisecond)
		if n := len(f.only(whole)); n > 17 || n < 10 {
			t.Errorf("%d pushes in a second, want about 15", n)
		}
		if f.version != last {
			t.Errorf("holds %q, last applied %q", f.version, last)
		}
		if len(other.got) != 0 {
			t.Errorf("a service that was not named got %d messages", len(other.got))
		}
	})
}

// A sidecar that takes seconds to answer gets the last policy next, not all.
func TestSlowSidecarGetsTheLastPolicy(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		if !f.receive(time.Second) {
			t.Fatal("nothing came")
		}
		var last string
		for i := range 5 {
			last = mustApply(t, s, onePolicy("cart", time.Hour, byte(i+2)))
			time.Sleep(time.Second)
		}
		f.answer()
		f.run(time.Second)
		if n := len(f.only(whole)); n != 2 || f.version != last {
			t.Errorf("%d pushes, holds %q, last applied %q", n, f.version, last)
		}
	})
}

func TestUnchangedPolicyIsNotPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		a := newFake(t, s, envoyNode("a", "a-1", 40), Delta)
		b := newFake(t, s, envoyNode("b", "b-1", 40), Delta)
		v1 := mustApply(t, s, onePolicy("a", time.Hour, 1), onePolicy("b", time.Hour, 1))
		a.run(time.Second)
		b.run(time.Second)
		v2 := mustApply(t, s, onePolicy("a", time.Hour, 1), onePolicy("b", time.Hour, 1, 2))
		a.run(time.Second)
		b.run(time.Second)
		if a.version != v1 || b.version != v2 || v2 <= v1 {
			t.Errorf("a holds %q, b holds %q after %q and %q", a.version, b.version, v1, v2)
		}
		if err := s.Wait(t.Context(), v2, []string{"a", "b"}); err != nil {
			t.Error(err)
		}
		if v3 := mustApply(t, s, onePolicy("a", time.Hour, 1)); v3 != v2 {
			t.Errorf("nothing changed, but the version is %q after %q", v3, v2)
		}
	})
}

func TestRemoval(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		keeps := newFake(t, s, envoyNode("shop", "shop-1", 40), kind)
		mustApply(t, s, onePolicy("cart", time.Hour, 1), onePolicy("shop", time.Hour, 1))
		f.run(time.Second)
		keeps.run(time.Second)
		s.Remove("cart", "nobody")
		f.run(20 * time.Second)
		keeps.run(time.Second)
		if f.policy != nil || len(f.only(removal)) != 1 {
			t.Errorf("holds %v after %d removals", f.policy, len(f.only(removal)))
		}
		if keeps.policy == nil {
			t.Error("the other service lost its policy")
		}
		if row := s.Sidecars()[0]; row.Acked != "" {
			t.Errorf("still listed with %q", row.Acked)
		}
		s.Clear()
		keeps.run(time.Second)
		if keeps.policy != nil {
			t.Error("Clear left a policy")
		}
	})
}

// A plane that starts after another one takes nothing away before it has been told.
func TestNewPlaneKnowsNothing(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		old := newTestServer(t, testConfig())
		f := newFake(t, old, envoyNode("cart", "cart-1", 40), kind)
		v := mustApply(t, old, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.disconnect()

		f.server, f.got = newTestServer(t, testConfig()), nil
		f.connect(kind)
		defer f.disconnect()
		f.run(time.Second)
		if f.version != v || len(f.got) != 0 {
			t.Fatalf("holds %q after %d messages from a plane that knows nothing", f.version, len(f.got))
		}
		if row := f.server.Sidecars()[0]; row.Acked != v {
			t.Errorf("listed with %q", row.Acked)
		}
		mustApply(t, f.server, onePolicy("shop", time.Hour, 1))
		f.run(time.Second)
		if f.policy != nil {
			t.Error("a plane that has been told left the policy of another plane")
		}
	})
}

func TestReconnectWithTheSameVersionCostsAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.disconnect()
		if rows := s.Sidecars(); len(rows) != 1 || rows[0].Connected || rows[0].Acked != v {
			t.Errorf("sidecars %+v", rows)
		}
		time.Sleep(3 * time.Second)
		f.got = nil
		f.connect(Delta)
		f.run(time.Second)
		if len(f.got) != 1 || f.got[0].kind != heartbeat || f.version != v {
			t.Errorf("got %+v", f.got)
		}
		if rows := s.Sidecars(); len(rows) != 1 || !rows[0].Connected {
			t.Errorf("sidecars %+v", rows)
		}
	})
}

func TestLapsedPolicyComesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(6 * time.Second)
		f.got = nil
		if !f.receive(10 * time.Second) { // a heartbeat that the network holds up
			t.Fatal("no heartbeat")
		}
		time.Sleep(20 * time.Second)
		f.answer()
		f.run(time.Second)
		if n := len(f.got); n != 2 || f.got[1].kind != whole || f.got[1].ttl != 30*time.Second || f.version != v {
			t.Errorf("got %+v, holds %q", f.got, f.version)
		}
		left := f.policy.GetActivations()[0].GetRemaining().AsDuration()
		if want := time.Hour - 30*time.Second; left > want {
			t.Errorf("%v left, want at most %v", left, want)
		}
		if row := s.Sidecars()[0]; row.Nack != nil {
			t.Errorf("a lapse is listed as a refusal: %+v", row.Nack)
		}
	})
}

// Envoy counts the TTL of a state-of-the-world resource from before it compiles
// the plugin.
func TestStarvedSidecarGetsTheTimeItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), StateOfTheWorld)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		for range 2 {
			if !f.receive(time.Second) {
				t.Fatal("nothing came")
			}
			sent := f.got[len(f.got)-1]
			time.Sleep(40 * time.Second)
			f.answer()
			f.expires = sent.at.Add(sent.ttl)
		}
		if first, second := f.got[0].ttl, f.got[1].ttl; first != 30*time.Second || second != 2*time.Minute {
			t.Errorf("TTLs %v and %v", first, second)
		}
		f.run(time.Second)
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil || f.version != v {
			t.Errorf("Wait: %v, holds %q", err, f.version)
		}
		f.run(20 * time.Second)
		if last := f.got[len(f.got)-1]; last.ttl != 15*time.Second {
			t.Errorf("TTL stays %v", last.ttl)
		}
	})
}

func TestLifetimes(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		p := onePolicy("cart", 10*time.Second, 1)
		p.Activations = append(p.Activations, onePolicy("cart", time.Minute, 2).GetActivations()...)
		p.EdgeRules = []*tfiv1.EdgeRule{{
			Key:        p.GetActivations()[0].GetKey(),
			Identities: []*tfiv1.Identity{{Source: &tfiv1.Identity_Header{Header: "x-tenant"}, Match: &tfiv1.Identity_Exact{Exact: "red"}}},
		}}
		mustApply(t, s, p)
		time.Sleep(4 * time.Second)
		first := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		first.run(time.Millisecond)
		remaining := func(p *tfiv1.Policy) (out []time.Duration) {
			for _, a := range p.GetActivations() {
				out = append(out, a.GetRemaining().AsDuration())
			}
			return out
		}
		if got := remaining(first.policy); len(got) != 2 || got[0] != 6*time.Second || got[1] != 56*time.Second {
			t.Errorf("after 4 s: %v", got)
		}
		if len(first.policy.GetEdgeRules()) != 1 {
			t.Error("the edge rule is gone too early")
		}
		time.Sleep(8*time.Second - time.Millisecond)
		second := newFake(t, s, envoyNode("cart", "cart-2", 40), kind)
		second.run(time.Millisecond)
		if got := remaining(second.policy); len(got) != 1 || got[0] != 48*time.Second {
			t.Errorf("after 12 s: %v", got)
		}
		if len(second.policy.GetEdgeRules()) != 0 {
			t.Error("an edge rule of an expired activation was sent")
		}

		// Applied again, an expired key stays dead, and a live one lives no longer.
		time.Sleep(time.Second - time.Millisecond)
		again := onePolicy("cart", time.Minute, 1, 2, 3)
		mustApply(t, s, again)
		second.run(time.Second)
		if got := remaining(second.policy); len(got) != 2 || got[0] != 47*time.Second || got[1] != time.Minute {
			t.Errorf("applied again after 13 s: %v", got)
		}
		if got := again.GetActivations()[0].GetRemaining(); got.AsDuration() != time.Minute || again.GetVersion() != "" {
			t.Error("Apply changed its argument")
		}
	})
}

func TestRefusalIsKeptAndNotRepeated(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		good := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(6 * time.Second)
		f.refuse = "Unable to create Wasm plugin sequencefi"
		bad := mustApply(t, s, onePolicy("cart", time.Hour, 2))
		f.run(time.Second)
		if f.version != good {
			t.Fatalf("holds %q", f.version)
		}
		err := s.Wait(t.Context(), bad, []string{"cart"})
		var nack *NackError
		if !errors.As(err, &nack) || *nack != (NackError{"cart", "cart-1", bad, f.refuse}) {
			t.Fatalf("Wait: %v", err)
		}
		n := len(f.got)
		f.run(10 * time.Second)
		if len(f.got) != n {
			t.Errorf("%d messages after the refusal", len(f.got)-n)
		}
		// What it held is wanted no longer and has lapsed.
		f.run(10 * time.Second)
		if row := s.Sidecars()[0]; row.Acked != "" || row.Nack == nil || row.Nack.Version != bad || row.Nack.Message != f.refuse {
			t.Errorf("sidecar %+v", row)
		}
		// Applied again it is worth another try.
		mustApply(t, s, onePolicy("cart", time.Hour, 2))
		f.run(time.Second)
		if len(f.got) != n+1 {
			t.Errorf("%d messages after it was applied again", len(f.got)-n)
		}
		f.refuse = ""
		v := mustApply(t, s, onePolicy("cart", time.Hour, 3))
		f.run(time.Second)
		if err := s.Wait(t.Context(), v, []string{"cart"}); err != nil || f.version != v {
			t.Errorf("Wait: %v, holds %q", err, f.version)
		}
		if last := f.got[len(f.got)-1]; last.ttl != 30*time.Second {
			t.Errorf("ttl %v although the plugin has to be loaded anew", last.ttl)
		}
		if row := s.Sidecars()[0]; len(row.Nacks) != 2 {
			t.Errorf("refusals %+v", row.Nacks)
		}
	})
}

func TestModuleBeingFetched(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		c := testConfig()
		c.Module = gate.Module{URI: "http://h/p.wasm", SHA256: "0000000000000000000000000000000000000000000000000000000000000000"}
		s := newTestServer(t, c)
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		f.refuse = "Unable to create Wasm plugin sequencefi"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(2 * time.Second)
		if n := len(f.got); n < 4 || n > 8 {
			t.Errorf("%d pushes in 2 s", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wait(ctx, v, []string{"cart"}); !errors.Is(err, ErrPending) {
			t.Errorf("Wait while fetching: %v", err)
		}
		f.refuse = ""
		f.run(2 * time.Second)
		if f.version != v {
			t.Fatalf("holds %q, applied %q", f.version, v)
		}
		if row := s.Sidecars()[0]; row.Nack != nil || len(row.Nacks) == 0 || !row.Nacks[0].Accepted {
			t.Errorf("sidecar %+v", row)
		}
		// With the module there, a refusal has another reason.
		f.refuse = "no"
		bad := mustApply(t, s, onePolicy("cart", time.Hour, 2))
		f.run(time.Second)
		if err := s.Wait(t.Context(), bad, []string{"cart"}); !errors.Is(err, ErrNack) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestModuleThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.Module = gate.Module{URI: "http://h/p.wasm", SHA256: "0000000000000000000000000000000000000000000000000000000000000000"}
		s := newTestServer(t, c)
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		f.refuse = "Unable to create Wasm plugin sequencefi"
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(40 * time.Second)
		n := len(f.got)
		if n > 25 {
			t.Errorf("%d pushes", n)
		}
		f.run(time.Minute)
		if len(f.got) != n {
			t.Error("pushes without end")
		}
		if err := s.Wait(t.Context(), v, []string{"cart"}); !errors.Is(err, ErrNack) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestRefusedSidecarGetsNothing(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 37), kind)
		v := mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Minute)
		if len(f.got) != 0 {
			t.Fatalf("got %d messages", len(f.got))
		}
		var refused *RefusedError
		if err := s.Wait(t.Context(), v, []string{"cart"}); !errors.As(err, &refused) || refused.Instance != "cart-1" || !errors.Is(err, ErrRefused) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestAnotherResourceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := &fakeSidecar{t: t, server: s, node: envoyNode("cart", "cart-1", 40)}
		f.connect(Delta)
		defer f.disconnect()
		f.sub.UpdateResourceSubscriptions([]string{"fic"}, []string{gate.Name})
		f.request(&discoveryv3.DeltaDiscoveryRequest{}, nil)
		if row := s.Sidecars()[0]; row.Refused == "" {
			t.Errorf("sidecar %+v", row)
		}
	})
}

func TestAskedForAgainComesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Second)
		f.sub.UpdateResourceSubscriptions([]string{gate.Name}, nil)
		f.request(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{gate.Name}}, nil)
		f.run(time.Second)
		if n := len(f.only(whole)); n != 2 {
			t.Errorf("came whole %d times", n)
		}
	})
}

func TestWithoutTTL(t *testing.T) {
	both(t, func(t *testing.T, kind Stream) {
		c := testConfig()
		c.TTL = -1
		s := newTestServer(t, c)
		f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
		mustApply(t, s, onePolicy("cart", time.Hour, 1))
		f.run(time.Minute)
		if len(f.got) != 1 || f.got[0].ttl != 0 {
			t.Errorf("got %+v", f.got)
		}
	})
}

// Whatever happens on the way, a sidecar that is connected and agrees ends with
// the last policy, and nothing else is pushed then.
func TestConverges(t *testing.T) {
	for seed := range uint64(40) {
		kind := Stream(1 + seed%2)
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newTestServer(t, testConfig())
			f := newFake(t, s, envoyNode("cart", "cart-1", 40), kind)
			var last string
			for i := range 60 {
				switch r.IntN(8) {
				case 0, 1:
					last = mustApply(t, s, onePolicy("cart", time.Hour, byte(i+1)))
				case 2:
					s.Remove("cart")
					last = ""
				case 3:
					f.refuse = "no"
				case 4:
					f.refuse = ""
				case 5:
					f.disconnect()
					time.Sleep(time.Duration(r.IntN(20)) * time.Second)
					f.connect(kind)
				case 6:
					if f.receive(time.Second) {
						time.Sleep(time.Duration(r.IntN(20)) * time.Second)
						f.answer()
					}
				case 7:
					f.run(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
			}
			f.refuse = ""
			if last == "" {
				s.Clear()
			} else {
				last = mustApply(t, s, onePolicy("cart", time.Hour, 99))
			}
			f.run(2 * time.Second)
			f.lapse()
			if got := f.policy.GetVersion(); got != last {
				t.Errorf("seed %d: holds %q, last applied %q", seed, got, last)
			}
			n := len(f.only(whole))
			f.run(30 * time.Second)
			if kind == Delta && len(f.only(whole)) != n {
				t.Errorf("seed %d: pushed again without need", seed)
			}
		})
	}
}
