package ecds

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func TestApplyRefuses(t *testing.T) {
	s := newTestServer(t, testConfig())
	bad := onePolicy("cart", time.Hour, 1)
	bad.Activations[0].Key = []byte{1}
	bad.Activations[0].Remaining = durationpb.New(2 * time.Hour)
	_, err := s.Apply(t.Context(), map[string]*tfiv1.Policy{"cart": bad, "shop": onePolicy("mall", time.Hour, 1), "good": onePolicy("good", time.Hour, 1)})
	if !errors.Is(err, ErrService) {
		t.Errorf("no word of the other service's policy: %v", err)
	}
	for _, want := range []string{"activations[0].key", "activations[0].remaining", `"shop"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s: %v", want, err)
		}
	}
	if err := s.Wait(t.Context(), "", []string{"good"}); !errors.Is(err, ErrUnknownService) {
		t.Errorf("a good policy beside a bad one was applied: %v", err)
	}
}

// Two instances could fire the same fault at the same time.
func TestApplyKnowsTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, testConfig())
		p := onePolicy("cart", time.Hour, 1)
		p.Activations[0].Services = []string{"cart", "bank"}
		p.Activations[0].Tfics = []*tfiv1.Tfic{{
			Id:     "t1",
			Target: &tfiv1.StaticConfiguration{Caller: "cart", Callee: "bank", Api: "POST /charge", Phase: tfiv1.Phase_PHASE_REQ},
			Fault:  &tfiv1.Fault{Kind: &tfiv1.Fault_Abort{Abort: &tfiv1.Abort{}}},
		}}
		newFake(t, s, envoyNode("cart", "cart-1", 40), Delta)
		mustApply(t, s, p)
		newFake(t, s, envoyNode("cart", "cart-2", 40), Delta)
		p.TraceHeader = "x-trace" // a change
		if _, err := s.Apply(t.Context(), map[string]*tfiv1.Policy{"cart": p}); err == nil {
			t.Error("two instances could fire, and nobody minds")
		}
	})
}
